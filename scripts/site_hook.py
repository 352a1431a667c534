"""A hook of the documentation site: links out of `docs/` become the names of the files,
since the site does not hold them.
"""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's source with such links as plain names."""
    return _OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2].removeprefix('../')}`)", markdown)
