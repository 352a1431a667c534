"""Pages of the dashboard read without a browser: their words, their links, and their
forms sent as a browser would.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import httpx

_SILENT = {"script", "style", "title", "head"}


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []
        self.fields: dict[str, str] = {}
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self._silent += tag in _SILENT
        if tag == "a" and named.get("href"):
            self.links.append(str(named["href"]))
        if tag == "input" and named.get("name"):
            self.fields[str(named["name"])] = named.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _SILENT

    def handle_data(self, data: str) -> None:
        if self._silent <= 0:
            self.found.append(data)


def words(answer: httpx.Response | str) -> str:
    """What a page says, white space folded."""
    reader = _Words()
    reader.feed(answer if isinstance(answer, str) else answer.text)
    return re.sub(r"\s+", " ", " ".join(reader.found)).strip()


def links(answer: httpx.Response) -> list[str]:
    """Where a page leads."""
    reader = _Words()
    reader.feed(answer.text)
    return reader.links


def token(answer: httpx.Response) -> str:
    """The token in a page's forms; "" without one."""
    reader = _Words()
    reader.feed(answer.text)
    return reader.fields.get("csrf", "")


def send(http: httpx.Client, page: str, to: str, **fields: Any) -> httpx.Response:
    """A form of a page, sent as a browser sends it; redirections are followed."""
    held = token(http.get(page))
    assert held, f"{page} has no form"
    return http.post(
        to,
        data={"csrf": held, **fields},
        headers={"Origin": str(http.base_url).rstrip("/")},
        follow_redirects=True,
    )
