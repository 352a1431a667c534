"""LoCoMo as an environment: an episode a conversation, its questions at the end.

Maharana et al. 2024, CC BY-NC 4.0.

Categories keep the file's numbers (1 multi-hop, 2 temporal, 3 open-domain, 4
single-hop, 5 adversarial), because papers name them differently. Category 5 asks about
what was never said: abstaining is right there, whatever the file gives as an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from environments.base import Environment, Split
from environments.datasets.locomo_files import iter_locomo
from environments.datasets.sources import Source
from environments.errors import EnvironmentFault
from environments.play.rollout import MemoryAgent
from environments.records import Episode, Probe
from memagent.readers import Conversation

ORIGIN = (
    "LoCoMo is not shipped (CC BY-NC 4.0): take data/locomo10.json from "
    "github.com/snap-research/locomo and give that file, or a folder of "
    "conversations in its format."
)
ADVERSARIAL = "5"
"""The category whose questions have no answer."""

SplitBy = Literal["memory_r2", "memory_r1"]
"""The paper whose split by conversation is used."""
_SPLITS: dict[SplitBy, dict[str, Split]] = {
    "memory_r2": {"conv-43": "train", "conv-47": "train", "conv-44": "validation"},
    "memory_r1": {"conv-26": "train", "conv-30": "validation"},
}


class LoCoMo(Environment):
    """The conversations of a LoCoMo file or folder."""

    name = "locomo"

    def __init__(
        self,
        path: str | Path,
        *,
        split_by: SplitBy = "memory_r2",
        answering: MemoryAgent | None = None,
    ) -> None:
        """Open the benchmark.

        `split_by` names the paper whose training and validation conversations are kept
        apart; all others are test.
        """
        super().__init__(answering=answering)
        if split_by not in get_args(SplitBy):
            raise EnvironmentFault(
                f"no split {split_by!r}; there are {', '.join(get_args(SplitBy))}"
            )
        self.source = Source(path=Path(path).expanduser(), read=iter_locomo, origin=ORIGIN)
        self._splits = _SPLITS[split_by]

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """Return the conversations of a split.

        Raises `EnvironmentFault` for data that is missing or not LoCoMo's.
        """
        for conversation in self.source.conversations():
            if split in ("all", self._splits.get(conversation.id, "test")):
                yield episode_of(conversation)


def episode_of(conversation: Conversation) -> Episode:
    """Return a conversation as an episode; questions keep their ids (`conv-26:q7`)."""
    probes = tuple(
        Probe(
            id=question.id,
            question=question.text,
            answers=(question.answer,)
            if question.answer and question.category != ADVERSARIAL
            else (),
            evidence_turn_ids=question.evidence_turn_ids,
            unresolved_evidence=question.unresolved_evidence,
            category=question.category,
            asked_at=question.asked_at,
            unanswerable=question.category == ADVERSARIAL,
            adversarial_answer=question.adversarial_answer,
        )
        for question in conversation.questions
    )
    return Episode(id=conversation.id, sessions=conversation.sessions, probes=probes)
