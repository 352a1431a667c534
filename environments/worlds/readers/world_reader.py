"""A reader of notes: the fixed answering agent of worlds.

It understands every question and believes the note that search ranks first.

It searches its memory as any agent does, reads the hits as notes (a text that is no
note tells it nothing) and answers from the best-ranked one that fits. Two notes that
contradict each other make it say what search ranks first, stale or not: keeping the
memory consolidated is the manager's business, and this reader does not make up for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from environments.errors import EnvironmentFault
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.players import Note, answer_from
from environments.worlds.truth import Act, ProbeTruth, Truth
from memagent.async_agent import AsyncAgent
from memagent.core.answers import Answer, Citation, Hit, Query, Question, Verdict
from memagent.core.records import Session
from memagent.core.snapshot import IngestReport, MemorySnapshot


@dataclass(frozen=True, kw_only=True)
class WorldReader:
    """Answers the probes of known worlds from the notes in a bank.

    It remembers sessions as `base` does.
    """

    base: AsyncAgent
    language: NoteLanguage
    probes: dict[str, ProbeTruth] = field(default_factory=dict[str, ProbeTruth])
    """The truth behind each question, by its id."""
    k: int = 16
    """Hits read."""

    def knowing(self, *truths: Truth) -> WorldReader:
        """Return the same reader, able to answer the questions of these worlds too."""
        return replace(
            self,
            probes=self.probes
            | {probe.probe_id: probe for truth in truths for probe in truth.probes},
        )

    async def remember(self, session: Session) -> IngestReport:
        """Hear a session as the agent below does."""
        return await self.base.remember(session)

    async def ask(self, question: Question) -> Answer:
        """Return the answer of the best-ranked notes; abstain when none fits.

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
        probe = self.probes.get(question.id or "")
        if probe is None:
            raise EnvironmentFault(
                f"question {question.id!r} belongs to no world that this reader knows"
            )
        known: list[tuple[Hit, Note]] = []
        for hit in hits:
            said_on = (
                hit.item.said_at.date()
                if hit.item is not None and hit.item.said_at is not None
                else None
            )
            note = self.language.read(hit.text, said_on=said_on)
            if note is not None and all(note.claim != other.claim for _, other in known):
                known.append((hit, note))
        used = [(hit, note) for hit, note in known if note.relation == probe.relation]
        text = answer_from("oracle", self.language.calendar, probe, [note for _, note in used])
        if not text:
            return Answer(text="", verdict=Verdict.ABSTAINED, hits=tuple(hits), question=question)
        cited = tuple(Citation(hit_id=hit.id) for hit, note in used if _fits(note, probe))
        return Answer(text=text, citations=cited, hits=tuple(hits), question=question)

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as it is."""
        return self.base.snapshot()

    def at(self, snapshot: MemorySnapshot) -> WorldReader:
        """Return the same reader on a private memory that starts from a snapshot."""
        return replace(self, base=self.base.at(snapshot))


def overwritten(truth: Truth) -> frozenset[str]:
    """Return the ids of the probes about a present value that was changed or corrected.

    Only a consolidated memory answers them.
    """
    changed = {
        telling.key for telling in truth.tellings if telling.act in (Act.CHANGE, Act.CORRECT)
    }
    return frozenset(
        probe.probe_id
        for probe in truth.probes
        if probe.ask == "now" and (probe.subject, probe.relation) in changed
    )


def _fits(note: Note, probe: ProbeTruth) -> bool:
    return note.subject == probe.subject or probe.ask == "who"
