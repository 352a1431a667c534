"""What the tests of pages share: one Chromium for a module, and a tab that writes down
what a page must not do.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (360, 768, 1440)


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's Chromium; the test is skipped where there is none, or no playwright."""
    program = next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """An open page and what it did wrong so far."""

    page: Any
    faults: list[str] = field(default_factory=list[str])


@contextmanager
def opened(
    browser: Any, file: Path, *, width: int = 1440, height: int = 900, scheme: str = "light"
) -> Iterator[Tab]:
    """The file in a fresh tab; on leaving, it must have said nothing on the console,
    asked for nothing and opened no dialog.
    """
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=width < 900
    )
    tab = Tab(context.new_page())
    own = file.resolve().as_uri()
    tab.page.on("console", lambda said: tab.faults.append(f"console {said.type}: {said.text}"))
    tab.page.on("pageerror", lambda error: tab.faults.append(f"error: {error}"))
    tab.page.on(
        "request", lambda asked: asked.url == own or tab.faults.append(f"request: {asked.url}")
    )

    def refuse(dialog: Any) -> None:
        tab.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    tab.page.on("dialog", refuse)
    try:
        tab.page.goto(own)
        yield tab
        assert tab.faults == []
    finally:
        context.close()


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window."""
    return page.evaluate(
        "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - window.innerWidth"
    )


def colour_behind(page: Any) -> str:
    """Background colour of the page."""
    return page.evaluate("getComputedStyle(document.body).backgroundColor")
