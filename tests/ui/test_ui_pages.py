"""The dashboard in a real browser: every page fits, reads, works by keyboard and
without a script, and shows what REST tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_kit import WIDTHS, colour_behind, overflow
from hypothesis import given, strategies as st
from ui_kit import SCHEMES, Stock, axe_faults, chromium, stocked, tab_on

from memagent.client.wire import JobKind, JobState
from memagent.core.records import Scope
from memagent.pages.journal_words import word_diff
from memagent.service.app import PAGES
from memagent.service.ui.frame import POLICY

pytestmark = pytest.mark.timeout(400)
NOT_PAGES = {
    "/ui/assets/{name}",
    "/ui/graph/data",
    "/ui/graph/files/{name}",
    "/ui/jobs/{job_id}/files/{number}",
    "/ui/sign-in",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    with stocked(tmp_path_factory.mktemp("ui")) as made:
        yield made


def test_every_page_there_is_is_among_the_addresses(stock: Stock) -> None:
    paths = {address.partition("?")[0] for address in stock.addresses()}
    routes = {route.path for router in PAGES for route in router.routes if "GET" in route.methods}  # type: ignore[attr-defined]
    unseen = {
        route
        for route in routes - NOT_PAGES
        if not any(re.fullmatch(re.sub(r"\{.*?\}", ".+", route), path) for path in paths)
    }
    assert unseen == set()


@pytest.mark.parametrize("part", range(4))
def test_every_page_fits_every_width_in_both_themes_and_axe_finds_nothing(
    browser: Any, stock: Stock, part: int
) -> None:
    faults: list[str] = []
    grounds: set[str] = set()
    with tab_on(browser, stock.url) as tab:
        for address in stock.addresses()[part::4]:
            answer = tab.page.goto(stock.of(address))
            if answer.status != (404 if address.endswith("nowhere") else 200):
                faults.append(f"{address}: status {answer.status}")
            for width in WIDTHS:
                tab.page.set_viewport_size({"width": width, "height": 900})
                for scheme in SCHEMES:
                    tab.page.emulate_media(color_scheme=scheme)
                    if overflow(tab.page) > 0:
                        faults.append(f"{address}: {overflow(tab.page)} px too wide at {width}")
                    if (width, scheme) in ((WIDTHS[0], "dark"), (WIDTHS[-1], "light")):
                        faults += [
                            f"{address} at {width} {scheme}: {one}" for one in axe_faults(tab.page)
                        ]
                    grounds.add(colour_behind(tab.page))
            faults += [f"{address}: {one}" for one in tab.faults]
            tab.faults.clear()
    assert faults == []
    assert len(grounds) == 2


def test_axe_would_find_something(browser: Any, stock: Stock) -> None:
    with tab_on(browser, stock.url) as tab:
        tab.page.goto("/ui")
        tab.page.evaluate("document.querySelector('main').append(document.createElement('select'))")
        assert any("select-name" in one for one in axe_faults(tab.page))


def test_every_page_has_the_headers_and_nothing_inline(stock: Stock) -> None:
    with stock.served.http() as http:
        for address in [
            *stock.addresses(),
            "/ui/graph/data",
            "/ui/assets/ui.css",
            "/ui/assets/ui.js",
        ]:
            answer = http.get(stock.of(address))
            assert answer.headers["content-security-policy"] == POLICY, address
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            if "/assets/" in address:
                assert (
                    http.get(address, headers={"If-None-Match": answer.headers["etag"]}).status_code
                    == 304
                )
                continue
            assert answer.headers["cache-control"] == "no-store", address
            html = answer.text
            assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html), address
            assert not re.search(r"(?:src|href|action)=[\"'](?!/|#)", html), address
            scripts = re.findall(r"<script[^>]*>", html)
            assert all(
                "src=" in script or 'type="application/json"' in script for script in scripts
            ), address
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY


def test_a_user_finds_edits_undoes_deletes_and_brings_back_without_any_script(
    browser: Any, stock: Stock
) -> None:
    context = browser.new_context(java_script_enabled=False, base_url=stock.url)
    page = context.new_page()
    try:
        page.goto(stock.of("/ui/memories", "ben"))
        page.get_by_role("searchbox").fill("Where does Ana live?")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=Where**")
        assert "user_id=ben" in page.url
        page.get_by_text("Why").first.click()
        assert page.get_by_text("Found by").first.is_visible()
        page.get_by_role("link", name="Ana lives in Oslo").click()
        assert "user_id=ben" in page.url
        page.get_by_role("textbox", name="What it says").fill("Ana lives in Bergen")
        page.get_by_role("button", name="Save").click()
        assert page.get_by_role("status").inner_text() == "Saved as a new version."
        assert (
            page.locator("ol ins").first.inner_text(),
            page.locator("ol del").first.inner_text(),
        ) == (
            "Bergen",
            "Oslo",
        )
        page.reload()
        assert page.get_by_role("status").count() == 0
        page.get_by_role("button", name="Undo this change").click()
        assert page.get_by_role("textbox", name="What it says").input_value() == "Ana lives in Oslo"
        page.get_by_role("button", name="Delete").click()
        page.get_by_text("deleted", exact=True).first.wait_for()
        page.get_by_role("button", name="Bring back").click()
        assert page.get_by_role("textbox", name="What it says").input_value() == "Ana lives in Oslo"
        page.get_by_role("link", name="All memories").click()
        page.get_by_role("link", name="Add a memory").click()
        page.get_by_label("Text").fill("Ana likes <b>cheese</b>")
        page.get_by_label("Tags").fill("food, taste")
        page.get_by_role("button", name="Remember").click()
        assert (
            page.get_by_role("textbox", name="What it says").input_value()
            == "Ana likes <b>cheese</b>"
        )
        assert page.get_by_role("link", name="taste").is_visible()
    finally:
        context.close()


def test_keys_alone_lead_from_search_to_a_saved_edit(browser: Any, stock: Stock) -> None:
    with tab_on(browser, stock.url) as tab:
        page, keys = tab.page, tab.page.keyboard
        page.goto(stock.of("/ui/memories"))
        keys.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        keys.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        keys.press("/")
        keys.type("sourdough bread")
        keys.press("Enter")
        page.wait_for_url("**q=sourdough**")
        _tab_to(page, "Ben bakes sourdough bread on Sundays")
        keys.press("Enter")
        page.wait_for_url("**/ui/memories/bread?**")
        keys.press("e")
        keys.type("Ben bakes rye bread on Sundays")
        keys.press("Control+Enter")
        page.get_by_role("status").wait_for()
        assert (
            page.get_by_role("textbox", name="What it says").input_value()
            == "Ben bakes rye bread on Sundays"
        )
        _tab_to(page, "Undo this change")
        keys.press("Enter")
        page.get_by_role("status").get_by_text("Taken back.").wait_for()
        assert (
            page.get_by_role("textbox", name="What it says").input_value()
            == "Ben bakes sourdough bread on Sundays"
        )


def _tab_to(page: Any, words: str) -> None:
    """Press Tab until what has the focus says these words; everything on the way must
    show that it has it.
    """
    for _ in range(80):
        page.keyboard.press("Tab")
        text, seen, html = page.evaluate(
            "() => { const at = document.activeElement, how = getComputedStyle(at);"
            " return [at.textContent.trim(), how.outlineStyle !== 'none' && parseFloat(how.outlineWidth) > 0, at.outerHTML]; }"
        )
        assert seen, f"the focus cannot be seen on {html[:300]}"
        if text == words:
            return
    raise AssertionError(f"no Tab leads to {words!r}")


def test_the_theme_is_switched_and_remembered(browser: Any, stock: Stock) -> None:
    with tab_on(browser, stock.url) as tab:
        tab.page.goto("/ui")
        before = colour_behind(tab.page)
        tab.page.click("#theme")
        after = colour_behind(tab.page)
        tab.page.goto("/ui/health")
        assert colour_behind(tab.page) == after != before


def test_the_menu_opens_on_a_narrow_screen(browser: Any, stock: Stock) -> None:
    with tab_on(browser, stock.url, width=360) as tab:
        tab.page.goto(stock.of("/ui"))
        tab.page.get_by_text("Menu", exact=True).click()
        assert axe_faults(tab.page) == [] and overflow(tab.page) <= 0
        tab.page.get_by_role("link", name="Memories", exact=True).click()
        tab.page.wait_for_url("**/ui/memories?user_id=ana")


def test_a_search_shows_the_parts_of_every_score_that_rest_tells(stock: Stock) -> None:
    with stock.served.http() as http:
        http.params = {"user_id": "ana"}
        asked = {"text": "What is the cat called?", "k": 30, "explain": True}
        hits = http.post("/v1/search", json=asked).json()["hits"]
        html = http.get("/ui/memories", params={"q": asked["text"]}).text
    assert hits
    rows = re.findall(r"<tr><td>(?:(?!<tr><td>).)*?class=\"why\".*?</details>", html, re.DOTALL)
    assert len(rows) == len(hits)
    for hit, row in zip(hits, rows, strict=True):
        assert f">{hit['score']:.4g}<" in row
        for arm, score in hit["why"]["arms"].items():
            assert (
                f'<td class="num">{hit["why"]["ranks"][arm]}</td><td class="num">{score:.4g}</td>'
                in row
            )
        for name, factor in hit["why"]["factors"].items():
            assert f'times {name}</dt><dd class="tabular">{factor:.3f}<' in row


def test_filters_and_dates_narrow_the_list(stock: Stock) -> None:
    with stock.served.http() as http:
        http.params = {"user_id": "ana"}

        def listed(**query: str) -> set[str]:
            return set(
                re.findall(
                    r'class="main-link clamp[^"]*" href="/ui/memories/([^"?]*)',
                    http.get("/ui/memories", params=query).text,
                )
            )

        assert listed(tag="pet") == {"cat"}
        assert listed(subject="Ben", kind="fact") == {"bread"}
        assert listed(kind="note") == {"long"}
        assert "gone" not in listed() and "gone" in listed(deleted="1")
        assert listed(known="2020-01-01") == set()
        assert "home" in listed(holds="2022-06-01") and "home" not in listed(holds="2020-06-01")
        assert listed(known="nonsense") == listed()
        assert len(listed(session_id="ana-ses-1")) == 3


def test_pages_of_a_long_list_neither_skip_nor_repeat(stock: Stock) -> None:
    texts = [f"number {place} of many" for place in range(120)]
    with stock.served.http() as http:
        assert http.post("/v1/memories/batch?user_id=many", json={"texts": texts}).is_success
        found: list[str] = []
        address = "/ui/memories?user_id=many"
        for _ in range(3):
            html = http.get(address).text
            found += re.findall(r"number (\d+) of many</a>", html)
            more = re.search(r'class="button" href="(/ui/memories\?[^"]*cursor=[^"]*)"', html)
            address = more[1].replace("&amp;", "&") if more else ""
    assert not address and sorted(map(int, found)) == list(range(120))


def test_an_edit_over_a_newer_version_is_refused_and_keeps_what_was_typed(
    browser: Any, stock: Stock
) -> None:
    with tab_on(browser, stock.url) as tab, stock.served.http() as http:
        page = tab.page
        page.goto(stock.of("/ui/memories/home"))
        assert http.patch(
            "/v1/memories/home?user_id=ana", json={"text": "Ana lives in Oslo, Norway"}
        ).is_success
        page.get_by_role("textbox", name="What it says").fill("Ana lives in Bergen")
        page.get_by_role("button", name="Save").click()
        assert "has changed" in page.get_by_role("alert").inner_text()
        assert (
            page.get_by_role("textbox", name="What it says").input_value() == "Ana lives in Bergen"
        )
        assert page.locator(".conflict del").first.inner_text() == "Oslo, Norway"
        page.get_by_role("button", name="Save").click()
        assert page.get_by_role("status").inner_text() == "Saved as a new version."
        assert http.get("/v1/memories/home?user_id=ana").json()["text"] == "Ana lives in Bergen"


def test_the_time_a_memory_holds_is_edited_and_stays_otherwise(browser: Any, stock: Stock) -> None:
    with tab_on(browser, stock.url) as tab, stock.served.http() as http:
        tab.page.goto(stock.of("/ui/memories/home", "ben"))
        before = http.get("/v1/memories/home?user_id=ben").json()["valid"]
        tab.page.get_by_role("textbox", name="What it says").fill("Ana lives by the sea")
        tab.page.get_by_role("button", name="Save").click()
        assert http.get("/v1/memories/home?user_id=ben").json()["valid"] == before
        tab.page.get_by_label("Until").fill("2025-01-01")
        tab.page.get_by_role("button", name="Save").click()
        valid = http.get("/v1/memories/home?user_id=ben").json()["valid"]
        assert (valid["start"][:10], valid["end"][:10]) == ("2021-01-01", "2025-01-01")


def test_erasing_wants_the_user_typed_and_ends_with_a_receipt(browser: Any, stock: Stock) -> None:
    with tab_on(browser, stock.url) as tab, stock.served.http() as http:
        assert http.post(
            "/v1/memories?user_id=short-lived", json={"text": "a secret of somebody"}
        ).is_success
        page = tab.page
        page.goto(stock.of("/ui/users", "short-lived"))
        page.get_by_label("Type the user's id").fill("somebody else")
        page.get_by_role("button", name="Erase for good").click()
        assert "nothing was erased" in page.get_by_role("alert").inner_text()
        page.get_by_label("Type the user's id").fill("short-lived")
        page.get_by_role("button", name="Erase for good").click()
        page.get_by_role("heading", name="Receipt").wait_for()
        assert page.get_by_role("row", name="short-lived").inner_text().split()[:3] == [
            "short-lived",
            "1",
            "0",
        ]
        assert http.get("/v1/memories?user_id=short-lived").json()["items"] == []


def test_an_export_is_made_and_fetched(browser: Any, stock: Stock) -> None:
    with tab_on(browser, stock.url) as tab:
        tab.page.goto(stock.of("/ui/users", "ben"))
        tab.page.get_by_role("button", name="Export everything").click()
        tab.page.get_by_role("link", name="Download 1").wait_for()
        with tab.page.expect_download() as fetched:
            tab.page.get_by_role("link", name="Download 1").click()
        assert b"Ben bakes sourdough bread" in Path(fetched.value.path()).read_bytes()


def test_jobs_are_cancelled_and_tried_again(
    browser: Any, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody_looks() -> int:
        return 0

    # the job of a worker that is gone would be taken up before it is cancelled here
    monkeypatch.setattr(stock.served.service.jobs, "resume", nobody_looks)
    table, scope = stock.served.service.jobs.table, Scope(user_id="ana")

    def add(job_id: str) -> None:
        table.add(job_id, scope, JobKind.INGEST, session_id="ana-ses-1", worker="another")

    add("job_broken")
    table.move("job_broken", JobState.FAILED, error="model_error")
    with tab_on(browser, stock.url) as tab:
        page = tab.page
        add("job_waiting")
        page.goto(stock.of("/ui/jobs/job_waiting"))
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("status").get_by_text("Cancelled").wait_for()
        assert page.get_by_text("cancelled", exact=True).is_visible()
        page.goto(stock.of("/ui/jobs?state=failed"))
        assert page.get_by_role("row").count() == 3
        page.goto(stock.of("/ui/jobs/job_broken"))
        page.get_by_role("button", name="Try again").click()
        page.get_by_text("done", exact=True).wait_for()


def test_health_shows_the_figures_of_metrics_and_verifies_the_journal(
    browser: Any, stock: Stock
) -> None:
    with tab_on(browser, stock.url) as tab, stock.served.http() as http:
        text = http.get("/metrics").text
        done = re.search(r'memagent_events_total\{event="jobs_done"\} (\d+)', text)
        tab.page.goto(stock.of("/ui/health"))
        shown = tab.page.inner_text("main")
        assert done is not None and re.search(rf"Jobs done\s+{done[1]}\b", shown)
        for route in ("/v1/memories/batch", "/v1/sessions", "/ui/memories"):
            assert route in shown
        tab.page.get_by_role("button", name="Verify this memory").click()
        assert tab.page.get_by_role("status").inner_text() == "Every entry is as it was written."


def test_an_empty_memory_says_what_to_do(browser: Any, stock: Stock) -> None:
    with tab_on(browser, stock.url) as tab:
        for address in ("/ui", "/ui/memories", "/ui/jobs", "/ui/users?find=nobody-of-this-name"):
            tab.page.goto(stock.of(address, "nobody"))
            assert tab.page.locator(".empty h2").is_visible(), address
            assert axe_faults(tab.page) == []


@given(st.text(), st.text())
def test_a_word_diff_holds_both_texts(before: str, after: str) -> None:
    pieces = word_diff(before, after)
    assert "".join(piece.text for piece in pieces if piece.kind != "ins") == before
    assert "".join(piece.text for piece in pieces if piece.kind != "del") == after


def test_a_word_diff_is_by_words_and_quick() -> None:
    assert word_diff("a grey cat", "a black cat") == [
        ("same", "a "),
        ("del", "grey "),
        ("ins", "black "),
        ("same", "cat"),
    ]
    one, other = ("x y " * 40_000), ("y x z " * 30_000)
    assert "".join(piece.text for piece in word_diff(one, other) if piece.kind != "ins") == one
