"""A reader of statements in any words: it answers with everything the memories state.

`WorldReader` reads notes in the language of a world. This one reads memories that are
stretches of turns: a memory states what was told in a turn that it rests on if its words
hold the value. Which telling that is, it knows from the truth; which memory to believe,
it does not: where two contradict each other it answers with both, so a memory that keeps
what is stale is worth less.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from environments.errors import EnvironmentFault
from environments.worlds.language.days import Calendar
from environments.worlds.readers.players import Note, answer_from
from environments.worlds.truth import Act, ProbeTruth, Telling, Truth
from memagent.async_agent import AsyncAgent
from memagent.core.answers import Answer, Citation, Hit, Query, Question, Verdict
from memagent.core.records import MemoryItem, Session
from memagent.core.snapshot import IngestReport, MemorySnapshot

_ENDING = frozenset((Act.REMOVE, Act.CANCEL))


@dataclass(frozen=True, kw_only=True)
class FactReader:
    """Answers the probes of known worlds from statements in a bank.

    It remembers sessions as `base` does.
    """

    base: AsyncAgent
    calendar: Calendar
    known: dict[str, tuple[ProbeTruth, Mapping[str, list[Telling]]]] = field(
        default_factory=dict[str, tuple[ProbeTruth, Mapping[str, list[Telling]]]]
    )
    """By question: the truth behind it, and the tellings of its world by turn."""
    k: int = 16
    """Hits read."""

    def knowing(self, *truths: Truth) -> FactReader:
        """Return the same reader, able to answer the questions of these worlds too."""
        known = dict(self.known)
        for truth in truths:
            by_turn: dict[str, list[Telling]] = defaultdict(list)
            for telling in truth.tellings:
                by_turn[telling.turn_id].append(telling)
            known |= {probe.probe_id: (probe, by_turn) for probe in truth.probes}
        return replace(self, known=known)

    async def remember(self, session: Session) -> IngestReport:
        """Hear a session as the agent below does."""
        return await self.base.remember(session)

    async def ask(self, question: Question) -> Answer:
        """Return all that the memories found state; abstain when none fits.

        Raises `EnvironmentFault` for a question of an unknown world.
        """
        (answer,) = await self.ask_many([question])
        return answer

    async def ask_many(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the answers to several questions, from one search of the memory."""
        texts = [question.text for question in questions]
        found = await self.base.memory.bank.search_many(
            [Query(text=text, recipe=self.base.memory.recipe) for text in texts],
            k=self.k,
            explain=False,
        )
        return [self._read(*each) for each in zip(questions, found, strict=True)]

    def _read(self, question: Question, hits: list[Hit]) -> Answer:
        if (question.id or "") not in self.known:
            raise EnvironmentFault(
                f"question {question.id!r} belongs to no world that this reader knows"
            )
        probe, by_turn = self.known[question.id or ""]
        used: list[tuple[Hit, Note]] = []
        for hit in hits:
            for note in notes_in(hit.item, by_turn) if hit.item is not None else ():
                fresh = all(note.claim != other.claim for _, other in used)
                if note.relation == probe.relation and fresh:
                    used.append((hit, note))
        text = answer_from("append_all", self.calendar, probe, [note for _, note in used])
        if not text:
            return Answer(text="", verdict=Verdict.ABSTAINED, hits=tuple(hits), question=question)
        cited = dict.fromkeys(hit.id for hit, note in used if note.subject == probe.subject)
        citations = tuple(Citation(hit_id=hit_id) for hit_id in cited)
        return Answer(text=text, citations=citations, hits=tuple(hits), question=question)

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as it is."""
        return self.base.snapshot()

    def at(self, snapshot: MemorySnapshot) -> FactReader:
        """Return the same reader on a private memory that starts from a snapshot."""
        return replace(self, base=self.base.at(snapshot))


def notes_in(item: MemoryItem, by_turn: Mapping[str, list[Telling]]) -> Iterator[Note]:
    """Yield what a memory states as if it held.

    Jokes and rumours count as stated if they were kept. What the memory itself says is
    over or replaced does not count.
    """
    told = [telling for turn in item.source_turn_ids for telling in by_turn.get(turn, ())]
    over = {telling.supersedes for telling in told if telling.act is not Act.REPEAT}
    ended = {(*telling.key, telling.value) for telling in told if telling.act in _ENDING}
    text = item.text.lower()
    for telling in told:
        claim = (*telling.key, telling.value)
        words = rf"(?<!\w){re.escape(telling.value.lower())}(?!\w)"
        if telling.id in over or claim in ended or not re.search(words, text):
            continue
        yield Note(
            subject=telling.subject,
            relation=telling.relation,
            kind=telling.kind,
            value=telling.value,
            start=(telling.day or telling.said_on).isoformat(),
            dated=telling.day is not None,
            place=telling.place,
            company=telling.company,
        )
