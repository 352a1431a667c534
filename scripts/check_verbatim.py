"""How well the design that needs no model finds, cites and dates on LoCoMo conversations: one table a run.

For each conversation: seconds to ingest and to ask, what became of the turns, recall of gold evidence turns (single turns as units,
categories 1 to 4), how many answers cite a gold turn, how many citations are gold, how many questions were abstained from, and for
category 2 how many dates are right. A date is right when at least half of the span that the answer names lies within the span
that the gold answer names (so 7 May is right for "May", and "May" is wrong for "7 May"); gold answers that name no date count as wrong.

    python scripts/check_verbatim.py path/to/locomo conv-26 conv-30 --embedder static
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from memagent.async_agent import AsyncAgent
from memagent.build import open_agent
from memagent.core.answers import Answer, Query, Question
from memagent.core.records import TimeSpan
from memagent.memory.temporal import resolve_time
from memagent.readers import Conversation, GoldQuestion, iter_conversations

DEPTHS = (5, 10, 30)
ANSWERABLE = ("1", "2", "3", "4")


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


def date_right(answer: Answer, gold: GoldQuestion) -> bool:
    """Whether the answer's time is right; see the module's first lines."""
    return within(answer.when, resolve_time(gold.answer, anchor=None)) >= 0.5


async def check(conversation: Conversation, *, embedder: str) -> Outcome:
    """Ingest a conversation into a fresh memory and ask all its questions."""
    outcome = Outcome(conversation.id, len(conversation.turns))
    async with open_agent(path=":memory:", design="verbatim", embedder=embedder) as agent:
        await agent.embedder.embed(["warm up"])
        begun = time.perf_counter()
        for session in conversation.sessions:
            for name, count in (await agent.remember(session)).op_counts.items():
                outcome.ops[name] = outcome.ops.get(name, 0) + count
        outcome.ingest_s = time.perf_counter() - begun
        await _measure_recall(agent, conversation.questions, outcome)
        begun = time.perf_counter()
        for number, gold in enumerate(conversation.questions):
            answer = await agent.ask(Question(text=gold.text, asked_at=gold.asked_at))
            _count(outcome.by_category.setdefault(gold.category, Tally()), answer, gold)
            if number == 0:
                cited = ", ".join(citation.turn_id or "" for citation in answer.citations)
                outcome.first_question = f"{gold.text} -> {answer.text.splitlines()[0]} [{cited}] (gold: {gold.answer})"
        outcome.ask_ms = 1000 * (time.perf_counter() - begun) / max(1, len(conversation.questions))
    return outcome


async def _measure_recall(agent: AsyncAgent, questions: Sequence[GoldQuestion], outcome: Outcome) -> None:
    asked = [gold for gold in questions if gold.category in ANSWERABLE and gold.evidence_turn_ids]
    found = await agent.bank.search_many([Query(text=gold.text) for gold in asked], k=max(DEPTHS))
    shares: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    by_category: dict[str, list[float]] = {}
    for gold, hits in zip(asked, found, strict=True):
        wanted = set(gold.evidence_turn_ids)
        for depth in DEPTHS:
            seen = {turn_id for hit in hits[:depth] for turn_id in hit.source_turn_ids}
            shares[depth].append(len(wanted & seen) / len(wanted))
            if depth == 10:
                by_category.setdefault(gold.category, []).append(shares[depth][-1])
    outcome.recall = {depth: _mean(values) for depth, values in shares.items()}
    outcome.recall_at_10 = {name: _mean(values) for name, values in sorted(by_category.items())}


def _count(tally: Tally, answer: Answer, gold: GoldQuestion) -> None:
    wanted = set(gold.evidence_turn_ids)
    cited = list(dict.fromkeys(citation.turn_id for citation in answer.citations if citation.turn_id))
    tally.questions += 1
    tally.cite_gold += bool(wanted & set(cited))
    tally.first_is_gold += bool(cited) and cited[0] in wanted
    tally.abstained += answer.abstained
    tally.citations += len(cited)
    tally.gold_citations += len(wanted & set(cited))
    tally.dates_right += gold.category == "2" and date_right(answer, gold)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def show(outcome: Outcome) -> None:
    """Print the figures of one conversation."""
    ops = ", ".join(f"{count} {name}" for name, count in outcome.ops.items() if count)
    print(
        f"{outcome.conversation}: {outcome.turns} turns in {outcome.ingest_s:.2f} s ({ops}); {outcome.ask_ms:.0f} ms a question"
    )
    print("  recall " + "  ".join(f"@{depth} {value:.3f}" for depth, value in outcome.recall.items()), end="")
    print("; at 10 by category " + "  ".join(f"{name}: {value:.2f}" for name, value in outcome.recall_at_10.items()))
    print("  category  questions  cite a gold turn  first is gold  citations gold  abstained  dates right")
    for name, tally in sorted(outcome.by_category.items()):
        n = tally.questions
        dates = f"{tally.dates_right} ({tally.dates_right / n:.0%})" if name == "2" else "-"
        precise = f"{tally.gold_citations}/{tally.citations}"
        print(
            f"  {name:>8}  {n:>9}  {f'{tally.cite_gold} ({tally.cite_gold / n:.0%})':>16}  {f'{tally.first_is_gold / n:.0%}':>13}"
            f"  {precise:>14}  {tally.abstained:>9}  {dates:>11}"
        )
    print(f"  first question: {outcome.first_question}")


def main() -> int:
    """Run over the chosen conversations; exit status 1 when none was found."""
    parser = argparse.ArgumentParser(description="Figures of the verbatim design on LoCoMo.")
    parser.add_argument("folder", type=Path, help="a LoCoMo file, or a folder of them")
    parser.add_argument("conversations", nargs="*", help="which ones, by file name or id; all when left out")
    parser.add_argument("--embedder", default="static", help="static, minilm, hashing or a plug-in's name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a file")
    chosen = parser.parse_args()
    files = sorted(chosen.folder.glob("*.json")) if chosen.folder.is_dir() else [chosen.folder]
    outcomes: list[Outcome] = []
    for path in files:
        for conversation in iter_conversations(path, "locomo"):
            if not chosen.conversations or {path.stem, conversation.id} & set(chosen.conversations):
                outcomes.append(asyncio.run(check(conversation, embedder=chosen.embedder)))
                show(outcomes[-1])
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n", encoding="utf-8")
    return 0 if outcomes else 1


if __name__ == "__main__":
    sys.exit(main())
