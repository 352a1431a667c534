"""The frame of a report that is one HTML file: style inside, no script, nothing loaded.

A content policy names the digest of the style and forbids everything else. Functions
take text and escape it; parameters called `body` and values of `Tile` are markup.

Titles for events whose text is a stretch of dialogue: one line that says what it is about.

Axes along time for charts: round moments, their words, and equal stretches.

Moments are epoch seconds, in UTC. A step is a number of seconds, or of months when it is
longer than four weeks: months and years differ in length.

The difference between two texts, word by word. Pure.

Words keep the space behind them, so a changed word is shown with its own space.
Beginnings and ends that are equal are set aside first; what lies between is compared up
to `_MOST_WORDS` a side, and shown as one replacement beyond, since comparing grows with
the square.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import SequenceMatcher
from functools import partial
from html import escape
from importlib.resources import files
from itertools import groupby, takewhile
from operator import attrgetter
from textwrap import shorten
from typing import Final, Literal, NamedTuple

from memagent.pages.charts import Axes, Chart, Figure


def report_page(title: str, head: str, parts: Iterable[str]) -> str:
    """Return the page: a heading with the markup `head` below it, then its parts."""
    style = asset("report.css") + asset("charts.css")
    policy = (
        f"default-src 'none'; style-src {digest_of(style)}; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f'<header><h1>{escape(title)}</h1><p class="soft">{head}</p></header>'
        f"{''.join(parts)}</main></body></html>\n"
    )


def asset(name: str) -> str:
    """Return the text of one of the pages' files."""
    return (files("memagent.pages") / "assets" / name).read_text(encoding="utf-8")


def digest_of(content: str) -> str:
    """Return the source expression by which a content policy allows a style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def section(title: str, note: str, body: str) -> str:
    """Return a part of the page under its own heading."""
    words = f'<p class="soft">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{words}{body}</section>"


def fold(title: str, note: str, body: str) -> str:
    """Return a part that stays closed until it is clicked."""
    words = f'<span class="soft">{escape(note)}</span>' if note else ""
    head = f"<summary>{escape(title)}{words}</summary>"
    return f"<section><details>{head}{body}</details></section>"


def figures(charts: Iterable[Chart]) -> str:
    """Return charts side by side."""
    boxes = [chart.__html__() for chart in charts]
    css = "charts three" if len(boxes) == 3 or len(boxes) > 4 else "charts"
    return f'<div class="{css}">{"".join(boxes)}</div>'


def tiles(values: Iterable[tuple[str, str]]) -> str:
    """Return boxes of (markup of a value, words)."""
    boxes = (
        f'<div class="tile"><b>{value}</b><span class="soft">{escape(words)}</span></div>'
        for value, words in values
    )
    return f'<div class="tiles">{"".join(boxes)}</div>'


def table(
    title: str, heads: Iterable[str], labels: Iterable[str], columns: Iterable[Sequence[str]]
) -> str:
    """Return a table with a row for each label; columns are lists of `<td>` elements.

    It stands in a box that scrolls sideways, by keyboard too; `title` names the box.
    """
    words = (escape(name).replace("_", "_<wbr>") for name in heads)
    head = "".join(f'<th scope="col">{name}</th>' for name in words)
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>'
        for label, *cells in zip(labels, *columns, strict=True)
    )
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{escape(title)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def best_of(
    column: Iterable[Figure | None], pick: Callable[[Sequence[float]], float] | None
) -> float | None:
    """Return the value that `pick` (`min` or `max`) finds best, unless most have it."""
    values = [figure[0] for figure in column if figure is not None]
    best = pick(values) if pick is not None and values else None
    return best if best is not None and 2 * values.count(best) <= len(values) else None


def figure_cells(
    column: Sequence[Figure | None], pick: Callable[[Sequence[float]], float] | None = None
) -> list[str]:
    """Return a `<td>` for each figure, the best one marked."""
    best = best_of(column, pick)
    return [_cell(figure, best) for figure in column]


def _cell(figure: Figure | None, best: float | None) -> str:
    if figure is None:
        return '<td class="soft">-</td>'
    mean, low, high = figure
    span = f"<small>{low:.3f} to {high:.3f}</small>" if None not in (low, high) else ""
    mark = ' class="best"' if mean == best else ""
    return f"<td{mark}>{mean:.3f}{span}</td>"


_MOST_CHARS: Final = 90
_FEWEST_WORDS: Final = 4
_SENTENCE: Final = re.compile(r"(?<=[.!?…])\s+")
_SPEAKER: Final = re.compile(r"([^\s:][^:\n]{0,39}): (?=\S)")
# First words of sentences that greet, thank or approve.
_OPENERS: Final = frozenset(
    "absolutely aww bye congrats congratulations glad good great haha hello hey hi hope lol nice "
    "ok okay sorry sure thank thanks that's totally woohoo wow yeah yep yes you're".split()
)


def title_of(text: str) -> str:
    """Return the first sentence that states something, behind its speaker's name.

    A text without such a sentence gives its first line; a line is cut between words.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        speaker = _SPEAKER.match(line)
        said = line[speaker.end() :] if speaker else line
        for sentence in _SENTENCE.split(said):
            if _states(sentence):
                return _cut(f"{speaker[1]}: {sentence}" if speaker else sentence)
    return _cut(lines[0]) if lines else ""


def _states(sentence: str) -> bool:
    words = sentence.split()
    opener = words[0].strip(",.!").casefold() if words else ""
    return (
        len(words) >= _FEWEST_WORDS
        and not sentence.rstrip("\"'”").endswith("?")
        and not (opener in _OPENERS and len(words) <= 2 * _FEWEST_WORDS)
    )


def _cut(line: str) -> str:
    """Cut a line between words; text without spaces is cut anywhere."""
    short = shorten(line, _MOST_CHARS, placeholder=" …")
    if not short.endswith(" …"):
        return short if short != "…" else line[: _MOST_CHARS - 1] + "…"
    return short.removesuffix(" …").rstrip(" ,;:-") + " …"


_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_MONTH_S: Final = 30.4 * _DAY
_STEPS: Final = (
    *(1, 5, 15, 30),
    *(count * _MINUTE for count in (1, 5, 15, 30)),
    *(count * _HOUR for count in (1, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14)),
)
_MONTHS: Final = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1_200)


def moments(first: float, last: float, *, most: int) -> list[float]:
    """Return the starts of at most `most` equal stretches that cover first to last.

    They begin at round moments: at full minutes, at midnight, on the first of a month.
    """
    for step in _STEPS:
        start = first // step * step
        if (last - start) // step + 1 <= most:
            return [start + place * step for place in range(int((last - start) // step) + 1)]
    ends = (datetime.fromtimestamp(moment, UTC) for moment in (first, last))
    begin, end = (at.year * 12 + at.month - 1 for at in ends)
    for months in _MONTHS:
        places = range(begin // months * months, end + 1, months)
        if len(places) <= most:
            dates = (datetime(max(at // 12, 1), at % 12 + 1, 1, tzinfo=UTC) for at in places)
            return [date.timestamp() for date in dates]
    return [first]


def time_axes(first: float, last: float, axes: Axes | None = None) -> Axes:
    """Return axes whose x are moments from first to last, labelled at round moments."""
    places = _labels(first, last)
    step = places[1] - places[0] if len(places) > 1 else max(last - first, 1.0)
    same_day = first // _DAY == last // _DAY
    pattern = _pattern(step, same_day=same_day)
    across = f"{_in_words(first, '%d %b %Y')}, UTC" if same_day else "UTC"
    format_x = partial(_in_words, pattern=pattern)
    return replace(axes or Axes(), across=across, places=places, format_x=format_x)


def _labels(first: float, last: float) -> list[float]:
    """Return at least two round moments from first to last, where there are so many."""
    for most in (5, 8, 12):
        places = [place for place in moments(first, last, most=most) if place >= first]
        if len(places) > 1:
            return places
    return [first]


def _in_words(moment: float, pattern: str) -> str:
    words = f"{datetime.fromtimestamp(moment, UTC):{pattern}}"
    return words.removeprefix("0") if pattern.startswith("%d") else words


def _pattern(step: float, *, same_day: bool) -> str:
    if step >= 12 * _MONTH_S:
        return "%Y"
    if step >= _MONTH_S * 0.9:
        return "%b %Y"
    if step >= _DAY:
        return "%d %b"
    clock = "%H:%M:%S" if step < _MINUTE else "%H:%M"
    return clock if same_day else f"%d %b {clock}"


_WORD = re.compile(r"\s+|\w+\s*|[^\w\s]\s*")
_MOST_WORDS: Final = 1_500
Kind = Literal["same", "del", "ins"]


class Piece(NamedTuple):
    """A stretch of text that stayed, went or came."""

    kind: Kind
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """Return the pieces of both texts in order.

    `same` and `del` together are `before`, `same` and `ins` are `after`.
    """
    old, new = _WORD.findall(before), _WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    pieces = [
        Piece("same", "".join(old[:head])),
        *_between(old[head : len(old) - tail], new[head : len(new) - tail]),
        Piece("same", "".join(old[len(old) - tail :])),
    ]
    groups = groupby((piece for piece in pieces if piece.text), key=attrgetter("kind"))
    return [Piece(kind, "".join(piece.text for piece in group)) for kind, group in groups]


def _common(old: list[str], new: list[str]) -> int:
    """Count the words at the beginning that are equal."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _between(old: list[str], new: list[str]) -> Iterator[Piece]:
    changes = [("replace", 0, len(old), 0, len(new))]
    if max(len(old), len(new)) <= _MOST_WORDS:
        changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for kind, start, end, into, until in changes:
        if kind == "equal":
            yield Piece("same", "".join(old[start:end]))
        else:
            yield Piece("del", "".join(old[start:end]))
            yield Piece("ins", "".join(new[into:until]))
