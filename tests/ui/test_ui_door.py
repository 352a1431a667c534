"""Who gets into the dashboard and how far: the local rules, sessions for keys, scopes,
foreign users, and forms from elsewhere.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_kit import Served, serving
from ui_kit import chromium, tab_on

from memagent.config import ServiceSettings
from memagent.memory.bank import system_clock
from memagent.service.data.leases import SCOPES
from memagent.service.ui import frame

ADDRESSES = {
    "/ui": "memory:read",
    "/ui/memories": "memory:read",
    "/ui/memories/cat": "memory:read",
    "/ui/memory?id=cat": "memory:read",
    "/ui/users": "memory:read",
    "/ui/review": "memory:read",
    "/ui/jobs": "memory:read",
    "/ui/graph": "memory:read",
    "/ui/graph/data": "memory:read",
    "/ui/turns": "memory:read",
    "/ui/snapshots": "memory:read",
}
"""Pages and the scope that each needs."""
DEEDS = {
    ("/ui/memories", "add"): "memory:write",
    ("/ui/memories/cat", "edit"): "memory:write",
    ("/ui/memories/cat", "undo"): "memory:write",
    ("/ui/memories/cat", "restore"): "memory:write",
    ("/ui/memories/cat", "delete"): "memory:delete",
    ("/ui/users", "erase"): "memory:delete",
    ("/ui/snapshots", "take"): "memory:write",
    ("/ui/health", "verify"): "admin",
}
"""Forms and the scope that each needs."""


@pytest.fixture
def open_house(tmp_path: Path) -> Iterator[Served]:
    """A service without any key."""
    with serving(tmp_path / "memory.db") as running, running.http() as http:
        assert http.post(
            "/v1/memories", json={"id": "cat", "text": "Ana adopted a grey cat"}
        ).is_success
        yield running


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with keys and two users."""
    with serving(tmp_path_factory.mktemp("door") / "memory.db") as running:
        key = running.key(None, *SCOPES)
        with running.http(key) as http:
            for user in ("ana", "ben"):
                for memory in (
                    {"id": "cat", "text": f"{user} has a cat"},
                    {"id": f"only-{user}", "text": "mine"},
                ):
                    assert http.post(f"/v1/memories?user_id={user}", json=memory).is_success
        yield running


@contextmanager
def entered(running: Served, key: str) -> Generator[httpx.Client]:
    """A client that signed in with a key."""
    with running.http(Origin=running.url) as http:
        answer = http.post("/ui/sign-in", data={"key": key, "next": "/ui"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui")
        yield http


def look(running: Served, cookie: str) -> httpx.Response:
    """The first page for a cookie, as it stands."""
    with running.http() as http:
        return http.get("/ui", headers={b"Cookie": cookie.encode("latin-1")})


def token(http: httpx.Client, address: str = "/ui/users") -> str:
    """The token in the forms of a page."""
    found = re.search(r'name="csrf" value="([^"]+)"', http.get(address).text)
    assert found is not None
    return found[1]


def session_cookie(http: httpx.Client) -> str:
    """The name of the session's cookie."""
    return next(
        name
        for name in http.cookies
        if name.startswith("memagent_ui_") and not name.endswith("_note")
    )


# -- without keys ----------------------------------------------------------------------


def test_without_keys_only_loopback_names_are_served(open_house: Served) -> None:
    with open_house.http() as http:
        assert http.get("/ui").status_code == 200
        assert http.get("/ui/sign-in").headers["location"] == "/ui"
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Origin": "https://evil.example"}, 421),
            ({"Origin": "null"}, 421),
            ({"X-Forwarded-For": "10.0.0.1"}, 401),
        ):
            answer = http.get("/ui/memories", headers=headers)
            assert answer.status_code == status and "text/html" in answer.headers["content-type"]
            assert "grey cat" not in answer.text


def test_a_form_from_elsewhere_changes_nothing(open_house: Served) -> None:
    own = open_house.url
    with open_house.http() as http:
        csrf = token(http, "/ui/memories/cat")
        form = {"do": "edit", "text": "Ana has no cat", "csrf": csrf}
        cases: list[tuple[dict[str, str], dict[str, str]]] = [
            ({}, form),
            ({"Origin": "null"}, form),
            ({"Origin": "http://127.0.0.1:1"}, form),
            ({"Origin": "http://localhost"}, form),
            ({"Origin": "https://evil.example"}, form),
            ({"Origin": own, "Sec-Fetch-Site": "cross-site"}, form),
            ({"Origin": own, "Sec-Fetch-Site": "same-site"}, form),
            ({"Origin": own, "Sec-Fetch-Site": "none"}, form),
            ({"Origin": own}, {**form, "csrf": ""}),
            ({"Origin": own}, {**form, "csrf": csrf[:-1]}),
            ({"Origin": own}, {**form, "csrf": csrf[::-1]}),
            ({"Origin": own}, {"do": "edit", "text": "Ana has no cat"}),
            ({"Origin": own, "Content-Type": "text/plain"}, form),
            ({"Origin": own, "Content-Type": "multipart/form-data; boundary=x"}, form),
        ]
        for headers, fields in cases:
            answer = http.post("/ui/memories/cat", data=fields, headers=headers)
            assert answer.status_code in (403, 415, 421), (headers, answer.status_code)
        assert (
            http.post(
                f"/ui/memories/cat?csrf={csrf}&do=edit&text=x", headers={"Origin": own}
            ).status_code
            == 415
        )
        assert http.get("/v1/memories/cat").json()["text"] == "Ana adopted a grey cat"
        assert http.post("/ui/memories/cat", data=form, headers={"Origin": own}).status_code == 303
        assert http.get("/v1/memories/cat").json()["text"] == "Ana has no cat"


def test_odd_forms_are_refused_as_pages(open_house: Served) -> None:
    with open_house.http(Origin=open_house.url) as http:
        csrf = token(http, "/ui/memories/cat")
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        for content in (b"\xff\xfe=1", b"a=%ff%fe", b"&".join(b"x=1" for _ in range(5_000)), b""):
            answer = http.post("/ui/memories/cat", content=content, headers=kind)
            assert (
                answer.status_code in (403, 422) and "text/html" in answer.headers["content-type"]
            )
        for fields in (
            {"do": "fly"},
            {"do": "edit", "text": ""},
            {"do": "edit", "text": "x", "start": "soon"},
            {},
        ):
            assert http.post("/ui/memories/cat", data={**fields, "csrf": csrf}).status_code == 422
        for address in (
            "/ui/memories?cursor=made-up",
            "/ui/memories?order=sideways",
            "/ui/jobs?state=lost",
        ):
            assert http.get(address).status_code in (400, 422)
        assert http.get("/ui/memories?user_id=" + "x" * 300).status_code == 422


def test_a_limit_on_requests_holds_for_pages(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "m.db", settings=ServiceSettings(requests_per_minute=3)) as running,
        running.http() as http,
    ):
        assert [http.get("/ui/users").status_code for _ in range(4)] == [200, 200, 200, 429]
        assert http.get("/ui/assets/ui.css").status_code == 200


# -- with keys -------------------------------------------------------------------------


def test_without_a_session_every_address_leads_to_the_sign_in_page(house: Served) -> None:
    with house.http() as http:
        for address in [
            *ADDRESSES,
            "/ui/health",
            "/ui/nowhere",
            "/ui/jobs/job_x",
            "/ui/snapshots/one?id=snp_x",
        ]:
            answer = http.get(address)
            assert answer.status_code == 303 and answer.headers["location"].startswith(
                "/ui/sign-in"
            ), address
        for address, deed in DEEDS:
            answer = http.post(address, data={"do": deed}, headers={"Origin": house.url})
            assert (answer.status_code, answer.headers["location"]) == (303, "/ui/sign-in"), address
        assert (
            http.get("/ui/memories?q=a&tag=b").headers["location"]
            == "/ui/sign-in?next=%2Fui%2Fmemories%3Fq%3Da%26tag%3Db"
        )
        assert http.get("/ui/assets/ui.css").status_code == 200


def test_a_wrong_key_opens_nothing_and_a_right_one_does(house: Served) -> None:
    key = house.key("ana")
    with house.http(Origin=house.url) as http:
        for wrong in (
            "",
            "ma_",
            key[:-1],
            key[:-1] + ("A" if key[-1] != "A" else "B"),
            key.upper(),
            "x" * 10_000,
        ):
            answer = http.post("/ui/sign-in", data={"key": wrong, "next": "/ui"})
            assert answer.status_code == 401 and "not known" in answer.text and not http.cookies
        elsewhere = http.post(
            "/ui/sign-in", data={"key": key}, headers={"Origin": "https://evil.example"}
        )
        assert elsewhere.status_code == 403 and not http.cookies
        answer = http.post("/ui/sign-in", data={"key": f" {key}\n", "next": "/ui/jobs"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs")
        set_cookie = answer.headers["set-cookie"]
        assert all(
            part in set_cookie
            for part in ("HttpOnly", "SameSite=strict", "Path=/ui", "Max-Age=43200")
        )
        assert "Secure" not in set_cookie and key.split("_", 2)[2] not in set_cookie
        assert http.get("/ui").status_code == 200
    with house.http(
        Origin=house.url.replace("http:", "https:"), **{"X-Forwarded-Proto": "https"}
    ) as http:
        assert "Secure" in http.post("/ui/sign-in", data={"key": key}).headers["set-cookie"]


def test_signing_in_leads_to_pages_of_the_dashboard_only(house: Served) -> None:
    key = house.key("ana")
    for onward in (
        "https://evil.example",
        "//evil.example",
        "/ui//evil.example/..",
        "/\\evil.example",
        "/ui/\\evil",
        "/ui/\r\nSet-Cookie: a=b",
        "/v1/memories",
        "/uix",
        "javascript:alert(1)",
        "/ui/../v1",
        "",
    ):
        with house.http(Origin=house.url) as http:
            location = http.post("/ui/sign-in", data={"key": key, "next": onward}).headers[
                "location"
            ]
            assert str(httpx.URL(house.url).join(location)).startswith(f"{house.url}/ui"), (
                onward,
                location,
            )
            assert "evil" not in location or location.startswith("/ui/")


def test_a_cookie_with_any_byte_changed_is_none(house: Served) -> None:
    with entered(house, house.key("ana")) as http:
        name = session_cookie(http)
        good = http.cookies[name]
        chance = random.Random(4)
        signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
        for place in range(len(good)):
            other = chance.choice([sign for sign in signs if sign != good[place]])
            bad = good[:place] + other + good[place + 1 :]
            answer = http.get("/ui", headers={"Cookie": f"{name}={bad}"})
            assert answer.status_code == 303 or _same_bits(good, bad), place
        for bad in (
            "",
            ".",
            "..",
            "...",
            good.rsplit(".", 1)[0],
            good + ".",
            "\u00e9",
            "a" * 5_000,
        ):
            assert look(house, f"{name}={bad}").status_code == 303


def _same_bits(good: str, bad: str) -> bool:
    """Whether two cookies differ only in the unused bits of the seal's last sign."""
    return good[:-1] == bad[:-1]


def test_a_revoked_key_is_out_at_once_and_a_session_ends(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = house.service
    with entered(house, house.key("ana")) as http:
        key_id = http.cookies[session_cookie(http)].split(".")[0]
        assert http.get("/ui").status_code == 200
        assert service.keys.revoke(key_id, at=system_clock())
        service.keys.read()  # the service does so every half second
        assert http.get("/ui").headers["location"] == "/ui/sign-in"
    monkeypatch.setattr(frame, "SESSION_S", -1)
    with house.http(Origin=house.url) as http:
        sent = http.post("/ui/sign-in", data={"key": house.key("ana")}).headers["set-cookie"]
        assert http.get("/ui", headers={"Cookie": sent.partition(";")[0]}).status_code == 303


def test_signing_out_ends_the_session_also_for_a_copied_cookie(house: Served) -> None:
    with entered(house, house.key("ana")) as http:
        name = session_cookie(http)
        copied = f"{name}={http.cookies[name]}"
        assert http.post("/ui/sign-out", data={"csrf": "wrong"}).status_code == 403
        answer = http.post("/ui/sign-out", data={"csrf": token(http)})
        assert answer.headers["location"] == "/ui/sign-in" and name not in http.cookies
        assert look(house, copied).status_code == 303


def test_a_token_of_another_session_is_refused(house: Served) -> None:
    with entered(house, house.key("ana")) as one, entered(house, house.key("ana")) as other:
        form = {"do": "edit", "text": "stolen", "csrf": token(other)}
        assert one.post("/ui/memories/cat", data=form).status_code == 403
        assert "ana has a cat" in one.get("/ui/memories/cat").text


def test_each_page_and_form_needs_the_scope_that_its_verb_needs(house: Served) -> None:
    for scope in SCOPES:
        with entered(house, house.key("ana", scope)) as http:
            for address, needed in ADDRESSES.items():
                status = http.get(address).status_code
                assert status == (200 if scope == needed else 403), (address, scope)
            csrf = token(http, "/ui/health")
            for (address, deed), needed in DEEDS.items():
                answer = http.post(
                    address, data={"do": deed, "csrf": csrf, "text": "changed", "name": "x"}
                )
                assert scope == needed or answer.status_code == 403, (address, deed, scope, needed)
    for (address, deed), needed in DEEDS.items():
        given = [scope for scope in SCOPES if scope not in (needed, "admin")] + ["memory:read"]
        with entered(house, house.key("ana", *dict.fromkeys(given))) as http:
            fields = {"do": deed, "csrf": token(http), "text": "changed", "confirm": "nobody"}
            answer = http.post(address, data=fields)
            assert answer.status_code == 403 and needed in answer.text, (address, deed)
    with house.http(house.key("ana")) as http:
        assert http.get("/v1/memories/cat").json()["text"] == "ana has a cat"


def test_a_page_offers_only_what_its_viewer_may_do(house: Served) -> None:
    with entered(house, house.key("ana", "memory:read")) as http:
        html = http.get("/ui/memories/cat").text
        assert "ana has a cat" in html
        assert not any(
            word in html
            for word in ('value="delete"', "Undo this change", "<textarea", "Training runs")
        )
        assert "Erase for good" not in http.get("/ui/users").text
        assert http.get("/ui/runs").status_code in (403, 404)
        health = http.get("/ui/health").text
        assert "scope <code>admin</code>" in health and "Versions" not in health


def test_a_bound_key_sees_its_user_alone_and_foreign_is_as_missing(house: Served) -> None:
    with house.http(house.key(None)) as rest:
        job = rest.post("/v1/users/ben/export").json()["id"]
        snapshot = rest.post("/v1/snapshots?user_id=ben", json={"name": "x"}).json()["id"]
    with entered(house, house.key("ana")) as http:

        def told(address: str) -> tuple[int, str]:
            answer = http.get(address)
            return answer.status_code, re.sub(
                r"request <code>\w+</code>|value=\"[^\"]*\"", "", answer.text
            )

        for foreign, missing in (
            ("/ui/memories/only-ben", "/ui/memories/only-zoe"),
            (f"/ui/jobs/{job}", "/ui/jobs/job_missing"),
            (f"/ui/snapshots/one?id={snapshot}", "/ui/snapshots/one?id=snp_missing"),
            ("/ui/memories?user_id=ben", "/ui/memories?user_id=nobody"),
            ("/ui/memories/cat?user_id=ben", "/ui/memories/cat?user_id=nobody"),
        ):
            assert told(foreign) == told(missing)
            assert told(foreign)[0] == 404
        users = http.get("/ui/users").text
        assert "ana" in users and "ben" not in users and 'name="user_id"' not in users
        for fields in ({"do": "edit", "text": "mine now"}, {"do": "delete"}, {"do": "undo"}):
            answer = http.post("/ui/memories/cat?user_id=ben", data={**fields, "csrf": token(http)})
            assert answer.status_code == 404
    with house.http(house.key("ben")) as http:
        assert http.get("/v1/memories/cat").json()["text"] == "ben has a cat"


def test_a_key_bound_to_nobody_chooses_a_user(house: Served) -> None:
    with entered(house, house.key(None, *SCOPES)) as http:
        assert http.get("/ui").headers["location"] == "/ui/users"
        listed = http.get("/ui/users").text
        assert 'href="/ui?user_id=ana"' in listed and 'href="/ui?user_id=ben"' in listed
        page = http.get("/ui/memories/cat?user_id=ben").text
        assert "ben has a cat" in page and "/ui/memories?user_id=ben" in page
        assert 'href="/ui/memories"' not in page
        assert "Versions" in http.get("/ui/health").text


def test_notes_are_sealed(house: Served) -> None:
    with entered(house, house.key("ana")) as http:
        name = session_cookie(http) + "_note"
        assert (
            http.post("/ui/memories", data={"text": "one more", "csrf": token(http)}).status_code
            == 303
        )
        good = http.cookies[name]
        assert "Remembered." in http.get("/ui").text and name not in http.cookies
        assert "Remembered." not in http.get("/ui").text
        session = {session_cookie(http): http.cookies[session_cookie(http)]}
        for bad in (good[:-2] + "xx", "x" + good, "Wyb.abc", "."):
            answer = look(
                house, "; ".join(f"{key}={value}" for key, value in {**session, name: bad}.items())
            )
            assert answer.status_code == 200 and 'role="status"' not in answer.text


def test_no_page_or_cookie_or_file_holds_the_key(house: Served) -> None:
    key = house.key("ana")
    secret = key.split("_", 2)[2]
    with entered(house, key) as http:
        assert all(secret not in http.get(address).text for address in ADDRESSES)
        assert all(secret not in value for value in http.cookies.values())
    assert house.service.path is not None
    for file in house.service.path.parent.glob("*.db"):
        with sqlite3.connect(file) as db:
            assert all(secret not in line for line in db.iterdump())


def test_signing_in_and_out_in_a_browser(house: Served) -> None:
    key = house.key("ana")
    with chromium() as browser, tab_on(browser, house.url) as tab:
        page: Any = tab.page
        page.goto("/ui/memories?q=cat")
        page.get_by_label("API key").fill("ma_wrong")
        page.keyboard.press("Enter")
        assert "not known" in page.get_by_role("alert").inner_text()
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/memories?q=cat")
        page.get_by_role("link", name="ana has a cat").click()
        page.get_by_role("textbox", name="What it says").fill("ana has two cats")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("status").get_by_text("Saved").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("You are signed out.").wait_for()
        page.goto("/ui")
        assert page.get_by_label("API key").is_visible()
    with house.http(key) as http:
        http.patch("/v1/memories/cat", json={"text": "ana has a cat"})
