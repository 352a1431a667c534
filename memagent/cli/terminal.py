"""Text for a terminal: the console, tables, lines and the progress bar.

Stored text is data, never markup: it is shown through `Text`, with control characters,
terminal escapes and bidirectional overrides spelled out. So no stored text can colour,
move or hide what the terminal shows.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.text import Text

from memagent.cli.columns import Columns

if TYPE_CHECKING:
    from datetime import datetime

_PIPE_COLUMNS = 160
_BIDI = frozenset(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or error; it is wide when no terminal sets a width."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def neutral(text: str) -> str:
    """Spell out every character that a terminal would act on, but for line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(_spelled(char) if _acts(char) else char for char in text.expandtabs(4))


def _acts(char: str) -> bool:
    return char in _BIDI or (char != "\n" and unicodedata.category(char) in ("Cc", "Cs"))


def _spelled(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def one_line(text: str) -> str:
    """Return the text on one line, neutral to a terminal."""
    return neutral(" ".join(text.split()))


def plain(text: str, style: str = "") -> Text:
    """Return the text as it is, in one style."""
    return Text(neutral(text), style=style)


def line(*parts: str | tuple[str, str]) -> Text:
    """Join parts, each a string or (string, style), to one line."""
    styled = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((neutral(text), style) for text, style in styled))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, fixed: Collection[str] = ()
) -> Columns:
    """Return a table without lines; columns in `fixed` are never wrapped."""
    cells = ([plain(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return Columns(columns, cells, fixed=fixed)


def day(moment: datetime | None) -> str:
    """Format a moment to the minute; midnight is a bare date and None a dash."""
    if moment is None:
        return "-"
    midnight = (moment.hour, moment.minute) == (0, 0)
    return f"{moment:%Y-%m-%d}" if midnight else f"{moment:%Y-%m-%d %H:%M}"


def pairs(values: Mapping[str, object], *, title: str = "") -> RenderableType:
    """Show names and values, one a line, below an optional title."""
    cells = ((Text(name, "dim"), plain(str(value))) for name, value in values.items())
    rows = Columns(("name", "value"), cells, fixed=("name",), header=False)
    return Group(plain(title, "bold"), rows) if title else rows


# -- progress --------------------------------------------------------------------------


@contextmanager
def progress(total: int, unit: str) -> Generator[Callable[[str, int], None]]:
    """Show a bar on standard error if that is a terminal; yield its `advance(status, steps)`."""
    from rich import progress as bars

    screen = console(stderr=True)
    columns = (
        bars.BarColumn(bar_width=24),
        bars.MofNCompleteColumn(),
        bars.TextColumn(unit),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[status]}", markup=False),
    )
    hidden = not screen.is_terminal
    with bars.Progress(*columns, console=screen, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=total, status="")

        def advance(status: str, steps: int) -> None:
            bar.update(task, advance=steps, status=one_line(status))

        yield advance
