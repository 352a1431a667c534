"""From a trajectory to its score: pure, the same for every environment and arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from environments.records import Episode, Probe, ProbeAnswer, ProbeScore, Score, Trajectory
from environments.rewards import metrics
from environments.rewards.terms import UNREAD
from memagent.core.answers import Answer, Hit
from memagent.core.snapshot import MemorySnapshot


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The parameters of a score besides the answers."""

    ks: tuple[int, ...] = (5, 10, 30)
    """Numbers of turns at which evidence recall is taken."""
    cover_share: float = 0.5
    """Share of a gold turn's content words that an item must hold to count as covering it."""

    def score(self, episode: Episode, trajectory: Trajectory) -> Score:
        """Score a trajectory with answers; probes without an answer are left out."""
        heard = {trace.session_id for trace in trajectory.traces}
        return Score(
            episode_id=episode.id,
            probes=self.score_answers(episode, trajectory.answers),
            failure=trajectory.failure,
            dialogue_tokens=sum(
                metrics.token_count(turn.said)
                for session in episode.sessions
                if session.id in heard
                for turn in session.turns
            ),
            usage=trajectory.usage,
            seconds=trajectory.seconds,
            **_size(trajectory.end),
            **_work(trajectory),
        )

    def score_answers(
        self, episode: Episode, answers: Iterable[ProbeAnswer]
    ) -> tuple[ProbeScore, ...]:
        """Score each answer, in order, against the memory that gave it."""
        by_id = {probe.id: probe for probe in episode.probes}
        spoken = {turn.id: turn.said for turn in episode.turns}
        citing: dict[str, dict[str, list[metrics.MemoryItem]]] = {}
        scores: list[ProbeScore] = []
        for answered in answers:
            memory = answered.memory
            if memory.digest not in citing:
                citing[memory.digest] = metrics.items_by_turn(memory.items.values())
            probe = by_id[answered.probe_id]
            gold = {turn_id: spoken[turn_id] for turn_id in probe.evidence_turn_ids}
            cited_items = citing[memory.digest]
            lost = len(metrics.m_fail(gold, cited_items))
            uncovered = len(metrics.m_fail_content(gold, cited_items, share=self.cover_share))
            scores.append(self.score_probe(probe, answered, lost=lost, uncovered=uncovered))
        return tuple(scores)

    def score_probe(
        self, probe: Probe, answered: ProbeAnswer, *, lost: int = 0, uncovered: int = 0
    ) -> ProbeScore:
        """Score one answer."""
        shared = ProbeScore(
            probe_id=probe.id,
            category=probe.category,
            unanswerable=probe.unanswerable,
            question=probe.question,
            gold=probe.answers,
            evidence=probe.evidence_turn_ids,
            unresolved=len(probe.unresolved_evidence),
            lost=lost,
            uncovered=uncovered,
            seconds=answered.seconds,
            failure=answered.failure,
        )
        answer = answered.answer
        if answer is None:
            return shared
        returned = turns_of(
            sorted(answer.hits, key=lambda hit: -hit.score)
        )  # answerers may list them in order of time
        text = "" if answer.abstained else answer.text
        measured: dict[str, object] = {
            "answer": text,
            "abstained": answer.abstained,
            "unreadable": UNREADABLE in answer.notes,
            "retrieved": returned,
            "cited": _cited(answer),
            "evidence_sessions": answer.evidence_sessions,
            "usage": answer.usage,
        }
        if probe.evidence_turn_ids:
            measured["recall"] = {
                k: metrics.recall_at_k(returned, probe.evidence_turn_ids, k=k) for k in self.ks
            }
        if probe.answers and not probe.unanswerable:
            for name, measure in _MEASURES.items():
                measured[name] = max(measure(text, gold) for gold in probe.answers)
        return shared.model_copy(update=measured)


UNREADABLE = "the model's reply could not be read"
"""The note by which an answer says that nothing could be read of its model's reply."""

_MEASURES = {
    "f1": metrics.f1,
    "f1_memory_r2": metrics.f1_memory_r2,
    "bleu1": metrics.bleu1,
    "exact": metrics.exact_match,
}


def turns_of(hits: Sequence[Hit]) -> tuple[str, ...]:
    """Return the turns behind the hits in order, each once."""
    return tuple(dict.fromkeys(turn_id for hit in hits for turn_id in hit.source_turn_ids))


def _cited(answer: Answer) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(citation.turn_id for citation in answer.citations if citation.turn_id)
    )


def _work(trajectory: Trajectory) -> dict[str, Any]:
    """Count the work of remembering: ops by kind, replies read, and unreadable replies."""
    reports = [trace.report for trace in trajectory.traces]
    ops = sum((Counter(report.op_counts) for report in reports), Counter[str]())
    statuses = [status for report in reports for chunk in report.chunks for status in chunk.parse]
    return {
        "ops": dict(ops),
        "replies": len(statuses),
        "unread": sum(status in UNREAD for status in statuses),
    }


def _size(memory: MemorySnapshot) -> dict[str, int]:
    texts = [item.text for item in memory.items.values() if item.active]
    return {
        "memory_items": len(texts),
        "memory_tokens": sum(metrics.token_count(text) for text in texts),
    }
