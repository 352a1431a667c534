"""The event graph on the dashboard: the drawing shows what REST tells, and list,
timeline and node pages do without any script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from ui_kit import Stock, chromium, stocked, tab_on
from ui_pages import links, words

from memagent.core.records import Relation
from memagent.pages.journal_words import title_of
from memagent.service.ui.snapshots import _RELATIONS  # pyright: ignore[reportPrivateUsage]

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><svg onload=alert(3)>",
    "\u2028${alert(4)}`-'",
)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    with stocked(tmp_path_factory.mktemp("graph")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def http(stock: Stock) -> Iterator[httpx.Client]:
    with stock.served.http() as client:
        client.params = {"user_id": stock.user}
        yield client


def drawing(page: Any, stock: Stock, user: str | None = None, query: str = "?most=0") -> None:
    """The page with its graph drawn, whole where the query does not say otherwise."""
    page.goto(stock.of(f"/ui/graph{query}", user))
    page.wait_for_selector("#graph-app[data-ready]")


def drawn(page: Any) -> tuple[int, int]:
    """(nodes, edges) that the canvas shows by now."""
    page.evaluate("draw()")
    return int(page.get_attribute("#graph", "data-nodes")), int(
        page.get_attribute("#graph", "data-edges")
    )


def test_every_relation_has_words() -> None:
    assert set(_RELATIONS) == set(Relation)


def test_the_canvas_draws_the_graph_that_rest_gives_in_both_layouts(
    browser: Any, stock: Stock, http: httpx.Client
) -> None:
    graph = http.get("/v1/graph").json()
    whole = (len(graph["nodes"]), len(graph["edges"] if "edges" in graph else graph["links"]))
    with tab_on(browser, stock.url) as tab:
        drawing(tab.page, stock)
        for layout in ("network", "time"):
            tab.page.click(f"[data-layout={layout}]")
            assert drawn(tab.page) == whole
        assert f"{whole[0]} nodes, {whole[1]} edges" in tab.page.inner_text("#status")
        tab.page.click("label:has(#hidden)")
        assert drawn(tab.page)[0] < whole[0]


def crowd(stock: Stock) -> None:
    """Forty memories of one user: one about Lisbon, all others about Oslo."""
    with stock.served.http() as http:
        http.params = {"user_id": "crowd"}
        for number in range(40):
            place = "Lisbon" if number == 7 else "Oslo"
            body = {"id": f"m{number:02}", "text": f"Ana saw tram {number} in {place}"}
            assert http.post("/v1/memories", json=body).status_code in (200, 201, 409)


def test_a_drawing_begins_with_the_best_connected_and_grows_on_demand(
    browser: Any, stock: Stock
) -> None:
    crowd(stock)
    with stock.served.http() as http:
        http.params = {"user_id": "crowd"}
        graph = http.get("/v1/graph").json()
        total = len(graph["nodes"])
        first, more, everything = (
            http.get("/ui/graph/data", params={"most": most}).json() for most in (30, 35, 0)
        )
        assert [len(part["nodes"]) for part in (first, more, everything)] == [30, 35, total]
        assert len(first["edges"]) > 0
        edges = graph["edges"] if "edges" in graph else graph["links"]
        degree = {node["id"]: 0 for node in graph["nodes"]}
        for edge in edges:
            degree[edge["source"]] += 1
            degree[edge["target"]] += 1
        drawn_ids = {node["id"] for node in first["nodes"]}
        left = [degree[node_id] for node_id in degree if node_id not in drawn_ids]
        assert min(degree[node_id] for node_id in drawn_ids) >= max(left)
        around = http.get("/ui/graph/data", params={"around": "m07"}).json()
        near = {node["id"] for node in around["nodes"]}
        ends = [{edge["source"], edge["target"]} for edge in edges]
        assert near == {"m07"}.union(*(pair for pair in ends if "m07" in pair))
        assert http.get("/ui/graph/data", params={"around": "nobody"}).json()["edges"] == []
    with tab_on(browser, stock.url) as tab:
        drawing(tab.page, stock, "crowd", "")
        assert drawn(tab.page)[0] == 30
        assert "Best connected of" in tab.page.inner_text(".drawn")
        tab.page.fill("#search", "lisbon")
        tab.page.get_by_role("link", name="Search every node").click()
        tab.page.get_by_role("link", name="Ana saw tram 7 in Lisbon").click()
        tab.page.get_by_role("link", name="Draw what is tied to it").click()
        tab.page.wait_for_selector("#graph-app[data-ready]")
        assert drawn(tab.page)[0] == len(near)
        tab.page.get_by_role("link", name="Back to the best connected").click()
        tab.page.get_by_role("link", name="all", exact=True).click()
        tab.page.wait_for_selector("#graph-app[data-ready]")
        assert drawn(tab.page)[0] == total


def test_an_event_has_a_title_line_above_its_text(http: httpx.Client) -> None:
    events = http.get("/v1/events").json()["items"]
    event = next(event for event in events if "\n" in event["summary"])
    title = title_of(event["summary"])
    assert title != event["summary"] and len(title) <= 90
    page = http.get("/ui/graph/node", params={"id": event["id"]})
    heading = re.findall(r"<h1>(.*?)</h1>", page.text, re.DOTALL)[0]
    assert words(heading) == title
    for path in ("/ui/graph/list", "/ui/graph/timeline"):
        found = re.findall(r"<a .*?</a>", http.get(path, params={"kind": "event"}).text)
        assert title in [words(link) for link in found]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        ("Ana moved to Oslo", "Ana moved to Oslo"),
        ("Ana: Hey Ben! How are you?\nBen: I sold my boat today.", "Ben: I sold my boat today."),
        ("Ana: Thanks, Ben!\nBen: Sure.", "Ana: Thanks, Ben!"),
        ("Was it 10:30? The train left at 10:30 sharp.", "The train left at 10:30 sharp."),
        ("a" * 200, "a" * 89 + "…"),
        ("Ana: " + "word, " * 40, "Ana: " + "word, " * 13 + "word …"),
    ],
)
def test_a_title_is_the_first_sentence_that_states_something(text: str, title: str) -> None:
    assert title_of(text) == title


def test_the_drawing_follows_the_theme_of_the_page(browser: Any, stock: Stock) -> None:
    grounds: set[str] = set()
    for scheme in ("light", "dark"):
        with tab_on(browser, stock.url, scheme=scheme) as tab:
            drawing(tab.page, stock)
            before = tab.page.evaluate("ink.ground")
            tab.page.click("#theme")
            tab.page.wait_for_function("before => ink.ground !== before", arg=before)
            assert tab.page.evaluate("ink.ground").strip() == tab.page.evaluate(
                "getComputedStyle(document.documentElement).getPropertyValue('--ground').trim()"
            )
            grounds.add(before)
    assert len(grounds) == 2


def test_keys_alone_find_a_node_and_sheets_open_on_a_narrow_screen(
    browser: Any, stock: Stock
) -> None:
    with tab_on(browser, stock.url) as tab:
        drawing(tab.page, stock)
        tab.page.keyboard.press("/")
        tab.page.keyboard.type("oslo")
        tab.page.keyboard.press("Enter")
        assert "Oslo" in tab.page.inner_text("#panel .text")
        tab.page.keyboard.press("Escape")
        assert tab.page.get_attribute("#panel", "data-node") == ""
    with tab_on(browser, stock.url, width=360, height=740) as tab:
        drawing(tab.page, stock)
        for name, sheet in (("filters", "#filters"), ("list", "#panel")):
            assert not tab.page.is_visible(sheet)
            tab.page.click(f"#open-{name}")
            assert tab.page.is_visible(sheet)
            tab.page.click(f"#open-{name}")


def test_a_graph_that_cannot_be_fetched_is_told(browser: Any, stock: Stock) -> None:
    context = browser.new_context(base_url=stock.url)
    try:
        page = context.new_page()
        page.route("**/ui/graph/data*", lambda route: route.fulfill(status=500, body="no"))
        page.goto(stock.of("/ui/graph"))
        page.wait_for_selector("#graph-wait.bad")
        assert "could not be fetched" in page.inner_text("#graph-wait")
    finally:
        context.close()


def test_without_script_the_page_leads_to_the_list_and_the_timeline(
    browser: Any, stock: Stock
) -> None:
    context = browser.new_context(base_url=stock.url, java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(stock.of("/ui/graph"))
        page.click("noscript a, .tabs a >> text=List")
        page.fill("#q", "bolt")
        page.select_option("#kind", "event")
        page.click("text=Find")
        page.click(".table .main-link")
        assert "bolt" in page.inner_text("h1").lower()
        assert page.inner_text(".page-head p") == "Event"
        page.click("text=In its session >> nth=0")
        assert page.inner_text("h1") == "Session"
    finally:
        context.close()


def test_list_and_timeline_show_what_is_in_sight_and_nothing_else(http: httpx.Client) -> None:
    events = http.get("/v1/events").json()["items"]
    told, line = (
        words(http.get("/ui/graph/list", params={"kind": "event"})),
        words(http.get("/ui/graph/timeline")),
    )
    assert f"{len(events)} node" in told
    for event in events:
        folded = re.sub(r"\s+", " ", event["summary"]).strip()
        assert folded in told and folded in line
    everything = words(http.get("/ui/graph/list"))
    assert "Ana adopted a black cat" in everything
    assert (
        "Ana adopted a grey cat called Bolt" not in everything
        and "plays the drums" not in everything
    )
    items = words(http.get("/ui/graph/timeline", params={"kind": "item"}))
    assert (
        items.index("January 2021") < items.index("Ana lives in Oslo") < items.index("March 2024")
    )


def test_a_node_shows_its_neighbours_as_rest_does_and_the_turns_it_rests_on(
    http: httpx.Client,
) -> None:
    event = next(one for one in http.get("/v1/events").json()["items"] if "vet" in one["summary"])
    near = http.get(f"/v1/events/{event['id']}/neighbors").json()["neighbours"]
    page = http.get("/ui/graph/node", params={"id": event["id"]})
    told = words(page)
    assert f"One edge away ({len(near)})" in told
    assert sum("/ui/graph/node?" in link for link in links(page)) == len(near)
    assert (
        "Bolt had to go to the vet on Thursday because he ate a ribbon."
        in told.partition("Said in")[2]
    )


def test_what_is_anothers_hidden_or_not_there_answers_alike(
    stock: Stock, http: httpx.Client
) -> None:
    with stock.served.http() as other:
        theirs = other.get("/v1/events?user_id=ben").json()["items"][0]["id"]
    answers = [
        http.get("/ui/graph/node", params={"id": one})
        for one in (theirs, "gone", "cat@1", "evt_nothing")
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({re.sub(r"request .*", "", words(answer)) for answer in answers}) == 1
    assert http.get("/ui/graph/files/graph_page.py").status_code == 404


def test_an_empty_memory_has_pages_too(stock: Stock) -> None:
    with stock.served.http() as http:
        for path in ("", "/list", "/timeline"):
            answer = http.get(f"/ui/graph{path}?user_id=nobody")
            assert (
                answer.status_code == 200
                and 'class="empty"' in answer.text
                and "<canvas" not in answer.text
            )


def test_stored_text_stays_text_in_every_view(browser: Any, stock: Stock) -> None:
    with stock.served.http() as http:
        http.params = {"user_id": "eve"}
        for at, text in enumerate(HOSTILE):
            body = {
                "id": f"n{at}{text}"[:60],
                "text": f"{text} in Rome",
                "subject": text,
                "said_at": "2024-05-01T00:00:00Z",
            }
            assert http.post("/v1/memories", json=body).is_success
        ids = [one["id"] for one in http.get("/v1/memories").json()["items"]]
    with tab_on(browser, stock.url) as tab:
        drawing(tab.page, stock, "eve")
        count = tab.page.evaluate("nodes.length")
        for at in range(count):
            tab.page.evaluate("at => choose(nodes[at], true)", at)
            assert tab.page.evaluate(
                "document.querySelector('#panel .text').textContent === (view.chosen.text || '(no text)')"
            )
            assert (
                tab.page.locator("#panel").evaluate(
                    "it => it.querySelectorAll('script, img, iframe, a:not([href^=\"/ui/graph?\"])').length"
                )
                == 0
            )
        assert set(tab.page.evaluate("nodes.filter(n => n.kind === 'item').map(n => n.id)")) == set(
            ids
        )
        for path in (
            "/ui/graph/list",
            "/ui/graph/timeline",
            *(f"/ui/graph/node?id={quote(one, safe='')}" for one in ids),
        ):
            tab.page.goto(stock.of(path, "eve"))
            assert "in Rome" in tab.page.inner_text("main")
            assert (
                tab.page.evaluate(
                    "document.querySelectorAll('main script, main img, main svg[onload]').length"
                )
                == 0
            )
