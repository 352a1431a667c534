"""Records as a person reads them: items, hits, answers, history and figures as tables and lines.

The commands that look into a memory: `ask`, `search`, `list`, `show`, `trials`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from typer import Argument, Option

from memagent.cli.frame import Options, day, emit, line, neutral, one_line, pairs, plain, table
from memagent.cli.stores import (
    FilterOptions,
    ItemId,
    LeastTrust,
    RecipeName,
    TimeOptions,
    Why,
    counts_of,
    find_id,
    opened,
    opened_memory,
    parse_moment,
    reading_memory,
    tell_if_empty,
)

if TYPE_CHECKING:
    from memagent.core.answers import Answer, Citation, Hit
    from memagent.core.records import ItemStats, MemoryItem, Session, SourceRef, TimeSpan, Turn
    from memagent.core.snapshot import Commit, GraphStats, HistoryEntry, JournalRow, SnapshotDiff
    from memagent.core.trials import Trial
    from memagent.experience import Learned


_COLOURS = {"ADD": "green", "UPDATE": "cyan", "DELETE": "red"}


def _span(span: TimeSpan | None) -> str:
    if span is None:
        return ""
    from memagent.timex.resolve import format_span

    return format_span(span)


# -- items and hits --------------------------------------------------------------------


def items_table(items: Sequence[MemoryItem]) -> RenderableType:
    """Show items, one a row."""
    rows = (
        (
            item.id,
            str(item.version),
            day(item.said_at),
            item.speaker or "-",
            _kind(item),
            plain(item.text, "" if item.active else "dim strike"),
        )
        for item in items
    )
    columns = ("id", "v", "said", "speaker", "kind", "text")
    return table(columns, rows, fixed=("id", "v", "said", "kind"), nothing="no memories")


def _kind(item: MemoryItem) -> str:
    return item.kind if item.active else f"{item.kind}, deleted"


def hits_table(hits: Sequence[Hit], *, why: bool = False) -> RenderableType:
    """Show hits, best first; `why` adds the parts of each score and the path to the hit."""
    columns = ("#", "score", "id", "said", "speaker", "text")
    rows = (_hit_cells(rank, hit, why=why) for rank, hit in enumerate(hits, 1))
    return table(columns, rows, fixed=columns[:4], nothing="nothing found")


def _hit_cells(rank: int, hit: Hit, *, why: bool) -> tuple[str | Text, ...]:
    record = hit.item or hit.event
    speaker = hit.item.speaker if hit.item is not None else None
    said = day(record.said_at if record is not None else None)
    reasons = "".join(f"\n{neutral(reason)}" for reason in _reasons(hit)) if why else ""
    text = plain(hit.text).append(reasons, style="dim")
    return str(rank), f"{hit.score:.4f}", hit.id, said, speaker or "-", text


def _reasons(hit: Hit) -> list[str]:
    why = hit.why
    places = {arm: f" (#{rank})" for arm, rank in why.ranks.items()}
    weights = "".join(f" x {name} {factor:.3f}" for name, factor in why.factors.items())
    reasons = (
        *(f"{arm} {score:.3f}{places.get(arm, '')}" for arm, score in why.arms.items()),
        f"beside {why.expanded_from}" if why.expanded_from is not None else "",
        f"via {_path(hit)}" if why.via else "",
        f"fused {why.fused:.4f}{weights}" if why.fused is not None else "",
        f"reranker {why.rerank:.3f}" if why.rerank is not None else "",
        f"stands for {', '.join(why.collapsed)} too" if why.collapsed else "",
        f"trust {hit.trust.value}",
        f"about {why.tokens} tokens" if why.tokens is not None else "",
    )
    return [reason for reason in reasons if reason]


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
    rows = (
        (
            str(item.version),
            day(item.said_at),
            _span(item.valid) or "-",
            item.speaker or "-",
            item.subject or "-",
            item.op_id or "-",
            item.text,
        )
        for item in versions
    )
    columns = ("v", "said", "valid", "speaker", "subject", "op", "text")
    head = line((latest.id, "bold"), f"  {_kind(latest)}, {state}")
    parts: list[RenderableType] = [head, "", table(columns, rows, fixed=("v", "said", "op"))]
    if latest.tags or latest.metadata:
        known = [*latest.tags, *(f"{key}={value}" for key, value in latest.metadata.items())]
        parts += ["", line(("tags and metadata  ", "bold"), ", ".join(known))]
    if stats is not None:
        use = f"value {stats.q_value:.3f}, used {stats.uses} times" + "".join(
            f", {name} {count:g}" for name, count in stats.counters.items()
        )
        parts += ["", line(("use  ", "bold"), use)]
    if turns:
        said = (
            (turn.id, session.id, day(session.date_of(turn)), turn.speaker, turn.said)
            for turn, session in turns
        )
        columns = ("turn", "session", "said", "speaker", "words")
        parts += ["", table(columns, said, fixed=("turn", "said"))]
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
        parts += ["", *citation_lines(answer.citations)]
    parts += [plain(f"note: {note}", "dim") for note in answer.notes]
    if why:
        title = plain(f"shown to the answerer: {len(answer.hits)}", "bold")
        parts += ["", title, hits_table(answer.hits, why=True)]
        paths = [plain(f"{_path(hit)}: {one_line(hit.text)}") for hit in answer.hits if hit.why.via]
        if paths:
            parts += ["", plain("reached in the event graph", "bold"), *paths]
    return Group(*parts)


def citation_lines(citations: Sequence[Citation]) -> list[RenderableType]:
    """Show each quote on lines of its own, with who said it, when, and its ids below.

    Stacked lines keep a quote readable in 80 columns, where a table gives it eight.
    """
    lines: list[RenderableType] = []
    for number, citation in enumerate(citations, 1):
        origin = (citation.speaker, day(citation.said_at), citation.turn_id, citation.hit_id)
        source = ", ".join(one_line(part) for part in origin if part and part != "-")
        quote = Padding(plain(citation.quote), (0, 0, 0, 4), expand=False)
        lines += [line((f"[{number}] ", "bold"), (source, "dim")), quote]
    return lines


# -- history ---------------------------------------------------------------------------


def history_table(entries: Sequence[HistoryEntry]) -> RenderableType:
    """Show every change of one item, oldest first."""
    columns = ("seq", "recorded", "commit", "by", "op", "text")
    return table(columns, map(_history_cells, entries), fixed=("seq", "recorded", "commit", "op"))


def _history_cells(entry: HistoryEntry) -> tuple[str | Text, ...]:
    op = entry.op.op if entry.op is not None else entry.commit_id
    hidden = entry.item is None or not entry.item.active
    text = "(taken out)" if entry.item is None else f"v{entry.item.version} {entry.item.text}"
    return (
        str(entry.seq),
        day(entry.recorded_at),
        entry.commit_id,
        _author(entry.source),
        op if entry.undoes is None else f"undo {entry.undoes}",
        plain(text, "dim strike" if hidden else ""),
    )


def _author(source: SourceRef) -> str:
    place = source.session_id or ""
    if place and source.chunk_index is not None and source.chunk_count is not None:
        place += f" {source.chunk_index + 1}/{source.chunk_count}"
    return f"{source.actor} {place}".strip()


def log_table(rows: Sequence[JournalRow]) -> RenderableType:
    """Show the op log: every journal entry with its effects and the ops it refused."""
    cells = ((str(row.seq), day(row.recorded_at), *_entry_cells(row)) for row in rows)
    columns = ("seq", "recorded", "entry", "by", "what")
    return table(columns, cells, fixed=columns[:3], nothing="no history")


def _entry_cells(row: JournalRow) -> tuple[str, str, str | Text]:
    """Return the name, the author and the effects of a journal entry."""
    entry = row.entry
    match entry.kind:
        case "session":
            session = entry.session
            speakers = ", ".join(session.speakers)
            text = f"{len(session.turns)} turns of {speakers}"
            text += f", {day(session.at)}" if session.at is not None else ""
            return "session", session.id, text
        case "turns":
            speakers = ", ".join(dict.fromkeys(turn.speaker for turn in entry.turns))
            return "turns", entry.session_id, f"{len(entry.turns)} more turns of {speakers}"
        case "commit":
            return entry.id, _author(entry.source), Text("\n").join(_commit_lines(entry))
        case "graph":
            refused = (line(("refused ", "yellow"), reason) for reason in entry.rejected)
            size = plain(f"{len(entry.nodes)} nodes, {len(entry.edges)} edges")
            return "graph", entry.session_id or "", Text("\n").join((size, *refused))
        case "stats":
            return "stats", "", f"statistics of {len(entry.updates)} memories"
        case "trial_started":
            return entry.trial.id, "", f"trial began, {len(entry.trial.shown)} memories shown"
        case "trial_ended":
            outcome = entry.trial.outcome
            reward = outcome.reward if outcome is not None else 0.0
            return entry.trial.id, "", f"reward {reward:g} to {len(entry.stats)} memories"
        case "restored":
            changed = f"{len(entry.changes)} memories changed"
            return "restored", "", f"{changed}, now {entry.digest[:12]}"
        case _:
            return "erased", "", f"everything before was erased ({entry.reason})"


def trials_table(trials: Sequence[Trial]) -> RenderableType:
    """Show trials, one a row."""
    columns = ("id", "begun", "reward", "memories", "task")
    rows = (
        (
            trial.id,
            day(trial.at),
            "open" if trial.outcome is None else f"{trial.outcome.reward:g}",
            str(len(trial.credit or trial.shown)),
            plain(trial.task),
        )
        for trial in trials
    )
    return table(columns, rows, fixed=columns[:4], nothing="no trials")


def trial_view(trial: Trial) -> RenderableType:
    """Show one trial: its task, steps, outcome and the reward of each memory."""
    lines = [plain(trial.task)]
    for step in trial.steps:
        lines += [plain(f"> {step.action}"), plain(f"  {step.observation}")]
    if trial.outcome is not None:
        lines.append(plain(f"reward {trial.outcome.reward:g} {trial.outcome.detail}".rstrip()))
    lines += [plain(f"{use.id} v{use.version}: {use.reward:g}") for use in trial.credit]
    return Group(trials_table([trial]), *lines)


def learned_view(learned: Learned) -> RenderableType:
    """Show what a report counted and what was learned."""
    trial, lesson = learned.trial, learned.lesson
    return Group(trials_table([trial]), *(_commit_lines(lesson) if lesson is not None else ()))


def commit_view(commit: Commit | None, nothing: str = "") -> RenderableType:
    """Show the ops of a commit, one a line, then those it refused; without one say `nothing`."""
    return Group(*_commit_lines(commit)) if commit is not None else plain(nothing)


def _commit_lines(commit: Commit) -> list[Text]:
    from memagent.pages.journal_words import op_text, turns_of

    lines: list[Text] = []
    after = {change.id: change.after for change in commit.changes}
    if commit.undoes is not None:
        lines.append(plain(f"undone: change {commit.undoes}"))
        for item_id, item in after.items():
            text = item.text if item is not None and item.active else "(taken out)"
            lines.append(line(("  now ", "dim"), item_id, ": ", text))
    if commit.cleared is not None:
        lines.append(plain(f"deleted: all {commit.cleared}"))
    deleted = {item_id: item.text for item_id, item in after.items() if item and not item.active}
    for op, item_id in ((applied.op, applied.item_id) for applied in commit.ops):
        text = deleted.get(item_id or "") or op_text(op) or op.reason
        name = (f"{op.op:<6} ", _COLOURS.get(op.op, "dim"))
        turns = f"  [{', '.join(turns_of(op))}]" if turns_of(op) else ""
        lines.append(line(name, item_id or op.id or "-", f"  {text}", (turns, "dim")))
    for refused in commit.rejected:
        op = refused.op
        tried = f"{op.op} {op_text(op) or op.reason}" if op is not None else refused.raw
        reason = f"{refused.reason.value}: {refused.detail or '-'}"
        tail = f"  ({tried})" if tried else ""
        lines.append(line(("refused ", "yellow"), reason, (tail, "dim")))
    return lines or [plain("nothing worth keeping", "dim")]


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


@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """The options of `memagent ask`."""

    k: Annotated[
        int, Option("--k", "-k", min=1, max=1000, metavar="N", help="How many memories to look at.")
    ] = 30
    recipe: RecipeName = None
    at: Annotated[
        str | None, Option(metavar="DATE", help="When it is asked; 'last week' is read from there.")
    ] = None
    time: TimeOptions
    min_trust: LeastTrust = None
    why: Why = False


async def ask(
    options: Options,
    question: Annotated[str, Argument(metavar="QUESTION", help="The question.")],
    choices: AskOptions,
) -> None:
    """Answer a question from memory, with citations."""
    from memagent.core.recipes import recipe_of
    from memagent.memory.incoming import as_question

    at, recipe = choices.at, choices.recipe
    request = as_question(
        question,
        k=choices.k,
        recipe=recipe_of(recipe) if recipe is not None else None,
        as_of=choices.time.as_of(),
        min_trust=choices.min_trust,
    )
    if at is not None:
        request = request.model_copy(update={"asked_at": parse_moment(at, option="--at")})
    with opened(options, vectors=True) as store:
        agent = store.agent(options.scope, model=options.model)
        await tell_if_empty(agent.bank, store)
        answer = await agent.ask(request)
    document = answer.model_dump(mode="json", exclude=None if choices.why else {"hits"})
    emit(options, document, lambda: answer_view(answer, why=choices.why))


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The options of `memagent search`."""

    k: Annotated[int, Option("--k", "-k", min=1, max=1000, metavar="N", help="How many.")] = 10
    only: FilterOptions
    recipe: RecipeName = None
    max_tokens: Annotated[
        int | None, Option(min=1, metavar="N", help="At most this many tokens (estimated) in all.")
    ] = None
    time: TimeOptions
    why: Why = False


async def search(
    options: Options,
    text: Annotated[str, Argument(metavar="TEXT", help="What to look for.")],
    choices: SearchOptions,
) -> None:
    """Find the best memories for a text, best first."""
    as_of = choices.time.as_of()
    async with reading_memory(options, vectors=True) as memory:
        hits = await memory.search(
            text,
            k=choices.k,
            where=choices.only.where(),
            as_of=as_of,
            recipe=choices.recipe,
            max_tokens=choices.max_tokens,
        )
    emit(options, hits, lambda: hits_table(hits, why=choices.why))


async def list_(
    options: Options,
    *,
    deleted: Annotated[bool, Option("--deleted", help="Show deleted memories too.")] = False,
    limit: Annotated[int | None, Option(min=1, metavar="N", help="At most this many.")] = None,
    only: FilterOptions,
) -> None:
    """List what is remembered, oldest first."""
    async with reading_memory(options) as memory:
        items = await memory.get_all(where=only.where(), include_deleted=deleted, limit=limit)
    emit(options, items, lambda: items_table(items))


async def show(options: Options, item_id: ItemId) -> None:
    """Show one memory: all its versions and the turns it rests on."""
    with opened_memory(options) as memory:
        state = await memory.bank.sync()
        item = state.items[find_id(state.items, item_id, user_id=options.user_id)]
        versions, stats = state.versions(item.id), state.stats.get(item.id)
        found = (memory.bank.turn_with_session(turn_id) for turn_id in item.source_turn_ids)
        turns = [pair for pair in found if pair is not None]
    sources = [
        {"session_id": session.id, "said_at": session.date_of(turn), "turn": turn}
        for turn, session in turns
    ]
    document = {"item": item, "versions": versions, "sources": sources, "stats": stats}
    emit(options, document, lambda: item_view(versions, turns, stats))


async def trials(
    options: Options,
    trial_id: Annotated[
        str | None, Argument(metavar="TRIAL", help="A trial; without it, all, newest first.")
    ] = None,
    limit: Annotated[int | None, Option(min=1, metavar="N", help="At most this many.")] = None,
) -> None:
    """List the trials of tasks, or show one with its steps and outcome."""
    from memagent.experience import get_trial, newest_trials

    async with reading_memory(options) as memory:
        if trial_id is None:
            listed = newest_trials(await memory.bank.sync())[:limit]
            emit(options, listed, lambda: trials_table(listed))
        else:
            trial = await get_trial(memory.bank, trial_id)
            emit(options, trial, lambda: trial_view(trial))


async def stats(
    options: Options,
    graph: Annotated[
        bool, Option("--graph", help="Count the nodes and edges of the event graph too.")
    ] = False,
) -> None:
    """Count the memories, and with --graph the nodes and edges of the event graph."""
    async with reading_memory(options) as memory:
        counts = counts_of(await memory.bank.sync())
        figures = await memory.graph_stats() if graph else None
    emit(options, {**counts, "graph": figures}, lambda: stats_view(counts, figures))
