"""Fit the weights of `memagent.memory.judging.certainty`, on conversations and worlds.

    python scripts/fit_certainty.py path/to/locomo

An answer is *right* when the question has an answer and a quoted turn is one of its gold
turns, or the quotes hold every content word of the gold short answer; no model judges.
The order is fitted as a softmax over the candidates of a question. The second model is
fitted on orders that other folds gave, so that it learns how sure an order is on
questions that it was not fitted to, and on small memories too: the candidates of each
question thinned out. Only weights are kept of the data. `scripts/certainty_report.py`
reports on conversations that nothing here has seen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from environments.datasets.locomo import LoCoMo
from environments.datasets.synthetic import Synthetic
from environments.records import Episode, Probe
from memagent.build import open_agent
from memagent.core.answers import Question
from memagent.designs.base import SlotContext
from memagent.memory.judging.certainty import (
    COLUMN,
    FEATURES,
    MODEL_FILE,
    OVERALL,
    chosen_of,
    features,
    overall_of,
    statements_of,
    term_weights,
)
from memagent.memory.judging.evidence import Evidence
from memagent.memory.question import QuestionView, read_question
from memagent.state.effects import tokenize

Floats = npt.NDArray[np.float64]
TRAINED_ON = ("conv-26", "conv-30", "conv-43")
WORLDS, WORLD_FOLDS = 24, 3
WORLD_WEIGHT, THIN_WEIGHT, SWAPPED_WEIGHT = 0.25, 0.15, 0.25
PERIOD_AT_LEAST = 2.0
"""Weight of now and then, set by hand: the data asks too few such questions."""
ORDER_L2, OVERALL_L2 = 10.0, 15.0


@dataclass
class Case:
    """A question with its candidates."""

    fold: str
    probe: Probe
    view: QuestionView
    evidence: list[Evidence]
    weights: dict[str, float]
    rows: Floats
    gold: Floats
    importance: float = 1.0

    def right(self, chosen: Sequence[int]) -> bool:
        """Whether quoting the chosen statements answers the question."""
        if self.probe.unanswerable:
            return False
        words = {term for at in chosen for term in tokenize(self.evidence[at].text)}
        told = any((need := set(tokenize(gold))) and need <= words for gold in self.probe.answers)
        return bool(self.gold[list(chosen)].any()) or told


def swapped(episode: Episode) -> list[Probe]:
    """Return the answerable questions asked about the other speaker: without an answer."""
    speakers = list(dict.fromkeys(turn.speaker for turn in episode.turns))
    if len(speakers) != 2:
        return []
    probes: list[Probe] = []
    for probe in episode.probes:
        named = [name for name in speakers if re.search(rf"\b{name}\b", probe.question)]
        if len(named) == 1 and not probe.unanswerable:
            (other,) = set(speakers) - set(named)
            question = re.sub(rf"\b{named[0]}\b", other, probe.question)
            changed = {"question": question, "unanswerable": True, "id": f"{probe.id}-swapped"}
            probes.append(probe.model_copy(update=changed))
    return probes


async def cases_of(episode: Episode, fold: str) -> list[Case]:
    """Remember an episode and read its questions."""
    cases: list[Case] = []
    async with open_agent(path=":memory:", design="verbatim", embedder="static") as agent:
        for session in episode.sessions:
            await agent.remember(session)
        asked_at = max((session.at for session in episode.sessions if session.at), default=None)
        slot = SlotContext(model=agent.model, bank=agent.bank, clock=agent.clock)
        of_world = fold.startswith("world")
        for probe in [*episode.probes, *([] if of_world else swapped(episode))]:
            question: Question = probe.as_question(at=asked_at, k=30)
            hits = await agent.design.retriever(question, slot)
            state = agent.bank.state
            speakers = dict.fromkeys(
                name
                for hit in hits
                if hit.item
                for name in (hit.item.speaker, hit.item.subject)
                if name
            )
            view = read_question(probe.question, speakers=speakers, asked_at=question.asked_at)
            evidence = statements_of(view, hits, state)
            weights = term_weights(view.terms, agent.bank.view.index)
            wanted = set() if probe.unanswerable else set(probe.evidence_turn_ids)
            gold = np.array([float(bool(wanted & set(entry.turn_ids))) for entry in evidence])
            rows = features(view, evidence, weights, probe.question)
            importance = SWAPPED_WEIGHT if probe.id.endswith("-swapped") else 1.0
            importance = WORLD_WEIGHT if of_world else importance
            if evidence:
                cases.append(Case(fold, probe, view, evidence, weights, rows, gold, importance))
    return cases


def thinned(case: Case, draw: np.random.Generator) -> Case:
    """Return a case as a small memory would give it: one to eight of its candidates."""
    count = min(len(case.rows), int(draw.integers(1, 9)))
    kept = np.sort(draw.choice(len(case.rows), size=count, replace=False))
    rows = case.rows[kept].copy()
    rows[:, COLUMN["score"]] /= rows[:, COLUMN["score"]].max() or 1.0
    rows[:, COLUMN["rank"]] = 1.0 / (1.0 + np.arange(count))
    evidence = [case.evidence[at] for at in kept]
    return replace(case, evidence=evidence, rows=rows, gold=case.gold[kept], importance=THIN_WEIGHT)


def load(folder: Path, conversations: Iterable[str], *, worlds: int) -> list[Case]:
    """Return the cases of some conversations and of generated worlds."""
    wanted = set(conversations)
    cases: list[Case] = []
    for episode in LoCoMo(folder).episodes():
        if episode.id in wanted:
            cases += asyncio.run(cases_of(episode, episode.id))
    for number, episode in enumerate(
        Synthetic("standard", episodes=max(1, worlds)).episodes("train")
    ):
        if number < worlds:
            cases += asyncio.run(cases_of(episode, f"world-{number % WORLD_FOLDS}"))
    return cases


# -- the first model -------------------------------------------------------------------


def fit_order(cases: Sequence[Case], *, steps: int = 300) -> Floats:
    """Fit the order (F,): the log of the gold candidates' share, by Adam with L2."""
    used = [case for case in cases if case.gold.any()]
    most = max(len(case.rows) for case in used)
    rows = np.zeros((len(used), most, len(FEATURES)))
    gold, there = np.zeros((len(used), most)), np.zeros((len(used), most), bool)
    for at, case in enumerate(used):
        rows[at, : len(case.rows)], gold[at, : len(case.rows)] = case.rows, case.gold
        there[at, : len(case.rows)] = True
    scale = rows[there].std(axis=0) + 1e-9
    rows /= scale
    importance = np.array([case.importance for case in used])
    weights, first, second = (
        np.zeros(len(FEATURES)),
        np.zeros(len(FEATURES)),
        np.zeros(len(FEATURES)),
    )
    for step in range(1, steps + 1):
        scores = np.where(there, rows @ weights, -np.inf)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        kept = shares * gold
        kept /= kept.sum(axis=1, keepdims=True) + 1e-12
        pull = ((shares - kept) * importance[:, None])[:, None, :] @ rows
        gradient = pull[:, 0].sum(axis=0) + ORDER_L2 * weights
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        weights = weights - 0.05 * (first / (1 - 0.9**step)) / (
            np.sqrt(second / (1 - 0.999**step)) + 1e-9
        )
    weights /= scale
    weights[COLUMN["period"]] = max(weights[COLUMN["period"]], PERIOD_AT_LEAST)
    return weights


# -- the second model ------------------------------------------------------------------


def outcome(case: Case, order: Floats) -> tuple[Floats, bool]:
    """Return the overall features of a case under an order, and whether its quotes are right."""
    scores = case.rows @ order
    places = np.argsort(-scores, kind="stable")
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    chosen = chosen_of(case.evidence, places, shares)
    values = overall_of(
        case.view,
        case.rows,
        scores,
        mass=float(shares[chosen].sum()),
        count=len(chosen),
        weights=case.weights,
    )
    return values, case.right(chosen)


def fit_overall(values: Floats, right: Floats, importance: Floats) -> Floats:
    """Fit a logistic model (1 + O,) by Newton's method with L2."""
    mean, scale = values.mean(axis=0), values.std(axis=0) + 1e-9
    x = np.c_[np.ones(len(values)), (values - mean) / scale]
    penalty = OVERALL_L2 * np.eye(x.shape[1])
    penalty[0, 0] = 1e-6
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ weights))
        gradient = x.T @ (importance * (p - right)) + penalty @ weights
        weights -= np.linalg.solve(
            (x * (importance * p * (1 - p))[:, None]).T @ x + penalty, gradient
        )
    slopes = weights[1:] / scale
    return np.r_[weights[0] - slopes @ mean, slopes]


def recalibrated(weights: Floats, values: Floats, right: Floats, importance: Floats) -> Floats:
    """Rescale the model's log odds by the real questions of the conversations alone."""
    real = importance == 1.0
    logits, wanted = weights[0] + values[real] @ weights[1:], right[real]
    line = np.array([0.0, 1.0])
    x = np.c_[np.ones(len(logits)), logits]
    for _ in range(50):
        p = 1.0 / (1.0 + np.exp(-x @ line))
        line -= np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x, x.T @ (p - wanted))
    line[1] = min(line[1], 1.0)
    scaled = line[1] * weights
    scaled[0] += line[0]
    return scaled


def fit(cases: Sequence[Case]) -> tuple[Floats, Floats]:
    """Return the weights of both models."""
    draw = np.random.default_rng(0)
    cases = [*cases, *(thinned(case, draw) for case in cases)]
    folds = sorted({case.fold for case in cases})
    values: list[Floats] = []
    right: list[float] = []
    importance: list[float] = []
    for fold in folds:
        order = fit_order([case for case in cases if case.fold != fold])
        for case in (case for case in cases if case.fold == fold):
            row, is_right = outcome(case, order)
            values.append(row)
            right.append(float(is_right))
            importance.append(case.importance)
    overall = fit_overall(np.array(values), np.array(right), np.array(importance))
    overall = recalibrated(overall, np.array(values), np.array(right), np.array(importance))
    return fit_order(cases), overall


def main() -> int:
    """Fit the weights and write them."""
    parser = argparse.ArgumentParser(description="Fit the weights of memory's certainty.")
    parser.add_argument("folder", type=Path, help="a folder of LoCoMo conversations")
    parser.add_argument("--into", type=Path, default=MODEL_FILE, metavar="FILE")
    parser.add_argument("--conversations", nargs="*", default=list(TRAINED_ON))
    parser.add_argument("--worlds", type=int, default=WORLDS)
    chosen = parser.parse_args()
    order, overall = fit(load(chosen.folder, chosen.conversations, worlds=chosen.worlds))
    weights = {
        "order": dict(zip(FEATURES, np.round(order, 5).tolist(), strict=True)),
        "overall": dict(zip(("constant", *OVERALL), np.round(overall, 5).tolist(), strict=True)),
    }
    chosen.into.write_text(json.dumps(weights, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
