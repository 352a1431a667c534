"""A hook of the documentation site.

It turns links out of `docs/` into file names, as the site does not hold those files, and
marked sections into tabs; keeps each page's source for the copy button; and leaves a page at
each old address.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from textwrap import indent
from typing import Any

from markdown.extensions.toc import slugify

GENERATED = ("rest.md", "settings.md", "command-line.md")
"""References that a program writes."""
_UPWARD = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)")
_MARKED_FENCE = re.compile(r"^(```\w+) (?:notest|requires=\S+)$", re.MULTILINE)
"""What the tests read in a fence; the site's Markdown would take such a fence for words."""

_TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- /tabs -->$", re.MULTILINE | re.DOTALL)
_TAB_ID = re.compile(r'<input[^>]* id="([^"]+)" name="__tabbed')
_SECTION = re.compile(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Give tabs the addresses that headings of the same name have."""
    config["mdx_configs"]["pymdownx.tabbed"]["slugify"] = slugify
    return config


def tabs(match: re.Match[str]) -> str:
    """Turn the sections between the marks into tabs; the page's source stays without them."""
    return "".join(
        f'=== "{title}"\n\n{indent(body.strip(), "    ")}\n\n'
        for title, body in _SECTION.findall(match[1])
    )


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page's source with links out of `docs/` as names and with plain fences."""
    folder = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if target.startswith("docs/"):
            return match[0]
        return f"{match[1]} (`{target}`)"

    plain: str = _UPWARD.sub(link, _MARKED_FENCE.sub(r"\1", markdown))
    page.meta["source"] = plain
    if page.file.src_uri in GENERATED:  # a search shows what people wrote first
        page.meta.setdefault("search", {"boost": 0.3})
    return _TABS.sub(tabs, plain)


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Put the copy button before the page, and the source that it copies behind it."""
    page.present_anchor_ids |= set(_TAB_ID.findall(html))  # a link may lead to a tab
    source = json.dumps(page.meta["source"]).replace("<", "\\u003c")
    return (
        f'<button class="copy-page" type="button">Copy page as Markdown</button>{html}'
        f'<script type="application/json" id="page-source">{source}</script>'
    )


def on_post_build(*, config: Any, **_: Any) -> None:
    """Leave a page at each old address that leads to the new one (`extra.moved`)."""
    for old, new in config["extra"].get("moved", {}).items():
        place = Path(config["site_dir"], old).with_suffix(".html")
        page, _, part = new.partition("#")
        way = posixpath.relpath(page, posixpath.dirname(old) or ".").removesuffix(".md")
        target = f"{way}.html#{part}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(
            f'<!doctype html><meta charset="utf-8"><title>Moved</title>'
            f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">Moved</a>\n',
            encoding="utf-8",
        )
