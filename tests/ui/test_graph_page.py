"""The page of the event graph in a real browser: it draws the graph, filters it, shows
the evidence, and stored text stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from browser_kit import WIDTHS, chromium, colour_behind, opened, overflow
from command_line_kit import ROOT, SAMPLE

from memagent import Agent
from memagent.core.answers import GraphDocument, GraphEdge, GraphNode, GraphTurn, NodeState
from memagent.core.records import NodeKind, Relation, Scope
from memagent.events.graph_files import graph_from_json
from memagent.pages.graph_page import graph_page
from memagent.readers import read_conversation

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "<svg onload=alert(4)>",
    "<!--<script>alert(5)",
    "]]><script>alert(6)</script>",
    '"><b onmouseover=alert(7)>x</b>',
    "'-alert(8)-'",
    "javascript:alert(9)",
    "${alert(10)}",
    "`+alert(11)+`",
    "\\u003cscript>alert(12)\\u003c/script>",
    "<iframe srcdoc='<script>alert(13)</script>'>",
    "<style>*{display:none}</style>",
    "<base href=//example.invalid>",
    "<meta http-equiv=refresh content='0;url=//example.invalid'>",
    "<a href=javascript:alert(17)>click</a>",
    "&lt;script&gt;alert(18)&lt;/script&gt;",
    "\u2028alert(19)\u2029",
    "<details open ontoggle=alert(20)>",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, GraphDocument]:
    """The sample conversation's page and its graph."""
    folder = tmp_path_factory.mktemp("graph")
    with Agent(path=":memory:", user_id="friends", design="compass_rules") as agent:
        for session in read_conversation(SAMPLE).sessions:
            agent.remember(session)
        agent.memory.export_graph(folder / "graph.html")
        return folder / "graph.html", graph_from_json(agent.memory.export_graph(format="json").text)


def test_the_page_knows_every_kind_and_relation() -> None:
    script = (ROOT / "memagent" / "pages" / "assets" / "graph_data.js").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{name.value}: \[", script) for name in Relation)
    assert all(script.count(f'{name.value}: "') == 2 for name in NodeKind)


def drawn(page: Any, kind: str = "nodes") -> int:
    """What the canvas shows by now."""
    page.evaluate("draw()")
    return int(page.get_attribute("#graph", f"data-{kind}"))


def point_of(page: Any, number: int) -> dict[str, float]:
    """Where a node is drawn."""
    x, y = page.evaluate("number => onScreen(nodes[number])", number)
    return {"x": x, "y": y}


def test_the_page_names_nothing_outside_itself(sample: tuple[Path, GraphDocument]) -> None:
    page = sample[0].read_text(encoding="utf-8")
    shell = re.sub(r'(?s)<script type="application/json".*?</script>', "", page).replace(
        "http://www.w3.org/2000/svg", ""
    )
    assert not re.search(
        r"https?:|//[a-z]|\b(?:src|href|action)=|@import|url\(", re.sub(r"(?m)//\s.*$", "", shell)
    )
    assert "default-src 'none'" in page and "unsafe" not in page


def test_it_draws_the_whole_graph_in_both_layouts_and_themes(
    browser: Any, sample: tuple[Path, GraphDocument]
) -> None:
    file, graph = sample
    grounds: set[str] = set()
    for scheme in ("light", "dark"):
        with opened(browser, file, scheme=scheme) as tab:
            for layout in ("network", "time"):
                tab.page.click(f"[data-layout={layout}]")
                assert (drawn(tab.page), drawn(tab.page, "edges")) == (
                    len(graph.nodes),
                    len(graph.edges),
                )
            assert f"{len(graph.nodes)} nodes, {len(graph.edges)} edges" in tab.page.inner_text(
                "#status"
            )
            before = colour_behind(tab.page)
            tab.page.click("#theme")
            assert colour_behind(tab.page) != before
            grounds.add(before)
    assert len(grounds) == 2


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_every_width(browser: Any, sample: tuple[Path, GraphDocument], width: int) -> None:
    with opened(browser, sample[0], width=width, height=740) as tab:
        assert overflow(tab.page) <= 0
        if width < 900:
            for name in ("filters", "list"):
                tab.page.click(f"#open-{name}")
                assert overflow(tab.page) <= 0
                tab.page.click(f"#open-{name}")
        x, y, stage = *point_of(tab.page, 0).values(), tab.page.locator("#graph").bounding_box()
        assert 0 < x < stage["width"] and 0 < y < stage["height"]


def test_kinds_relations_and_hidden_nodes_can_be_left_out(
    browser: Any, sample: tuple[Path, GraphDocument]
) -> None:
    file, graph = sample
    gone = [edge for edge in graph.edges if edge.state is not NodeState.OPEN]
    assert gone
    with opened(browser, file) as tab:
        assert drawn(tab.page, "gone") == len(gone)
        tab.page.click("label:has(#hidden)")
        assert drawn(tab.page) == sum(node.state is NodeState.OPEN for node in graph.nodes)
        assert drawn(tab.page, "gone") == 0
        tab.page.click("#reset")
        tab.page.click("label:has(input[value=event])")
        assert drawn(tab.page) == sum(node.kind is not NodeKind.EVENT for node in graph.nodes)
        tab.page.click("#reset")
        tab.page.click("label:has(input[value=mentions])")
        assert drawn(tab.page) == len(graph.nodes)
        assert drawn(tab.page, "edges") == sum(
            edge.relation is not Relation.MENTIONS for edge in graph.edges
        )


def test_dates_and_sliders_narrow_the_time(
    browser: Any, sample: tuple[Path, GraphDocument]
) -> None:
    file, graph = sample
    with opened(browser, file) as tab:
        tab.page.fill("#from", "2024-05-01")
        tab.page.fill("#to", "2024-05-31")
        low, high = datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 6, 1, tzinfo=UTC)
        inside = 0
        for node in graph.nodes:
            start = (node.valid.start or node.valid.end) if node.valid is not None else node.said_at
            if start is not None:
                end = (
                    node.valid.end
                    if node.valid is not None and node.valid.end
                    else start + timedelta(milliseconds=1)
                )
                inside += start < high and end > low
        timed = tab.page.evaluate("shown.nodes.filter(node => node.when).length")
        assert 0 < inside == timed < drawn(tab.page) < len(graph.nodes)
        tab.page.click("#reset")
        assert drawn(tab.page) == len(graph.nodes)
        tab.page.focus("#to-slider")
        for _ in range(5):
            tab.page.keyboard.press("PageDown")
        assert drawn(tab.page) < len(graph.nodes)


def test_wheel_buttons_keys_and_drag_move_the_view(
    browser: Any, sample: tuple[Path, GraphDocument]
) -> None:
    with opened(browser, sample[0]) as tab:

        def scale() -> float:
            tab.page.evaluate("draw()")
            return float(tab.page.get_attribute("#graph", "data-scale"))

        first = scale()
        tab.page.click("#in")
        larger = scale()
        assert larger > first
        tab.page.mouse.move(700, 450)
        tab.page.mouse.wheel(0, 400)
        tab.page.wait_for_function("limit => view.scale < limit", arg=larger)
        tab.page.focus("#graph")
        tab.page.keyboard.press("0")
        assert scale() == pytest.approx(first)
        tab.page.keyboard.press("+")
        assert scale() > first
        before = point_of(tab.page, 0)["x"]
        tab.page.keyboard.press("ArrowRight")
        assert point_of(tab.page, 0)["x"] == pytest.approx(before - 48)
        tab.page.mouse.move(300, 850)
        tab.page.mouse.down()
        tab.page.mouse.move(340, 850)
        tab.page.mouse.move(400, 850)
        tab.page.mouse.up()
        assert point_of(tab.page, 0)["x"] > before


def test_a_click_shows_the_node_with_its_source_turns_and_edges(
    browser: Any, sample: tuple[Path, GraphDocument]
) -> None:
    file, graph = sample
    turns = {turn.id: turn for turn in graph.turns}
    number, node = next(
        (at, one)
        for at, one in enumerate(graph.nodes)
        if one.kind is NodeKind.EVENT and len(one.source_turn_ids) > 1
    )
    with opened(browser, file) as tab:
        tab.page.evaluate(
            "number => { zoom(3 / view.scale); bringIn(nodes[number]); draw(); }", number
        )
        tab.page.click("#graph", position=point_of(tab.page, number))
        assert tab.page.get_attribute("#panel", "data-node") == node.id
        panel = tab.page.inner_text("#panel")
        for turn_id in node.source_turn_ids:
            turn = turns[turn_id]
            assert turn.said_at is not None
            assert (
                turn.text in panel
                and turn.speaker in panel
                and f"{turn.said_at.day} {turn.said_at:%B %Y, %H:%M}" in panel
            )
        linked = sum(node.id in (edge.source, edge.target) for edge in graph.edges)
        assert tab.page.locator("#panel .link").count() == linked
        tab.page.locator("#panel details summary").first.click()
        tab.page.locator("#panel details[open] blockquote").first.wait_for()
        tab.page.keyboard.press("Escape")
        assert tab.page.get_attribute("#panel", "data-node") == ""


def test_search_and_list_work_by_keyboard_alone(
    browser: Any, sample: tuple[Path, GraphDocument]
) -> None:
    file, graph = sample
    found = [node for node in graph.nodes if "pixel" in node.text.casefold()]
    with opened(browser, file) as tab:
        tab.page.keyboard.press("/")
        tab.page.keyboard.type("pixel")
        assert tab.page.inner_text("#panel h2").casefold() == f"{len(found)} matches"
        assert tab.page.locator("#panel mark").first.inner_text() == "Pixel"
        tab.page.keyboard.press("Enter")
        assert tab.page.get_attribute("#panel", "data-node") in {node.id for node in found}
        tab.page.keyboard.press("Escape")
        tab.page.locator("#panel .link").nth(1).focus()
        tab.page.keyboard.press("Enter")
        assert tab.page.get_attribute("#panel", "data-node") in {node.id for node in found}


def test_two_fingers_zoom(browser: Any, sample: tuple[Path, GraphDocument]) -> None:
    with opened(browser, sample[0], width=360, height=740) as tab:
        before = tab.page.evaluate("view.scale")
        session = tab.page.context.new_cdp_session(tab.page)
        for kind, apart in (("touchStart", 40), ("touchMove", 80), ("touchMove", 120)):
            fingers = [
                {"x": 180 + side * apart / 2, "y": 420, "id": at} for at, side in enumerate((-1, 1))
            ]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        assert tab.page.evaluate("view.scale") > before * 1.5


def test_stored_text_is_shown_as_text_and_never_run(browser: Any, tmp_path: Path) -> None:
    said_at = datetime(2024, 5, 1, tzinfo=UTC)
    turns = tuple(
        GraphTurn(id=f"t{at}{text}", speaker=text, text=text, session_id=text, said_at=said_at)
        for at, text in enumerate(HOSTILE)
    )
    nodes = tuple(
        GraphNode(
            id=f"n{at}{text}", kind=list(NodeKind)[at % 4], text=text, people=(text,), aliases=(text,), time_text=text,
            session_id=text, said_at=said_at, source_turn_ids=(f"t{at}{text}",),
        )
        for at, text in enumerate(HOSTILE)
    )  # fmt: skip
    edges = tuple(
        GraphEdge(
            source=one.id,
            target=other.id,
            relation=Relation.RELATED,
            label=one.text,
            evidence_turn_ids=one.source_turn_ids,
        )
        for one, other in zip(nodes, (*nodes[1:], nodes[0]), strict=True)
    )
    document = GraphDocument(scope=Scope(user_id=HOSTILE[1]), nodes=nodes, edges=edges, turns=turns)
    file = tmp_path / "hostile.html"
    file.write_text(graph_page(document), encoding="utf-8")
    with opened(browser, file) as tab:
        assert tab.page.text_content("#scope") == HOSTILE[1]
        assert tab.page.title() == f"Event graph of {HOSTILE[1]}"
        for at, text in enumerate(HOSTILE):
            tab.page.evaluate("at => choose(nodes[at], true)", at)
            tab.page.evaluate(
                "document.querySelectorAll('details').forEach(one => { one.open = true; })"
            )
            assert tab.page.text_content("#panel .text") == text
            assert tab.page.locator("#panel blockquote p").first.text_content() == text
            assert (
                tab.page.locator("#panel").evaluate(
                    "panel => panel.querySelectorAll('script, img, iframe, style, base, meta, a').length"
                )
                == 0
            )
            tab.page.evaluate("choose(null)")
            tab.page.fill("#search", text)
        assert tab.page.evaluate("document.scripts.length") == 2


def test_five_thousand_nodes_open_with_the_best_connected_first(
    browser: Any, tmp_path: Path
) -> None:
    count = 5_000
    kinds = (NodeKind.EVENT, NodeKind.ITEM)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    nodes = tuple(
        GraphNode(
            id=f"n{at}",
            kind=kinds[at % 2],
            text=f"what number {at} tells",
            said_at=start + timedelta(hours=at),
        )
        for at in range(count)
    )
    edges = tuple(
        GraphEdge(source=f"n{at}", target=f"n{at // 7}", relation=Relation.ELABORATES)
        for at in range(1, count)
    )
    file = tmp_path / "large.html"
    file.write_text(graph_page(GraphDocument(nodes=nodes, edges=edges)), encoding="utf-8")
    with opened(browser, file) as tab:
        few = drawn(tab.page)
        assert few < 1_000 and "of 5,000 nodes" in tab.page.inner_text("#status")
        least = tab.page.evaluate("Math.min(...shown.nodes.map(node => node.degree))")
        assert least == 8
        tab.page.click("#all")
        assert drawn(tab.page) == count
        assert (
            tab.page.evaluate(
                "(() => { const began = performance.now(); draw(); return performance.now() - began; })()"
            )
            < 2_000
        )


def test_an_empty_memory_has_a_page_too(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "empty.html"
    file.write_text(graph_page(GraphDocument()), encoding="utf-8")
    with opened(browser, file) as tab:
        assert drawn(tab.page) == 0
        assert "holds no graph yet" in tab.page.inner_text("#empty")
