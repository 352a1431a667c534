"""A hook of the documentation site that turns links out of `docs/` into file names.

The site does not hold those files.
"""

from __future__ import annotations

import posixpath
import re
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
