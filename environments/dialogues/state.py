"""Whether a memory knows what holds now: dialogues played, facts and questions counted.

Each dialogue is remembered session by session, then asked. A labelled statement that a
later one replaces or ends is *found* when memory no longer holds it for present; any
other must stay. What a memory holds is read off its items: the turns that the present
version of an item rests on newly, and values that it still names. A question is *right*
when the answer holds the labelled words or cites their turn first, *stale* when it is
`supported` by a statement that ended. The surprise: statements beside a changed one that
only elaborate on it count for neither side, as the labels leave their state open.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Final

import typer

from environments.datasets.locomo import LoCoMo
from environments.dialogues.records import Dialogue, DialogueQuestion, read_dialogues
from environments.errors import EnvironmentFault
from environments.evaluation.benchmark_command import words
from environments.options import command
from memagent import Answer, AsyncAgent
from memagent.core.answers import Verdict
from memagent.core.ops import Delete, Update
from memagent.core.records import MemoryItem, Session, Turn
from memagent.state.fold import BankState

DATA: Final = Path(__file__).parent / "data"
LEAST: Final = 60
"""Dialogues below which the figures mean little."""
_ENDING: Final = frozenset({"replaces", "ends", "corrects"})


@dataclass(frozen=True)
class Fates:
    """The fate of the statements of one dialogue, by turn."""

    ended: frozenset[str]
    """Turns whose statement a later one replaces or ends, by the labels."""
    kept: frozenset[str]
    """Turns whose statement must stay."""
    gone: frozenset[str]
    """Turns of both kinds that memory does not hold for present."""
    never: frozenset[str]
    """Of them, those that memory never held."""


@dataclass
class Figures:
    """Counts over dialogues; shares are taken when they are printed."""

    counts: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    """Wrong changes and stale answers, in words."""

    def share(self, name: str, of: str) -> str:
        """Return a share as text, with its counts."""
        total = self.counts[of]
        return f"{self.counts[name] / total:.3f} ({self.counts[name]}/{total})" if total else "-"


def held_out(folder: Path = DATA, *, odd: bool = False) -> list[Dialogue]:
    """Return the dialogues of all batches with an even number, or of those with an odd one.

    Nothing is fitted to the even ones.
    """
    paths = sorted(path for path in folder.rglob("*.txt") if path.parent.name != "chat")
    chosen = [path for path in paths if int(path.stem.rpartition("-")[2]) % 2 == odd]
    return [dialogue for path in chosen for dialogue in read_dialogues(path)]


def sample(dialogues: Sequence[Dialogue], count: int | None) -> list[Dialogue]:
    """Return so many dialogues, spread evenly over all batches; all of them for None."""
    if count is None or count >= len(dialogues):
        return list(dialogues)
    return [dialogues[at * len(dialogues) // count] for at in range(count)]


def sessions_of(dialogue: Dialogue) -> Iterator[Session]:
    """Return the sessions of a dialogue, each at noon of its day."""
    for number, turns in groupby(dialogue.turns, key=lambda turn: turn.session):
        own = list(turns)
        at = datetime.combine(own[0].day, time(12), UTC) + timedelta(minutes=10 * number)
        said = tuple(Turn(id=turn.id, speaker=turn.speaker, text=turn.text) for turn in own)
        yield Session(id=f"S{number}", at=at, turns=said)


def labels_of(dialogue: Dialogue) -> tuple[frozenset[str], frozenset[str]]:
    """Return the turns that a later one ends, and those whose statement must stay."""
    relations = [(turn.id, own) for turn in dialogue.turns for own in turn.relations]
    ended = {own.to for _, own in relations if own.kind in _ENDING}
    open_ = {
        turn
        for turn_id, own in relations
        if own.kind == "same"
        for turn, other in ((turn_id, own.to), (own.to, turn_id))
        if other in ended
    }
    stated = {turn.id for turn in dialogue.turns if turn.statement is not None}
    return frozenset(ended), frozenset(stated - ended - open_)


def fates_of(dialogue: Dialogue, state: BankState) -> Fates:
    """Return what a memory holds of the statements of a dialogue."""
    ended, kept = labels_of(dialogue)
    values = {
        turn.id: turn.statement.value.casefold()
        for turn in dialogue.turns
        if turn.statement is not None and turn.statement.value
    }
    said = {turn.id: turn.text for turn in dialogue.turns}
    repeated = {
        own.to if own.to not in ended else turn.id
        for turn in dialogue.turns
        for own in turn.relations
        if own.kind == "same"
    }
    present: set[str] = set()
    ever: set[str] = set()
    for item in state.items.values():
        ever.update(item.source_turn_ids)
        if item.active:
            words = {own for own in item.source_turn_ids if said.get(own, "\0") in item.text}
            text = item.text.casefold()
            named = {own for own in item.source_turn_ids if values.get(own, "\0") in text}
            rests = _new_turns(state, item) if item.kind != "passage" else set[str]()
            present |= words or named | rests
    gone = (ended | kept) - present
    never = gone - ever
    return Fates(ended, kept - (never & repeated), gone, never)


def _new_turns(state: BankState, item: MemoryItem) -> set[str]:
    """Return the turns that the last version of an item rests on and the one before did not."""
    versions = state.versions(item.id)
    before = versions[-2].source_turn_ids if len(versions) > 1 else ()
    return set(item.source_turn_ids) - set(before) or set(item.source_turn_ids)


def judged(question: DialogueQuestion, answer: Answer, ended: frozenset[str]) -> str:
    """Return how an answer did: right, stale, abstained, refused, claimed or wrong."""
    answered = answer.verdict in (Verdict.SUPPORTED, Verdict.QUOTED)
    if not question.turn_ids:
        return "claimed" if answer.verdict is Verdict.SUPPORTED else "refused"
    if not answered:
        return "abstained"
    first = answer.citations[0].turn_id if answer.citations else None
    gold = set(question.turn_ids)
    if first in ended - gold and answer.verdict is Verdict.SUPPORTED:
        return "stale"
    text = answer.text.casefold()
    words = all(span.casefold() in text for span in question.answers)
    return "right" if first in gold or words else "wrong"


async def play(
    dialogues: Iterable[Dialogue], *, design: str, model: str | None
) -> Mapping[str, Figures]:
    """Return figures for all dialogues ("all"), by language and by kind of batch."""
    figures: defaultdict[str, Figures] = defaultdict(Figures)
    for dialogue in dialogues:
        kind = dialogue.batch.rpartition("-")[0].removesuffix("-b")
        counted = await _played(dialogue, design=design, model=model)
        for name in ("all", f"language {dialogue.language}", f"kind {kind}"):
            figures[name].counts.update(counted.counts)
            figures[name].faults.extend(counted.faults)
    return figures


async def _played(dialogue: Dialogue, *, design: str, model: str | None) -> Figures:
    figures = Figures()
    counts = figures.counts
    after = datetime.combine(dialogue.turns[-1].day, time(18), UTC) + timedelta(days=3)
    async with AsyncAgent(
        path=":memory:", design=design, model=model, clock=lambda: after
    ) as agent:
        for session in sessions_of(dialogue):
            await agent.remember(session)
        state = agent.bank.state
        told = fates_of(dialogue, state)
        lost = (told.kept & told.gone) - told.never
        counts["turns"] += len(dialogue.turns)
        counts["ended"] += len(told.ended)
        counts["found"] += len((told.ended & told.gone) - told.never)
        counts["kept"] += len(told.kept)
        counts["lost"] += len(lost)
        counts["never held"] += len(told.never & told.kept)
        said = {turn.id: f"{turn.speaker}: {turn.text}" for turn in dialogue.turns}
        figures.faults += [f"{dialogue.id} lost {own}: {said[own]}" for own in sorted(lost)]
        for question in dialogue.questions:
            answer = await agent.ask(question.text)
            outcome = judged(question, answer, told.ended)
            before = bool(question.turn_ids) and told.ended.issuperset(question.turn_ids)
            period = "then" if before else "now"
            if question.turn_ids:
                counts["answerable"] += 1
                counts[f"asked {period}"] += 1
                counts[f"{outcome} {period}"] += 1
            else:
                counts["unanswerable"] += 1
            counts[outcome] += 1
            if outcome in ("stale", "claimed"):
                figures.faults.append(f"{dialogue.id} {outcome}: {question.text} {answer.text!r}")
    return figures


COLUMNS: Final = (
    ("updates found", "found", "ended"),
    ("facts lost", "lost", "kept"),
    ("never held", "never held", "kept"),
    ("right", "right", "answerable"),
    ("stale", "stale", "answerable"),
    ("abstained", "abstained", "answerable"),
    ("right now", "right now", "asked now"),
    ("right then", "right then", "asked then"),
    ("claimed", "claimed", "unanswerable"),
)
"""Heading, what is counted, and of what."""


def table(figures: Mapping[str, Figures]) -> str:
    """Return the figures as a table in Markdown; few cases are left out but for "all"."""
    heads = ("dialogues", *(head for head, _, _ in COLUMNS))
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for name, own in sorted(figures.items(), key=lambda entry: (entry[0] != "all", entry[0])):
        cells = (own.share(part, whole) for _, part, whole in COLUMNS)
        lines.append(" | ".join((name, *cells)))
    return "\n".join(f"| {line} |" for line in lines)


@dataclass(frozen=True)
class Changed:
    """A memory that a turn of a real conversation changed."""

    conversation: str
    old: str
    new: str
    reason: str


async def changes_in(
    path: Path, *, design: str, only: Sequence[str] | None = None
) -> tuple[int, list[Changed]]:
    """Return the turns of the conversations of LoCoMo at a path, and what a design changed."""
    turns, changes = 0, list[Changed]()
    for episode in LoCoMo(path).episodes():
        if only and episode.id not in only:
            continue
        async with AsyncAgent(path=":memory:", design=design) as agent:
            for session in episode.sessions:
                turns += len(session.turns)
                await agent.remember(session)
            state = agent.bank.state
            for item_id in sorted(state.items):
                old = ""
                for entry in await agent.memory.history(item_id):
                    op = entry.op
                    if isinstance(op, Update | Delete):
                        new = op.text if isinstance(op, Update) else "(deleted)"
                        changes.append(Changed(episode.id, old, new, op.reason))
                    old = entry.item.text if entry.item is not None else old
    return turns, changes


@dataclass(frozen=True, kw_only=True)
class StateOptions:
    """The options of the verb."""

    folder: Annotated[
        Path, typer.Argument(help="Dialogues; by default those that come with the project.")
    ] = DATA
    design: Annotated[str, typer.Option(help="Comma-separated designs.")] = "auto"
    model: Annotated[str | None, typer.Option(help="litellm name of a model; none by default.")] = (
        None
    )
    dialogues: Annotated[
        int | None, typer.Option(min=1, help="Play so many, spread over all batches.")
    ] = None
    odd: Annotated[bool, typer.Option(help="Play the batches that the reader was fitted to.")] = (
        False
    )
    chats: Annotated[
        Path | None,
        typer.Option(help="LoCoMo conversations whose changes are listed, to read them."),
    ] = None
    conversations: Annotated[
        str | None, typer.Option(help="Comma-separated ids of the conversations to read.")
    ] = None
    faults: Annotated[bool, typer.Option(help="List wrong changes and stale answers.")] = False


def _state(options: StateOptions) -> None:
    """Play hand-written dialogues: what changed, what was lost, what is answered now and then."""
    dialogues = sample(held_out(options.folder, odd=options.odd), options.dialogues)
    if not dialogues:
        raise EnvironmentFault(f"no dialogues in {options.folder}; see environments/dialogues")
    for design in options.design.split(","):
        figures = asyncio.run(play(dialogues, design=design, model=options.model))
        typer.echo(f"\n{design}: {len(dialogues)} dialogues\n\n{table(figures)}")
        for fault in islice(figures["all"].faults if options.faults else (), 200):
            typer.echo(f"- {fault}")
        if options.chats is not None:
            turns, changes = asyncio.run(
                changes_in(options.chats, design=design, only=words(options.conversations))
            )
            typer.echo(f"\n{len(changes)} changes in {turns} turns of real conversations")
            for own in changes:
                typer.echo(f"- {own.conversation}: {own.old!r} -> {own.new!r} ({own.reason})")


state_command = command(StateOptions, _state)
