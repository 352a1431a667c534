"""Tables of the command line: they fit the terminal and lose no text."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from memagent.cli.frame import table

ROWS = [
    (Text("mem_1"), Text("short"), Text("a few words that have to be wrapped at 40 columns")),
    (Text("mem_22"), Text("東京から"), Text("two\nlines").append("\nand a reason", style="dim")),
]


def printed(width: int) -> list[str]:
    """Return the lines of the table on a terminal of that width."""
    screen = Console(file=io.StringIO(), width=width)
    screen.print(table(("id", "speaker", "text"), ROWS, fixed=("id",)))
    file = screen.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [24, 40, 120])
def test_a_table_fits_the_terminal_and_keeps_every_word(width: int) -> None:
    lines = printed(width)
    assert max(map(cell_len, lines)) <= width
    squeezed = "".join("".join(lines).split())
    for row in ROWS:
        assert row[0].plain in squeezed
    assert sum(map(len, squeezed)) == len("idspeakertext") + sum(
        len("".join(cell.plain.split())) for row in ROWS for cell in row
    )


def test_columns_stand_below_their_names() -> None:
    lines = printed(120)
    assert [line.rstrip() for line in lines] == [
        "id      speaker   text",
        "mem_1   short     a few words that have to be wrapped at 40 columns",
        "mem_22  東京から  two",
        "                  lines",
        "                  and a reason",
    ]
