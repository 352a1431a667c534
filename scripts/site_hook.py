"""A hook of the documentation site that turns links out of `docs/` into file names.

The site does not hold those files.
"""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page's source with such links as plain names."""
    return _OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2].removeprefix('../')}`)", markdown)
