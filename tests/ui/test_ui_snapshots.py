"""Snapshots on the dashboard: taking, comparing, forking and restoring do what the REST
verbs do, and nothing without a confirmation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from service_kit import Served, serving
from ui_pages import links, send, token, words


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(":memory:", design="verbatim") as running:
        yield running


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with served.http() as client:
        client.post("/v1/memories", json={"id": "cat", "text": "Ana has a grey cat"})
        client.post("/v1/memories", json={"id": "drums", "text": "Ana plays the drums"})
        yield client


def taken(http: httpx.Client, name: str = "before") -> str:
    """A snapshot taken through the page; gives its id."""
    assert send(http, "/ui/snapshots", "/ui/snapshots", name=name).status_code == 200
    return http.get("/v1/snapshots").json()["items"][-1]["id"]


def changed(http: httpx.Client) -> None:
    http.patch("/v1/memories/cat", json={"text": "Ana has a black cat"})
    http.delete("/v1/memories/drums")
    http.post("/v1/memories", json={"id": "home", "text": "Ana lives in Oslo"})


def test_an_empty_list_says_what_snapshots_are_for(http: httpx.Client) -> None:
    assert "No snapshot yet" in words(http.get("/ui/snapshots"))
    assert "There is nothing to compare" in words(http.get("/ui/snapshots/diff"))


def test_one_is_taken_and_shown_as_what_the_memory_is_now(http: httpx.Client) -> None:
    page = send(http, "/ui/snapshots", "/ui/snapshots", name="before the trip")
    told = words(page)
    assert "Taken: “before the trip”, 2 memories." in told and "as it is now" in told
    info = http.get("/v1/snapshots").json()["items"][0]
    assert (info["name"], info["items"]) == ("before the trip", 2)
    changed(http)
    assert "as it is now" not in words(http.get("/ui/snapshots"))


def test_a_name_that_is_too_long_is_refused_with_the_text_kept(http: httpx.Client) -> None:
    answer = send(http, "/ui/snapshots", "/ui/snapshots", name="n" * 300)
    assert (
        answer.status_code == 422
        and "n" * 300 in answer.text
        and "at most 256 characters" in words(answer)
    )
    assert http.get("/v1/snapshots").json()["items"] == []


def test_a_comparison_shows_what_was_added_removed_and_changed_word_by_word(
    http: httpx.Client,
) -> None:
    first = taken(http)
    changed(http)
    last = taken(http, "after")
    for query in (f"before={first}", f"before={first}&after={last}"):
        page = http.get(f"/ui/snapshots/diff?{query}")
        assert re.search(r"<del>grey\s*</del><ins>black\s*</ins>", page.text)
        assert (
            "<ins>Ana lives in Oslo</ins>" in page.text
            and "<del>Ana plays the drums</del>" in page.text
        )
    turned = http.get(f"/ui/snapshots/diff?before={last}&after={first}").text
    assert "<del>Ana lives in Oslo</del>" in turned and "<ins>Ana plays the drums</ins>" in turned
    assert "Nothing changed" in words(http.get(f"/ui/snapshots/diff?before={last}"))
    same = http.get(f"/ui/snapshots/diff?before={first}&after={first}")
    assert same.status_code == 422 and "two different points" in words(same)
    assert http.get("/ui/snapshots/diff?before=snp_nobody").status_code == 404


def test_restoring_wants_the_word_and_then_the_memory_is_what_it_was(http: httpx.Client) -> None:
    snapshot = taken(http)
    digest = http.get(f"/v1/snapshots/{snapshot}").json()["digest"]
    changed(http)
    page = f"/ui/snapshots/one?id={snapshot}&deed=restore"
    for wrong in ("", "yes", "Restore "):
        answer = send(http, page, "/ui/snapshots/restore", id=snapshot, confirm=wrong)
        assert answer.status_code == 422 and "type the word restore" in words(answer)
    assert http.get("/v1/memories/home").is_success
    answer = send(http, page, "/ui/snapshots/restore", id=snapshot, confirm="restore")
    assert answer.status_code == 200 and "The memory is as it was then." in words(answer)
    assert http.get("/v1/memories/home").status_code == 404
    assert http.get("/v1/memories/cat").json()["text"] == "Ana has a grey cat"
    now = http.post("/v1/snapshots", json={"name": "now"}).json()
    assert now["digest"] == digest


def test_a_fork_is_a_memory_of_its_own(http: httpx.Client) -> None:
    snapshot = taken(http)
    changed(http)
    page = f"/ui/snapshots/one?id={snapshot}&deed=fork"
    answer = send(http, page, "/ui/snapshots/fork", id=snapshot)
    run = answer.url.params["run_id"]
    assert run in words(answer)
    assert (
        http.get("/v1/memories/cat", params={"run_id": run}).json()["text"] == "Ana has a grey cat"
    )
    assert http.get("/v1/memories/cat").json()["text"] == "Ana has a black cat"
    assert all(f"run_id={run}" in link for link in links(answer) if link.startswith("/ui/memories"))


def test_forms_need_their_token_and_their_own_origin(served: Served, http: httpx.Client) -> None:
    snapshot = taken(http)
    held = token(http.get("/ui/snapshots"))
    own = {"Origin": served.url}
    fields = {"id": snapshot, "confirm": "restore"}
    for path in ("/ui/snapshots", "/ui/snapshots/restore", "/ui/snapshots/fork"):
        assert http.post(path, data=fields, headers=own).status_code == 403
        assert http.post(path, data={**fields, "csrf": held[::-1]}, headers=own).status_code == 403
        assert http.post(path, data={**fields, "csrf": held}).status_code == 403
        assert http.post(
            path, data={**fields, "csrf": held}, headers={"Origin": "http://evil.invalid"}
        ).status_code in (403, 421)
    assert len(http.get("/v1/snapshots").json()["items"]) == 1


def test_who_may_only_read_sees_no_forms_and_nobody_sees_anothers(
    served: Served, http: httpx.Client
) -> None:
    snapshot = taken(http)
    reader, other = served.key("default", "memory:read"), served.key("ben")
    with served.http() as mine, served.http() as bens:
        for client, key in ((mine, reader), (bens, other)):
            send_key(client, key, served.url)
        page = mine.get(f"/ui/snapshots/one?id={snapshot}&deed=restore")
        assert page.status_code == 200 and 'action="/ui/snapshots' not in page.text
        held = {"csrf": token(page), "id": snapshot, "confirm": "restore"}
        assert (
            mine.post(
                "/ui/snapshots/restore", data=held, headers={"Origin": served.url}
            ).status_code
            == 403
        )
        assert bens.get(f"/ui/snapshots/one?id={snapshot}").status_code == 404
        assert bens.get(f"/ui/snapshots/one?id={snapshot}&user_id=default").status_code == 404
        assert bens.get(f"/ui/snapshots/diff?before={snapshot}").status_code == 404
        for path in ("restore", "fork"):
            body = {"csrf": token(bens.get("/ui/snapshots")), "id": snapshot, "confirm": "restore"}
            assert (
                bens.post(
                    f"/ui/snapshots/{path}", data=body, headers={"Origin": served.url}
                ).status_code
                == 404
            )


def send_key(client: httpx.Client, key: str, url: str) -> None:
    answer = client.post("/ui/sign-in", data={"key": key}, headers={"Origin": url})
    assert answer.status_code == 303


def test_what_was_erased_cannot_be_compared_and_the_page_says_so(http: httpx.Client) -> None:
    snapshot = taken(http)
    erased = http.post("/v1/users/default/erase?memory_only=true").json()["id"]
    while http.get(f"/v1/jobs/{erased}").json()["state"] not in ("done", "failed"):
        pass
    for path in (
        f"/ui/snapshots/diff?before={snapshot}",
        f"/ui/snapshots/diff?before={snapshot}&after=now",
    ):
        answer = http.get(path)
        assert answer.status_code == 409 and "what it held was erased" in words(answer)
    page = f"/ui/snapshots/one?id={snapshot}&deed=restore"
    answer = send(http, page, "/ui/snapshots/restore", id=snapshot, confirm="restore")
    assert answer.status_code == 409 and "what it held was erased" in words(answer)
    assert "Everything before this was erased" in words(http.get("/ui/turns"))
