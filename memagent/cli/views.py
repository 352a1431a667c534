"""What a person reads: records as Rich tables and lines.

Stored text is data, never markup: it is shown through `Text`, with control characters,
terminal escapes and bidirectional overrides spelled out, so nothing that was once said
can colour, move or hide what the terminal shows.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from datetime import datetime

    from memagent.core.answers import Answer, Citation, Hit
    from memagent.core.ops import MemoryOp, Rejected
    from memagent.core.records import ItemStats, MemoryItem, Session, SourceRef, TimeSpan, Turn
    from memagent.core.reports import GraphStats
    from memagent.core.snapshot import Commit, HistoryEntry, JournalRow, SnapshotDiff

_PIPE_COLUMNS = 160
_BIDI = frozenset(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def console(*, stderr: bool = False) -> Console:
    """A console on the present standard output or error; wide where nobody's terminal
    sets the width.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def neutral(text: str) -> str:
    """The text with every character that a terminal would act on spelled out; line
    feeds and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(_spelled(char) if _acts(char) else char for char in text.expandtabs(4))


def _acts(char: str) -> bool:
    return char in _BIDI or (char != "\n" and unicodedata.category(char) in ("Cc", "Cs"))


def _spelled(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def one_line(text: str) -> str:
    """The text on one line, with nothing a terminal would act on."""
    return neutral(" ".join(text.split()))


def plain(text: str, style: str = "") -> Text:
    """Text as it is."""
    return Text(neutral(text), style=style)


def line(*parts: str | tuple[str, str]) -> Text:
    """One line of parts, each a string or (string, style)."""
    return Text.assemble(
        *(
            (neutral(part), "") if isinstance(part, str) else (neutral(part[0]), part[1])
            for part in parts
        )
    )


def table(*columns: str, fixed: Sequence[str] = ()) -> Table:
    """An empty table without lines; columns in `fixed` are never wrapped."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, no_wrap=column in fixed, overflow="fold")
    return made


def day(moment: datetime | None) -> str:
    """A moment to the minute; a bare date at midnight."""
    if moment is None:
        return "-"
    return (
        f"{moment:%Y-%m-%d}"
        if (moment.hour, moment.minute) == (0, 0)
        else f"{moment:%Y-%m-%d %H:%M}"
    )


def when(span: TimeSpan | None) -> str:
    """A span in words."""
    if span is None:
        return ""
    from memagent.timex.resolve import format_span

    return format_span(span)


# -- items and hits --------------------------------------------------------------------


def items_table(items: Sequence[MemoryItem]) -> RenderableType:
    """Items, one a row."""
    if not items:
        return plain("no memories")
    rows = table("id", "v", "said", "speaker", "kind", "text", fixed=("id", "v", "said", "kind"))
    for item in items:
        style = "" if item.active else "dim strike"
        rows.add_row(
            plain(item.id),
            str(item.version),
            day(item.said_at),
            plain(item.speaker or "-"),
            plain(_kind(item)),
            plain(item.text, style),
        )
    return rows


def _kind(item: MemoryItem) -> str:
    return item.kind if item.active else f"{item.kind}, deleted"


def hits_table(hits: Sequence[Hit], *, why: bool = False) -> RenderableType:
    """Hits, best first; with `why` everything that their scores are made of and what led to them."""
    if not hits:
        return plain("nothing found")
    rows = table("#", "score", "id", "said", "speaker", "text", fixed=("#", "score", "id", "said"))
    for rank, hit in enumerate(hits, 1):
        one = hit.item or hit.event
        text = plain(hit.text)
        if why:
            text.append("".join(f"\n{neutral(reason)}" for reason in _reasons(hit)), style="dim")
        rows.add_row(
            str(rank),
            f"{hit.score:.4f}",
            plain(hit.id),
            day(one.said_at if one is not None else None),
            plain((hit.item.speaker if hit.item is not None else None) or "-"),
            text,
        )
    return rows


def _reasons(hit: Hit) -> list[str]:
    places = {arm: f" (#{rank})" for arm, rank in hit.why.ranks.items()}
    why = hit.why
    reasons = [f"{arm} {score:.3f}{places.get(arm, '')}" for arm, score in why.arms.items()]
    if why.expanded_from is not None:
        reasons.append(f"beside {why.expanded_from}")
    if why.via:
        reasons.append(f"via {_path(hit)}")
    if why.fused is not None:
        weights = "".join(f" x {name} {factor:.3f}" for name, factor in why.factors.items())
        reasons.append(f"fused {why.fused:.4f}{weights}")
    if why.rerank is not None:
        reasons.append(f"reranker {why.rerank:.3f}")
    if why.collapsed:
        reasons.append(f"stands for {', '.join(why.collapsed)} too")
    if why.tokens is not None:
        reasons.append(f"about {why.tokens} tokens")
    return reasons


def _path(hit: Hit) -> str:
    """The edges by which a walk reached a hit, seed first."""
    steps = (
        f"{node} {f'-{edge}->' if forward else f'<-{edge}-'}" for node, edge, forward in hit.why.via
    )
    return " ".join((*steps, hit.id))


def item_view(
    versions: Sequence[MemoryItem], turns: Sequence[tuple[Turn, Session]], stats: ItemStats | None
) -> RenderableType:
    """One item: every version, newest last, and the turns it rests on."""
    latest = versions[-1]
    head = line(
        (latest.id, "bold"),
        f"  {_kind(latest)}, version {latest.version}, {latest.status.value}, trust {latest.trust.value}",
    )
    rows = table(
        "v", "said", "valid", "speaker", "subject", "op", "text", fixed=("v", "said", "op")
    )
    for item in versions:
        rows.add_row(
            str(item.version),
            day(item.said_at),
            plain(when(item.valid) or "-"),
            plain(item.speaker or "-"),
            plain(item.subject or "-"),
            plain(item.op_id or "-"),
            plain(item.text),
        )
    parts: list[RenderableType] = [head, plain(""), rows]
    if latest.tags or latest.metadata:
        known = [*latest.tags, *(f"{key}={value}" for key, value in latest.metadata.items())]
        parts += [plain(""), line(("tags and metadata  ", "bold"), ", ".join(known))]
    if stats is not None:
        parts += [
            plain(""),
            line(("use  ", "bold"), f"value {stats.q_value:.3f}, used {stats.uses} times"),
        ]
    if turns:
        said = table("turn", "session", "said", "speaker", "words", fixed=("turn", "said"))
        for turn, session in turns:
            said.add_row(
                plain(turn.id),
                plain(session.id),
                day(session.date_of(turn)),
                plain(turn.speaker),
                plain(turn.said),
            )
        parts += [plain(""), said]
    return Group(*parts)


# -- answers ---------------------------------------------------------------------------


def answer_view(answer: Answer, *, why: bool = False) -> RenderableType:
    """An answer with its verdict, its citations and notes; with `why` everything the
    answerer was shown.
    """
    colour = {"supported": "green", "unsupported": "yellow"}.get(answer.verdict.value, "red")
    parts: list[RenderableType] = [
        plain(answer.text or "(no answer)", "bold"),
        line("verdict: ", (answer.verdict.value, colour)),
    ]
    if answer.when is not None:
        parts.append(plain(f"when: {when(answer.when)}"))
    if answer.citations:
        parts += [plain(""), citations_table(answer.citations)]
    parts += [plain(f"note: {note}", "dim") for note in answer.notes]
    if why:
        parts += [
            plain(""),
            plain(f"shown to the answerer: {len(answer.hits)}", "bold"),
            hits_table(answer.hits, why=True),
        ]
        paths = [plain(f"{_path(hit)}: {one_line(hit.text)}") for hit in answer.hits if hit.why.via]
        if paths:
            parts += [plain(""), plain("reached in the event graph", "bold"), *paths]
    return Group(*parts)


def citations_table(citations: Sequence[Citation]) -> RenderableType:
    """The evidence, one turn a row."""
    rows = table("turn", "said", "speaker", "memory", "quote", fixed=("turn", "said", "memory"))
    for one in citations:
        rows.add_row(
            plain(one.turn_id or "-"),
            day(one.said_at),
            plain(one.speaker or "-"),
            plain(one.hit_id),
            plain(one.quote),
        )
    return rows


# -- history ---------------------------------------------------------------------------


def history_table(entries: Sequence[HistoryEntry]) -> RenderableType:
    """Every change of one item, oldest first."""
    rows = table(
        "seq", "recorded", "commit", "by", "op", "text", fixed=("seq", "recorded", "commit", "op")
    )
    for entry in entries:
        done = entry.op.op if entry.op is not None else entry.commit_id
        gone = entry.item is None or not entry.item.active
        text = "(taken out)" if entry.item is None else f"v{entry.item.version} {entry.item.text}"
        rows.add_row(
            str(entry.seq),
            day(entry.recorded_at),
            plain(entry.commit_id),
            plain(_by(entry.source)),
            plain(done if entry.undoes is None else f"undo {entry.undoes}"),
            plain(text, "dim strike" if gone else ""),
        )
    return rows


def _by(source: SourceRef) -> str:
    place = source.session_id or ""
    if place and source.chunk_index is not None and source.chunk_count is not None:
        place += f" {source.chunk_index + 1}/{source.chunk_count}"
    return f"{source.actor} {place}".strip()


def log_table(rows: Sequence[JournalRow]) -> RenderableType:
    """The op log: every journal entry with what it did and what was refused."""
    if not rows:
        return plain("no history")
    shown = table("seq", "recorded", "entry", "by", "what", fixed=("seq", "recorded", "entry"))
    for row in rows:
        entry, by, what = _entry(row)
        shown.add_row(
            str(row.seq), day(row.recorded_at), plain(entry), plain(by), Text("\n").join(what)
        )
    return shown


def _entry(row: JournalRow) -> tuple[str, str, list[Text]]:
    entry = row.entry
    match entry.kind:
        case "session":
            session = entry.session
            return (
                "session",
                session.id,
                [
                    plain(
                        f"{len(session.turns)} turns of {', '.join(session.speakers)}, {day(session.at)}"
                    )
                ],
            )
        case "commit":
            return entry.id, _by(entry.source), commit_lines(entry)
        case "graph":
            what = [plain(f"{len(entry.nodes)} nodes, {len(entry.edges)} edges")]
            return (
                "graph",
                entry.session_id or "",
                [*what, *(line(("refused ", "yellow"), why) for why in entry.rejected)],
            )
        case "stats":
            return "stats", "", [plain(f"statistics of {len(entry.updates)} memories")]
        case "restored":
            return (
                "restored",
                "",
                [plain(f"{len(entry.changes)} memories changed, now {entry.digest[:12]}")],
            )
        case _:
            return "erased", "", [plain(f"everything before was erased ({entry.reason})")]


def commit_lines(commit: Commit) -> list[Text]:
    """What a commit did, one op a line, then what was refused."""
    lines: list[Text] = []
    if commit.undoes is not None:
        lines.append(plain(f"takes back {commit.undoes}"))
        for change in commit.changes:
            present = change.after is not None and change.after.active
            lines.append(
                line(
                    ("  now ", "dim"),
                    change.id,
                    ": ",
                    change.after.text if change.after and present else "(taken out)",
                )
            )
    deleted = {
        change.id: change.after.text
        for change in commit.changes
        if change.after and not change.after.active
    }
    lines += [_op_line(applied.op, applied.item_id, deleted) for applied in commit.ops]
    lines += [_rejected_line(one) for one in commit.rejected]
    return lines or [plain("nothing worth keeping", "dim")]


def _op_line(op: MemoryOp, item_id: str | None, deleted: Mapping[str, str]) -> Text:
    from memagent.pages.journal_words import op_text, turns_of

    said = f"  [{', '.join(turns)}]" if (turns := turns_of(op)) else ""
    colour = {"ADD": "green", "UPDATE": "cyan", "DELETE": "red"}.get(op.op, "dim")
    return line(
        (f"{op.op:<6} ", colour),
        item_id or op.id or "-",
        f"  {deleted.get(item_id or '') or op_text(op) or op.reason}",
        (said, "dim"),
    )


def _rejected_line(one: Rejected) -> Text:
    from memagent.pages.journal_words import op_text

    tried = f"{one.op.op} {op_text(one.op) or one.op.reason}" if one.op is not None else one.raw
    return line(
        ("refused ", "yellow"),
        f"{one.reason.value}: {one.detail or '-'}",
        (f"  ({tried})" if tried else "", "dim"),
    )


def diff_view(diff: SnapshotDiff, *, title: str) -> RenderableType:
    """Added, removed and changed items, and how many edges of the event graph differ."""
    lines = [plain(title, "bold")]
    lines += [line(("+ ", "green"), f"{item.id}  {item.text}") for item in diff.added]
    lines += [line(("- ", "red"), f"{item.id}  {item.text}") for item in diff.removed]
    for before, after in diff.changed:
        lines.append(line(("~ ", "cyan"), f"{after.id}  v{before.version} {before.text}"))
        lines.append(line(("  ", ""), f"{' ' * len(after.id)}  v{after.version} {after.text}"))
    if diff.edges_added or diff.edges_removed:
        lines.append(
            plain(
                f"event graph: {len(diff.edges_added)} edges more, {len(diff.edges_removed)} fewer",
                "dim",
            )
        )
    if diff.empty:
        lines.append(plain("no difference"))
    return Group(*lines)


# -- key and value ---------------------------------------------------------------------


def pairs(values: Mapping[str, object], *, title: str = "") -> RenderableType:
    """Names and values, one a line."""
    rows = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    rows.add_column(no_wrap=True, style="dim")
    rows.add_column(overflow="fold")
    for name, value in values.items():
        rows.add_row(name, plain(str(value)))
    return Group(plain(title, "bold"), rows) if title else rows


def stats_view(counts: Mapping[str, int], graph: GraphStats | None) -> RenderableType:
    """Counts, and the figures of the event graph under headings of their own."""
    if graph is None:
        return pairs(counts)
    told = list(graph.events_per_session.values())
    few, most = (min(told), max(told)) if told else (0, 0)
    alone = sum(size == 1 for size in graph.components)
    parts = ", ".join(str(size) for size in graph.components[:10]) + (
        ", ..." if len(graph.components) > 10 else ""
    )
    shape = {
        "events": f"{graph.events}, of these {graph.merged_events} told more than once",
        "events a session": f"{sum(told) / len(told):.1f} ({few} to {most}), in {len(told)} of {graph.sessions} sessions"
        if told
        else "none",
        "components": f"{len(graph.components)}, {alone} of them single events; sizes {parts}"
        if graph.events
        else "none",
        "closed nodes": graph.closed_nodes,
    }
    sections = [pairs(counts), pairs(shape, title="\nevent graph")]
    named = (
        ("nodes by kind", graph.nodes),
        ("edges by relation", graph.edges),
        ("edges between events", graph.event_edges),
    )
    sections += [pairs(values, title=f"\n{title}") for title, values in named if values]
    return Group(*sections)


def stack(parts: Iterable[RenderableType]) -> RenderableType:
    """One below the other."""
    return Group(*parts)


def deleted(items: Sequence[MemoryItem]) -> RenderableType:
    """What was deleted."""
    return (
        Group(*(line(("deleted ", "red"), f"{item.id}  {item.text}") for item in items))
        if items
        else plain("nothing to delete")
    )
