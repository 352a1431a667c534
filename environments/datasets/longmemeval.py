"""LongMemEval as an environment: an episode a question with its own chat sessions.

Wu et al. 2024, MIT.

Categories are the six question types; `_abs` ends the category of a question that
cannot be answered. Such a question's `answer` in the file explains why, so it is no
gold answer here. The benchmark has no split: `all` and `test` are everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from environments.base import Environment, Split
from environments.datasets.longmemeval_files import iter_longmemeval
from environments.datasets.sources import Source
from environments.errors import EnvironmentFault
from environments.play.rollout import MemoryAgent
from environments.records import Episode, Probe
from memagent.readers import Conversation

ORIGIN = (
    "LongMemEval is not shipped: take longmemeval_oracle.json, longmemeval_s.json or "
    "longmemeval_m.json by way of "
    "github.com/xiaowu0162/LongMemEval and give that file."
)
ABSTENTION = "_abs"
"""Ending of the category of questions that cannot be answered."""


class LongMemEval(Environment):
    """The instances of a LongMemEval file, read one by one."""

    name = "longmemeval"

    def __init__(self, path: str | Path, *, answering: MemoryAgent | None = None) -> None:
        super().__init__(answering=answering)
        self.source = Source(path=Path(path).expanduser(), read=iter_longmemeval, origin=ORIGIN)

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """Every instance.

        Raises `EnvironmentFault` for data that is missing or not LongMemEval's, and for
        a split that does not exist.
        """
        if split not in ("all", "test"):
            raise EnvironmentFault(f"LongMemEval has no {split} split; ask for 'all'")
        for conversation in self.source.conversations():
            yield episode_of(conversation)


def episode_of(conversation: Conversation) -> Episode:
    """Return an instance as an episode with one probe, asked at the instance's date."""
    # Turns near what was never said are no evidence of it: abstention takes no part in recall.
    probes = tuple(
        Probe(
            id=question.id,
            question=question.text,
            answers=(question.answer,)
            if question.answer and not question.category.endswith(ABSTENTION)
            else (),
            evidence_turn_ids=()
            if question.category.endswith(ABSTENTION)
            else question.evidence_turn_ids,
            category=question.category,
            asked_at=question.asked_at,
            unanswerable=question.category.endswith(ABSTENTION),
        )
        for question in conversation.questions
    )
    return Episode(id=conversation.id, sessions=conversation.sessions, probes=probes)
