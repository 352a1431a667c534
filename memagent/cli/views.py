"""Records as a person reads them: items, hits, answers, history and figures as tables and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from memagent.cli.terminal import day, line, neutral, one_line, pairs, plain, table

if TYPE_CHECKING:
    from memagent.core.answers import Answer, Citation, Hit
    from memagent.core.ops import MemoryOp, Rejected
    from memagent.core.records import ItemStats, MemoryItem, Session, SourceRef, TimeSpan, Turn
    from memagent.core.reports import GraphStats
    from memagent.core.snapshot import Commit, HistoryEntry, JournalRow, SnapshotDiff


def _span(span: TimeSpan | None) -> str:
    if span is None:
        return ""
    from memagent.timex.resolve import format_span

    return format_span(span)


# -- items and hits --------------------------------------------------------------------


def items_table(items: Sequence[MemoryItem]) -> RenderableType:
    """Show items, one a row."""
    if not items:
        return plain("no memories")
    rows = table("id", "v", "said", "speaker", "kind", "text", fixed=("id", "v", "said", "kind"))
    for item in items:
        rows.add_row(
            plain(item.id),
            str(item.version),
            day(item.said_at),
            plain(item.speaker or "-"),
            plain(_kind(item)),
            plain(item.text, "" if item.active else "dim strike"),
        )
    return rows


def _kind(item: MemoryItem) -> str:
    return item.kind if item.active else f"{item.kind}, deleted"


def hits_table(hits: Sequence[Hit], *, why: bool = False) -> RenderableType:
    """Show hits, best first; `why` adds the parts of each score and the path to the hit."""
    if not hits:
        return plain("nothing found")
    rows = table("#", "score", "id", "said", "speaker", "text", fixed=("#", "score", "id", "said"))
    for rank, hit in enumerate(hits, 1):
        record = hit.item or hit.event
        text = plain(hit.text)
        if why:
            text.append("".join(f"\n{neutral(reason)}" for reason in _reasons(hit)), style="dim")
        rows.add_row(
            str(rank),
            f"{hit.score:.4f}",
            plain(hit.id),
            day(record.said_at if record is not None else None),
            plain((hit.item.speaker if hit.item is not None else None) or "-"),
            text,
        )
    return rows


def _reasons(hit: Hit) -> list[str]:
    why = hit.why
    places = {arm: f" (#{rank})" for arm, rank in why.ranks.items()}
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
    """Spell the edges by which a walk reached a hit, seed first."""
    steps = (
        f"{node} {f'-{edge}->' if forward else f'<-{edge}-'}" for node, edge, forward in hit.why.via
    )
    return " ".join((*steps, hit.id))


def item_view(
    versions: Sequence[MemoryItem], turns: Sequence[tuple[Turn, Session]], stats: ItemStats | None
) -> RenderableType:
    """Show every version of one item, newest last, and the turns it rests on."""
    latest = versions[-1]
    state = f"version {latest.version}, {latest.status.value}, trust {latest.trust.value}"
    rows = table(
        "v", "said", "valid", "speaker", "subject", "op", "text", fixed=("v", "said", "op")
    )
    for item in versions:
        rows.add_row(
            str(item.version),
            day(item.said_at),
            plain(_span(item.valid) or "-"),
            plain(item.speaker or "-"),
            plain(item.subject or "-"),
            plain(item.op_id or "-"),
            plain(item.text),
        )
    head = line((latest.id, "bold"), f"  {_kind(latest)}, {state}")
    parts: list[RenderableType] = [head, plain(""), rows]
    if latest.tags or latest.metadata:
        known = [*latest.tags, *(f"{key}={value}" for key, value in latest.metadata.items())]
        parts += [plain(""), line(("tags and metadata  ", "bold"), ", ".join(known))]
    if stats is not None:
        use = f"value {stats.q_value:.3f}, used {stats.uses} times"
        parts += [plain(""), line(("use  ", "bold"), use)]
    if turns:
        said = table("turn", "session", "said", "speaker", "words", fixed=("turn", "said"))
        for turn, session in turns:
            words = (plain(turn.speaker), plain(turn.said))
            said.add_row(plain(turn.id), plain(session.id), day(session.date_of(turn)), *words)
        parts += [plain(""), said]
    return Group(*parts)


# -- answers ---------------------------------------------------------------------------


def answer_view(answer: Answer, *, why: bool = False) -> RenderableType:
    """Show an answer with its verdict, citations and notes.

    `why` adds everything that the answerer saw.
    """
    colour = {"supported": "green", "unsupported": "yellow"}.get(answer.verdict.value, "red")
    parts: list[RenderableType] = [
        plain(answer.text or "(no answer)", "bold"),
        line("verdict: ", (answer.verdict.value, colour)),
    ]
    if answer.when is not None:
        parts.append(plain(f"when: {_span(answer.when)}"))
    if answer.citations:
        parts += [plain(""), _citations_table(answer.citations)]
    parts += [plain(f"note: {note}", "dim") for note in answer.notes]
    if why:
        title = plain(f"shown to the answerer: {len(answer.hits)}", "bold")
        parts += [plain(""), title, hits_table(answer.hits, why=True)]
        paths = [plain(f"{_path(hit)}: {one_line(hit.text)}") for hit in answer.hits if hit.why.via]
        if paths:
            parts += [plain(""), plain("reached in the event graph", "bold"), *paths]
    return Group(*parts)


def _citations_table(citations: Sequence[Citation]) -> RenderableType:
    rows = table("turn", "said", "speaker", "memory", "quote", fixed=("turn", "said", "memory"))
    for citation in citations:
        rows.add_row(
            plain(citation.turn_id or "-"),
            day(citation.said_at),
            plain(citation.speaker or "-"),
            plain(citation.hit_id),
            plain(citation.quote),
        )
    return rows


# -- history ---------------------------------------------------------------------------


def history_table(entries: Sequence[HistoryEntry]) -> RenderableType:
    """Show every change of one item, oldest first."""
    rows = table(
        "seq", "recorded", "commit", "by", "op", "text", fixed=("seq", "recorded", "commit", "op")
    )
    for entry in entries:
        op = entry.op.op if entry.op is not None else entry.commit_id
        hidden = entry.item is None or not entry.item.active
        text = "(taken out)" if entry.item is None else f"v{entry.item.version} {entry.item.text}"
        rows.add_row(
            str(entry.seq),
            day(entry.recorded_at),
            plain(entry.commit_id),
            plain(_author(entry.source)),
            plain(op if entry.undoes is None else f"undo {entry.undoes}"),
            plain(text, "dim strike" if hidden else ""),
        )
    return rows


def _author(source: SourceRef) -> str:
    place = source.session_id or ""
    if place and source.chunk_index is not None and source.chunk_count is not None:
        place += f" {source.chunk_index + 1}/{source.chunk_count}"
    return f"{source.actor} {place}".strip()


def log_table(rows: Sequence[JournalRow]) -> RenderableType:
    """Show the op log: every journal entry with its effects and the ops it refused."""
    if not rows:
        return plain("no history")
    log = table("seq", "recorded", "entry", "by", "what", fixed=("seq", "recorded", "entry"))
    for row in rows:
        entry, author, effects = _log_cells(row)
        cells = (plain(entry), plain(author), Text("\n").join(effects))
        log.add_row(str(row.seq), day(row.recorded_at), *cells)
    return log


def _log_cells(row: JournalRow) -> tuple[str, str, list[Text]]:
    """Return the name, the author and the effects of a journal entry."""
    entry = row.entry
    match entry.kind:
        case "session":
            session = entry.session
            speakers = ", ".join(session.speakers)
            text = f"{len(session.turns)} turns of {speakers}, {day(session.at)}"
            return "session", session.id, [plain(text)]
        case "commit":
            return entry.id, _author(entry.source), _commit_lines(entry)
        case "graph":
            refused = (line(("refused ", "yellow"), reason) for reason in entry.rejected)
            size = plain(f"{len(entry.nodes)} nodes, {len(entry.edges)} edges")
            return "graph", entry.session_id or "", [size, *refused]
        case "stats":
            return "stats", "", [plain(f"statistics of {len(entry.updates)} memories")]
        case "restored":
            text = f"{len(entry.changes)} memories changed, now {entry.digest[:12]}"
            return "restored", "", [plain(text)]
        case _:
            return "erased", "", [plain(f"everything before was erased ({entry.reason})")]


def commit_view(commit: Commit) -> RenderableType:
    """Show the ops of a commit, one a line, then those it refused."""
    return Group(*_commit_lines(commit))


def _commit_lines(commit: Commit) -> list[Text]:
    lines: list[Text] = []
    after = {change.id: change.after for change in commit.changes}
    if commit.undoes is not None:
        lines.append(plain(f"takes back {commit.undoes}"))
        for item_id, item in after.items():
            text = item.text if item is not None and item.active else "(taken out)"
            lines.append(line(("  now ", "dim"), item_id, ": ", text))
    deleted = {item_id: item.text for item_id, item in after.items() if item and not item.active}
    lines += [_op_line(applied.op, applied.item_id, deleted) for applied in commit.ops]
    lines += [_rejected_line(rejected) for rejected in commit.rejected]
    return lines or [plain("nothing worth keeping", "dim")]


def _op_line(op: MemoryOp, item_id: str | None, deleted: Mapping[str, str]) -> Text:
    turns = _op_turns(op)
    colour = {"ADD": "green", "UPDATE": "cyan", "DELETE": "red"}.get(op.op, "dim")
    return line(
        (f"{op.op:<6} ", colour),
        item_id or op.id or "-",
        f"  {deleted.get(item_id or '') or _op_text(op)}",
        (f"  [{', '.join(turns)}]" if turns else "", "dim"),
    )


def _op_turns(op: MemoryOp) -> tuple[str, ...]:
    if op.op == "UPDATE" or op.op == "DELETE":
        return op.source_turn_ids
    return op.fact.source_turn_ids if op.fact is not None else ()


def _op_text(op: MemoryOp) -> str:
    if op.op == "UPDATE":
        return op.text
    if op.op == "DELETE":
        return op.reason
    return op.fact.text if op.fact is not None else op.reason


def _rejected_line(rejected: Rejected) -> Text:
    op = rejected.op
    tried = f"{op.op} {_op_text(op)}" if op is not None else rejected.raw
    reason = f"{rejected.reason.value}: {rejected.detail or '-'}"
    return line(("refused ", "yellow"), reason, (f"  ({tried})" if tried else "", "dim"))


def diff_view(diff: SnapshotDiff, *, title: str) -> RenderableType:
    """Show added, removed and changed items and the number of edges that differ."""
    lines = [plain(title, "bold")]
    lines += [line(("+ ", "green"), f"{item.id}  {item.text}") for item in diff.added]
    lines += [line(("- ", "red"), f"{item.id}  {item.text}") for item in diff.removed]
    for before, after in diff.changed:
        lines.append(line(("~ ", "cyan"), f"{after.id}  v{before.version} {before.text}"))
        lines.append(line(f"  {' ' * len(after.id)}  v{after.version} {after.text}"))
    if diff.edges_added or diff.edges_removed:
        more, fewer = len(diff.edges_added), len(diff.edges_removed)
        lines.append(plain(f"event graph: {more} edges more, {fewer} fewer", "dim"))
    return Group(*lines, *([plain("no difference")] if diff.empty else []))


def deleted_view(items: Sequence[MemoryItem]) -> RenderableType:
    """Show the items that a command deleted."""
    lines = [line(("deleted ", "red"), f"{item.id}  {item.text}") for item in items]
    return Group(*(lines or [plain("nothing to delete")]))


# -- figures ---------------------------------------------------------------------------


def stats_view(counts: Mapping[str, int], graph: GraphStats | None) -> RenderableType:
    """Show counts, and the figures of the event graph under headings of their own."""
    if graph is None:
        return pairs(counts)
    sections = (
        ("event graph", _graph_shape(graph)),
        ("nodes by kind", graph.nodes),
        ("edges by relation", graph.edges),
        ("edges between events", graph.event_edges),
    )
    figures = (pairs(values, title=f"\n{title}") for title, values in sections if values)
    return Group(pairs(counts), *figures)


def _graph_shape(graph: GraphStats) -> dict[str, object]:
    per_session = list(graph.events_per_session.values())
    events = components = "none"
    if per_session:
        mean = f"{sum(per_session) / len(per_session):.1f}"
        spread = f"({min(per_session)} to {max(per_session)})"
        events = f"{mean} {spread}, in {len(per_session)} of {graph.sessions} sessions"
    if graph.events:
        alone = sum(size == 1 for size in graph.components)
        sizes = ", ".join(str(size) for size in graph.components[:10])
        more = ", ..." if len(graph.components) > 10 else ""
        components = f"{len(graph.components)}, {alone} of them single events; sizes {sizes}{more}"
    return {
        "events": f"{graph.events}, of these {graph.merged_events} told more than once",
        "events a session": events,
        "components": components,
        "closed nodes": graph.closed_nodes,
    }
