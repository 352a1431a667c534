"""A hook of the documentation site that turns links out of `docs/` into file names.

The site does not hold those files.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_UPWARD = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page's source with such links as plain names."""
    folder = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if target.startswith("docs/"):
            return match[0]
        return f"{match[1]} (`{target}`)"

    return _UPWARD.sub(link, markdown)


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
