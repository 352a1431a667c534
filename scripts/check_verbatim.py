"""Check how well the design without a model finds, cites and dates on LoCoMo.

It prints one table per run.

For each conversation: seconds to ingest and to ask, what became of the turns, recall of
gold evidence turns (as `memagent-eval` counts it, answerable questions), how many
answers cite a gold turn, how many citations are gold, how many questions were abstained
from, and for category 2 how many dates are right. A date is right when at least half of
the span that the answer names lies within the span that the gold answer names (so 7 May
is right for "May", and "May" is wrong for "7 May"); gold answers that name no date
count as wrong.

    python scripts/check_verbatim.py path/to/locomo conv-26 conv-30 --embedder static
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from environments.datasets.locomo import LoCoMo
from environments.evaluation.figures import recall_of
from environments.play.rollout import play
from environments.records import Episode, Probe, ProbeScore
from environments.rewards.scoring import Scoring
from memagent.build import open_agent
from memagent.core.answers import Answer
from memagent.core.records import TimeSpan
from memagent.core.snapshot import EMPTY
from memagent.timex.resolve import resolve_time


@dataclass
class Tally:
    """Counts over the questions of one category."""

    questions: int = 0
    cite_gold: int = 0
    first_is_gold: int = 0
    abstained: int = 0
    dates_right: int = 0
    citations: int = 0
    gold_citations: int = 0


@dataclass
class Outcome:
    """What one conversation gave."""

    conversation: str
    turns: int
    ops: dict[str, int] = field(default_factory=dict[str, int])
    ingest_s: float = 0.0
    ask_ms: float = 0.0
    recall: dict[int, float] = field(default_factory=dict[int, float])
    recall_at_10: dict[str, float] = field(default_factory=dict[str, float])
    by_category: dict[str, Tally] = field(default_factory=dict[str, Tally])
    first_question: str = ""


def within(inner: TimeSpan | None, outer: TimeSpan | None) -> float:
    """Share of one span that lies within another, 0 to 1; 0 when either is missing or open."""
    if inner is None or outer is None:
        return 0.0
    bounds = (inner.start, inner.end, outer.start, outer.end)
    if any(bound is None for bound in bounds):
        return 0.0
    a, b, c, d = (bound.timestamp() for bound in bounds if isinstance(bound, datetime))
    return max(0.0, min(b, d) - max(a, c)) / (b - a)


def date_right(answer: Answer, gold: Probe) -> bool:
    """Whether the answer's time is right; see the module's first lines."""
    return any(within(answer.when, resolve_time(text, anchor=None)) >= 0.5 for text in gold.answers)


async def check(episode: Episode, *, embedder: str) -> Outcome:
    """Play a conversation with a fresh memory and ask all its questions."""
    outcome = Outcome(episode.id, len(episode.turns))
    async with open_agent(path=":memory:", design="verbatim", embedder=embedder) as agent:
        await agent.embedder.embed(["warm up"])
        trajectory = await play(agent.at(EMPTY), episode)
    if trajectory.failure is not None:
        raise SystemExit(f"{episode.id}: {trajectory.failure}")
    for trace in trajectory.traces:
        for name, count in trace.report.op_counts.items():
            outcome.ops[name] = outcome.ops.get(name, 0) + count
    outcome.ingest_s = trajectory.seconds
    scoring = Scoring()
    scores = scoring.score(episode, trajectory).probes
    outcome.recall = {k: recall_of(scores, k) or 0.0 for k in scoring.ks}
    for category in sorted({one.category for one in scores if not one.unanswerable}):
        outcome.recall_at_10[category] = (
            recall_of((one for one in scores if one.category == category), 10) or 0.0
        )
    asked = zip(episode.probes, trajectory.answers, scores, strict=True)
    for number, (gold, answered, score) in enumerate(asked):
        if answered.answer is None:
            raise SystemExit(f"{gold.id}: {answered.failure}")
        _count(outcome.by_category.setdefault(gold.category, Tally()), answered.answer, score, gold)
        outcome.ask_ms += 1000 * answered.seconds / len(scores)
        if number == 0:
            said, cited = answered.answer.text.splitlines()[0], ", ".join(score.cited)
            outcome.first_question = (
                f"{gold.question} -> {said} [{cited}] (gold: {', '.join(gold.answers)})"
            )
    return outcome


def _count(tally: Tally, answer: Answer, score: ProbeScore, gold: Probe) -> None:
    wanted, cited = set(score.evidence), score.cited
    tally.questions += 1
    tally.cite_gold += bool(wanted & set(cited))
    tally.first_is_gold += bool(cited) and cited[0] in wanted
    tally.abstained += answer.abstained
    tally.citations += len(cited)
    tally.gold_citations += len(wanted & set(cited))
    tally.dates_right += gold.category == "2" and date_right(answer, gold)


def show(outcome: Outcome) -> None:
    """Print the figures of one conversation."""
    ops = ", ".join(f"{count} {name}" for name, count in outcome.ops.items() if count)
    print(
        f"{outcome.conversation}: {outcome.turns} turns in {outcome.ingest_s:.2f} s ({ops}); "
        f"{outcome.ask_ms:.0f} ms a question"
    )
    print(
        "  recall " + "  ".join(f"@{depth} {value:.3f}" for depth, value in outcome.recall.items()),
        end="",
    )
    print(
        "; at 10 by category "
        + "  ".join(f"{name}: {value:.2f}" for name, value in outcome.recall_at_10.items())
    )
    print(
        "  category  questions  cite a gold turn  first is gold  citations gold  abstained  dates "
        "right"
    )
    for name, tally in sorted(outcome.by_category.items()):
        n = tally.questions
        dates = f"{tally.dates_right} ({tally.dates_right / n:.0%})" if name == "2" else "-"
        precise = f"{tally.gold_citations}/{tally.citations}"
        print(
            f"  {name:>8}  {n:>9}  {f'{tally.cite_gold} ({tally.cite_gold / n:.0%})':>16}  "
            f"{f'{tally.first_is_gold / n:.0%}':>13}"
            f"  {precise:>14}  {tally.abstained:>9}  {dates:>11}"
        )
    print(f"  first question: {outcome.first_question}")


def main() -> int:
    """Run over the chosen conversations; exit status 1 when none was found."""
    parser = argparse.ArgumentParser(description="Figures of the verbatim design on LoCoMo.")
    parser.add_argument("folder", type=Path, help="a LoCoMo file, or a folder of them")
    parser.add_argument("conversations", nargs="*", help="which ones, by id; all when left out")
    parser.add_argument(
        "--embedder", default="static", help="static, minilm, hashing or a plug-in's name"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures to a file"
    )
    chosen = parser.parse_args()
    outcomes: list[Outcome] = []
    for episode in LoCoMo(chosen.folder).episodes():
        if not chosen.conversations or episode.id in chosen.conversations:
            outcomes.append(asyncio.run(check(episode, embedder=chosen.embedder)))
            show(outcomes[-1])
    if chosen.json is not None:
        chosen.json.write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n", encoding="utf-8"
        )
    return 0 if outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
