"""What the tests of the dashboard share: a served store with something on every page,
one browser, and tabs that note what went wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser_kit import Tab, chromium
from run_folder_kit import write_run
from service_kit import Served, serving

from memagent.config import ServiceSettings

__all__ = ["SCHEMES", "Stock", "axe_faults", "chromium", "stocked", "tab_on"]

SCHEMES = ("light", "dark")
SESSIONS = (
    (
        "ses-1",
        "2024-03-04T10:00:00Z",
        (
            ("Ana", "I adopted a grey cat last week. His name is Bolt."),
            ("Ben", "Lovely! I started to bake bread in January, the sourdough is finally good."),
            ("Ana", "Bolt sleeps on my keyboard, so I moved my desk to the window."),
        ),
    ),
    (
        "ses-2",
        "2024-05-20T17:10:00Z",
        (
            ("Ana", "Bolt had to go to the vet on Thursday because he ate a ribbon."),
            ("Ana", "Because of the bill I cancelled my trip to Lisbon in June."),
            ("Ben", "Sorry to hear that. I sold bread at the market on Saturday."),
        ),
    ),
)
MEMORIES: tuple[dict[str, Any], ...] = (
    {
        "id": "cat",
        "text": "Ana adopted a grey cat called Bolt",
        "tags": ["pet", "family"],
        "subject": "Ana",
    },
    {
        "id": "home",
        "text": "Ana lives in Oslo",
        "subject": "Ana",
        "valid": {"start": "2021-01-01", "end": "2024-09-01"},
    },
    {
        "id": "bread",
        "text": "Ben bakes sourdough bread on Sundays",
        "subject": "Ben",
        "speaker": "Ben",
    },
    {"id": "gone", "text": "Ana plays the drums"},
    {
        "id": "note/with slash?",
        "text": "An id may hold signs of an address",
        "metadata": {"source": "a form", "page": 3},
    },
    {"id": "long", "text": "Ana keeps a diary. " * 60, "kind": "note"},
)


@dataclass
class Stock:
    """A served store, and what is in it."""

    served: Served
    user: str = "ana"
    snapshots: list[str] = field(default_factory=list[str])
    jobs: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        """Where it is served."""
        return self.served.url

    def addresses(self) -> list[str]:
        """Every page of the dashboard with something on it, without the user."""
        first, last = self.snapshots[0], self.snapshots[-1]
        return [
            "/ui",
            "/ui/ask",
            "/ui/ask?text=What+is+the+cat+called%3F&seq=2",
            "/ui/memories",
            "/ui/memories?add=1",
            "/ui/memories?q=cat&tag=pet",
            "/ui/memories?deleted=1&order=old",
            "/ui/memories?tag=nothing",
            "/ui/memories/cat",
            "/ui/memories/gone",
            "/ui/memories/long",
            f"/ui/memories/{quote('note/with slash?', safe='')}",
            "/ui/memory?id=cat",
            "/ui/review",
            "/ui/users",
            "/ui/jobs",
            *(f"/ui/jobs/{job}" for job in self.jobs),
            "/ui/health",
            "/ui/nowhere",
            "/ui/graph",
            "/ui/graph/list",
            "/ui/graph/timeline",
            "/ui/graph/node?id=cat",
            "/ui/turns",
            "/ui/turns/sessions",
            f"/ui/turns/session?id={self.user}-ses-1",
            "/ui/turns/decision?seq=2&recall=1",
            "/ui/turns/memory?id=cat",
            "/ui/turns/question",
            "/ui/turns/question?text=What+is+the+cat+called%3F",
            "/ui/snapshots",
            f"/ui/snapshots/one?id={first}",
            f"/ui/snapshots/diff?before={first}&after={last}",
            "/ui/runs",
            "/ui/runs/one?name=first",
            "/ui/trials",
        ]

    def of(self, address: str, user: str | None = None) -> str:
        """The address for a user's memory."""
        return (
            f"{address}{'&' if '?' in address else '?'}user_id={quote(user or self.user, safe='')}"
        )


@contextmanager
def stocked(folder: Path) -> Generator[Stock]:
    """A server on a store with two users, sessions, memories with histories, a graph,
    snapshots and jobs.
    """
    write_run(folder / "runs" / "first")
    settings = ServiceSettings(drain_s=2.0, runs_folder=folder / "runs")
    with serving(folder / "memory.db", design="compass_rules", settings=settings) as served:
        stock = Stock(served)
        for user in ("ana", "ben"):
            _fill(stock, user)
        yield stock


def _fill(stock: Stock, user: str) -> None:
    with stock.served.http() as http:
        http.params = {"user_id": user}

        def post(path: str, body: Any = None) -> Any:
            answer = http.post(path, json=body)
            assert answer.status_code < 300, answer.text
            return answer.json()

        for session, at, turns in SESSIONS:
            said = [{"speaker": speaker, "text": text} for speaker, text in turns]
            post("/v1/sessions?wait=true", {"id": f"{user}-{session}", "at": at, "turns": said})
        for memory in MEMORIES:
            post("/v1/memories", memory)
        first = post("/v1/snapshots", {"name": "before the change"})["id"]
        assert http.patch(
            "/v1/memories/cat", json={"text": "Ana adopted a black cat, and called it Bolt"}
        ).is_success
        assert http.delete("/v1/memories/gone").is_success
        last = post("/v1/snapshots", {"name": "after the change"})["id"]
        if user == stock.user:
            stock.snapshots += [first, last]
            stock.jobs.append(post(f"/v1/users/{user}/export")["id"])
            stock.jobs.append(
                post("/v1/sessions", {"id": "later", "turns": [{"text": "Bolt likes fish."}]})["id"]
            )


@contextmanager
def tab_on(
    browser: Any, url: str, *, width: int = 1440, height: int = 900, scheme: str = "light"
) -> Iterator[Tab]:
    """A fresh tab for the pages at `url`; on leaving, none of them may have complained,
    gone elsewhere, or opened a dialog.
    """
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        base_url=url,
        reduced_motion="reduce",
    )
    context.set_default_timeout(15_000)
    tab = Tab(context.new_page())

    def said(message: Any) -> None:
        if (
            message.type in ("error", "warning")
            and "the server responded with a status of 4" not in message.text
        ):
            tab.faults.append(f"console {message.type}: {message.text}")

    def refuse(dialog: Any) -> None:
        tab.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    tab.page.on("console", said)
    tab.page.on("pageerror", lambda error: tab.faults.append(f"error: {error}"))
    tab.page.on("dialog", refuse)
    tab.page.on(
        "request",
        lambda asked: (
            asked.url.startswith((url, "data:")) or tab.faults.append(f"request: {asked.url}")
        ),
    )
    tab.page.add_init_script(
        "document.addEventListener('securitypolicyviolation', event => console.error('policy: ' + event.violatedDirective))"
    )
    try:
        yield tab
        assert tab.faults == []
    finally:
        context.close()


def axe_faults(page: Any) -> list[str]:
    """What axe-core finds serious or critical on the page, as "rule: selector"."""
    pytest.importorskip("axe_playwright_python", reason="no axe: pip install axe-playwright-python")
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(
        "axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})"
    )
    return [
        f"{rule['id']}: {node['target']} {node['html'][:160]}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"][:5]
    ]
