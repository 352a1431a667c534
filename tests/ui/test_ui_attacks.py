"""Two hundred hostile strings stored wherever words can be stored: every page shows
them as text, and nothing is made of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import pytest
from service_kit import Served, serving
from ui_kit import chromium, tab_on

pytestmark = pytest.mark.timeout(400)
VECTORS = (
    "<script>alert({n})</script>",
    "<img src=x onerror=alert({n})>",
    "<svg/onload=alert({n})>",
    "<svg><script>alert({n})</script></svg>",
    "<iframe srcdoc='<script>parent.alert({n})</script>'></iframe>",
    "<body onpageshow=alert({n})>",
    "<details open ontoggle=alert({n})>",
    "<input autofocus onfocus=alert({n})>",
    "<video><source onerror=alert({n})></video>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert({n})>",
    "<a href=javascript:alert({n})>click</a>",
    "<form action=//evil.invalid/{n}><button>go</button></form>",
    "<base href=//evil.invalid/{n}/>",
    "<meta http-equiv=refresh content='0;url=//evil.invalid/{n}'>",
    "<link rel=stylesheet href=//evil.invalid/{n}.css>",
    "<style>*{{display:none}}/*{n}*/</style>",
    "<object data=javascript:alert({n})></object>",
    "<x-attack id={n}>",
    "{{{{ 7*{n} }}}}{{% include 'base.html' %}}${{7*{n}}}",
    "javascript:alert({n})",
    "\u202e<b onmouseover=alert({n})>\u2066x",
    "&lt;script&gt;alert({n})&lt;/script&gt;&#60;script>alert({n})</script>",
    "\\u003cscript>alert({n})</script>\\x3cimg src onerror=alert({n})>",
    "'-alert({n})-'`+alert({n})+`${{alert({n})}}",
    "<!--><img src=x onerror=alert({n})>--!>",
)
WRAPPERS = (
    "{}",
    '">{}',
    "'>{} x='",
    "</textarea>{}",
    "</script>{}",
    "</title></style>{}",
    "' autofocus onfocus=alert(0) x='{}",
    "]]>{}\u2028",
)
STRINGS = tuple(
    wrapper.format(vector.format(n=1_000 + len(VECTORS) * number + place))
    for number, wrapper in enumerate(WRAPPERS)
    for place, vector in enumerate(VECTORS)
)
USER = "\"><script>alert(1)</script><x-attack a='"
NEVER = "x-attack img iframe object embed video source math base style mtext mglyph".split()
"""Elements that no page of the dashboard has."""
FOUND = """never => {
  const made = [...document.querySelectorAll([...never, "meta[http-equiv]", "link[href]:not([href^='/ui'])",
    "form[action]:not([action^='/ui'])", "a[href^='javascript' i]"].join())];
  const hooks = name => name.startsWith("on") || name === "style" || name === "srcdoc";
  const hooked = [...document.querySelectorAll("*")].filter(one => one.getAttributeNames().some(hooks));
  const own = one => one.type === "application/json" || one.src.startsWith(location.origin + "/ui/");
  return [...made, ...hooked, ...[...document.scripts].filter(one => !own(one))].map(one => one.outerHTML.slice(0, 200));
}"""
"""What must not be on a page."""


class Shape(HTMLParser):
    """Elements of a page, counted with the names of their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.count: Counter[tuple[str, ...]] = Counter()
        self.feed(html)

    def of(self, tag: str) -> list[int]:
        """How often an element occurs, by its attributes."""
        return [count for (name, *_), count in self.count.items() if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[(tag, *sorted(name for name, _ in attrs))] += 1


@dataclass
class Attacked:
    """A store full of hostile strings."""

    served: Served
    session: str = ""
    snapshots: list[str] = field(default_factory=list[str])
    job: str = ""

    def of(self, address: str) -> str:
        """The address for the hostile user's memory."""
        return f"{address}{'&' if '?' in address else '?'}user_id={quote(USER, safe='')}"

    def addresses(self) -> list[str]:
        """Pages that show what is stored."""
        first, last = self.snapshots[0], self.snapshots[-1]
        ids = [quote(text, safe="") for text in STRINGS[3::29]]
        return [
            "/ui",
            f"/ui/ask?text={ids[0]}&thread={ids[1][:200]}",
            "/ui/memories",
            "/ui/memories?order=old",
            "/ui/memories?q=alert&deleted=1",
            "/ui/memories?add=1",
            *(f"/ui/memories/{one}" for one in ids),
            "/ui/users",
            "/ui/jobs",
            f"/ui/jobs/{self.job}",
            "/ui/health",
            "/ui/graph",
            "/ui/graph/list",
            "/ui/graph/timeline",
            *(f"/ui/graph/node?id={one}" for one in ids[2:4]),
            "/ui/turns",
            "/ui/turns/sessions",
            f"/ui/turns/session?id={quote(self.session, safe='')}",
            "/ui/turns/decision?seq=2&recall=1",
            "/ui/turns/decision?seq=3",
            *(f"/ui/turns/memory?id={one}" for one in ids[:2]),
            f"/ui/turns/question?text={ids[0]}",
            "/ui/snapshots",
            f"/ui/snapshots/one?id={first}",
            f"/ui/snapshots/diff?before={first}&after={last}",
        ]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with serving(
        tmp_path_factory.mktemp("attacks") / "memory.db", design="compass_rules"
    ) as served:
        made = Attacked(served, session=STRINGS[5])
        with served.http() as http:

            def post(path: str, body: Any = None) -> Any:
                answer = http.post(path, json=body, params={"user_id": USER})
                assert answer.status_code < 300, answer.text
                return answer.json()

            turns = [
                {
                    "id": f"t{number}{text}"[:250],
                    "speaker": text[:250],
                    "text": f"On Friday {text} happened because {text}",
                }
                for number, text in enumerate(STRINGS[:60])
            ]
            post(
                "/v1/sessions?wait=true",
                {"id": made.session, "at": "2024-03-04T10:00:00Z", "turns": turns},
            )
            made.snapshots.append(post("/v1/snapshots", {"name": STRINGS[7]})["id"])
            for number, text in enumerate(STRINGS):
                other = STRINGS[-1 - number]
                memory = {
                    "id": text,
                    "text": text,
                    "kind": other,
                    "subject": other,
                    "speaker": text,
                    "tags": [text, other],
                }
                post(
                    "/v1/memories", {**memory, "metadata": {other: text}, "source_turn_ids": [text]}
                )
            for text in STRINGS[3::29]:
                path = f"/v1/memories/{quote(text, safe='')}?user_id={quote(USER, safe='')}"
                assert http.patch(path, json={"text": f"{text} {USER}"}).is_success
            assert http.delete(
                f"/v1/memories/{quote(STRINGS[32], safe='')}?user_id={quote(USER, safe='')}"
            ).is_success
            for text in STRINGS[::20]:
                made.snapshots.append(post("/v1/snapshots", {"name": text})["id"])
                assert http.post(
                    "/v1/memories",
                    json={"text": text},
                    params={"user_id": text[:256], "run_id": text[:256]},
                ).is_success
            made.job = post("/v1/sessions", {"id": STRINGS[40], "turns": [{"text": STRINGS[41]}]})[
                "id"
            ]
        yield made


def test_there_are_two_hundred_strings_and_all_differ() -> None:
    assert len(STRINGS) == len(set(STRINGS)) == 200


def test_no_page_makes_anything_of_a_stored_string(attacked: Attacked) -> None:
    with chromium() as browser, tab_on(browser, attacked.served.url) as tab:
        shown = ""
        for address in attacked.addresses():
            answer = tab.page.goto(attacked.of(address))
            assert answer.status == 200, (address, answer.status)
            assert tab.page.evaluate(FOUND, NEVER) == [], address
            assert tab.faults == [], address
            shown += tab.page.inner_text("body")
        more = tab.page.goto(attacked.of("/ui/memories"))
        for _ in range(10):
            assert more.status == 200 and tab.page.evaluate(FOUND, NEVER) == []
            shown += tab.page.inner_text("body")
            further = tab.page.locator(".pager a")
            if not further.count():
                break
            more = tab.page.goto(further.first.get_attribute("href"))
        missing = [text for text in STRINGS if _plain(text) not in _plain(shown)]
        assert missing == []


def test_every_string_as_an_id_gives_the_page_that_a_harmless_one_gives(attacked: Attacked) -> None:
    """Elements and attribute names of the page of a hostile memory are those of a
    harmless one with as much on it.
    """
    with attacked.served.http() as http:
        harmless = {
            "id": "h",
            "text": "h",
            "kind": "h",
            "subject": "h",
            "speaker": "h",
            "tags": ["h", "g"],
        }
        body = {**harmless, "metadata": {"h": "h"}, "source_turn_ids": ["h"]}
        assert http.post("/v1/memories", json=body, params={"user_id": USER}).is_success
        wanted = Shape(http.get(attacked.of("/ui/memories/h")).text).count
        for text in STRINGS:
            if text in (*STRINGS[3::29], STRINGS[32]):
                continue
            html = http.get(attacked.of(f"/ui/memories/{quote(text, safe='')}")).text
            assert Shape(html).count == wanted, text
            assert escape(text, quote=False) in html.replace("&#34;", '"').replace("&#39;", "'"), (
                text
            )


def test_what_an_address_says_is_shown_as_text_too(attacked: Attacked) -> None:
    places = (
        "/ui/memories?q={}",
        "/ui/memories?tag={}",
        "/ui/users?find={}",
        "/ui/memories?known={}",
        "/ui/nowhere/{}",
    )
    with attacked.served.http() as http:
        for place in places:
            scripts = sum(Shape(http.get(place.format("qqzz")).text).of("script"))
            for text in STRINGS[::5]:
                answer = http.get(place.format(quote(text[:250], safe="")))
                assert answer.status_code < 500
                found = Shape(answer.text)
                assert not any(sum(found.of(tag)) for tag in NEVER), (place, text)
                assert sum(found.of("script")) == scripts
                hooks = [
                    name
                    for _, *names in found.count
                    for name in names
                    if name.startswith("on") or name == "style"
                ]
                assert hooks == []


def _plain(text: str) -> str:
    """The signs that can be seen, without spaces: browsers join and turn them."""
    return re.sub(r"[\s\u2028\u202e\u2066]", "", text).casefold()
