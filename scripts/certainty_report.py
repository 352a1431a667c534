"""Report how sure answers without a model rightly are, on conversations not fitted to.

    python scripts/certainty_report.py path/to/locomo conv-44 conv-47
    python scripts/certainty_report.py path/to/locomo conv-30 --design verbatim --worlds tiny

Answers are the product's own: `ask` of the default, the design `learned`, or of another
one, then also on generated worlds of the test split; those files are named after the design. An
answer is *right* when the question has an answer and a cited turn is one of its gold
turns, or the quotes hold every content word of the gold short answer; no model judges.
*Coverage* is a share of all questions, the surest first. An unanswerable question is
*refused* when the answer abstains; an answerable one that is refused is a *false
abstention*. The own chat (`tests/data/own_chat.json`) has gold answers only. Writes
`certainty.json` and `certainty.svg`, a reliability figure over the answers given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from environments.datasets.locomo import LoCoMo
from environments.datasets.synthetic import synthetic
from environments.records import Episode, Probe
from memagent.build import open_agent
from memagent.core.answers import Answer, Question, Verdict
from memagent.core.records import Session, Trust, Turn
from memagent.memory.judging.certainty import open_model
from memagent.state.effects import tokenize

ROOT = Path(__file__).parents[1]
OWN_CHAT = ROOT / "tests" / "data" / "own_chat.json"
WIDTH = 0.2
SEED = 7
"""Of the worlds."""
WORLDS = 4
"""Episodes of a level."""


@dataclass(frozen=True)
class Judged:
    """An answer and whether it is right."""

    answer: Answer
    unanswerable: bool
    right: bool

    @property
    def probability(self) -> float:
        """The answer's, 0 for none."""
        return self.answer.probability or 0.0


def own_chat(path: Path = OWN_CHAT) -> Episode:
    """Return the own chat as an episode; questions without an answer are unanswerable."""
    data = json.loads(path.read_text(encoding="utf-8"))
    sessions = tuple(
        Session(
            id=f"s{number}",
            at=datetime.fromisoformat(session["at"]).replace(tzinfo=UTC),
            turns=tuple(
                Turn(
                    id=f"s{number}:{place}",
                    speaker=name,
                    text=text,
                    trust=Trust.ASSISTANT if name == "Assistant" else Trust.USER,
                )
                for place, (name, text) in enumerate(session["turns"])
            ),
        )
        for number, session in enumerate(data["sessions"])
    )
    probes = tuple(
        Probe(
            id=f"q{number}",
            question=question,
            answers=(gold,) if gold else (),
            unanswerable=gold is None,
        )
        for number, (question, gold) in enumerate(data["questions"])
    )
    return Episode(id="own-chat", sessions=sessions, probes=probes)


def is_right(answer: Answer, probe: Probe) -> bool:
    """Whether an answer is right; see the first lines."""
    if probe.unanswerable or answer.abstained:
        return False
    cited = {citation.turn_id for citation in answer.citations}
    words = set(tokenize(answer.text))
    told = any((need := set(tokenize(gold))) and need <= words for gold in probe.answers)
    return told or bool(cited & set(probe.evidence_turn_ids))


async def judged(episode: Episode, design: str = "verbatim") -> list[Judged]:
    """Remember an episode and ask its questions."""
    async with open_agent(path=":memory:", design=design, embedder="static") as agent:
        for session in episode.sessions:
            await agent.remember(session)
        at = max((session.at for session in episode.sessions if session.at), default=None)
        results: list[Judged] = []
        for probe in episode.probes:
            question: Question = probe.as_question(at=at, k=30)
            answer = await agent.ask(question)
            results.append(Judged(answer, probe.unanswerable, is_right(answer, probe)))
        return results


def figures(results: list[Judged]) -> dict[str, object]:
    """Return the figures of some answers."""
    count = len(results)
    given = [entry for entry in results if not entry.answer.abstained]
    surest = sorted(results, key=lambda entry: -entry.probability)
    supported = [entry for entry in given if entry.answer.verdict is Verdict.SUPPORTED]
    wrong = sum(not entry.right for entry in supported)

    def share(part: float, whole: float) -> float | None:
        return round(part / whole, 3) if whole else None

    def precision(coverage: float) -> float | None:
        first = surest[: round(coverage * count)]
        return share(sum(entry.right for entry in first), len(first))

    def refused(unanswerable: bool) -> float | None:
        asked = [entry for entry in results if entry.unanswerable is unanswerable]
        return share(sum(entry.answer.abstained for entry in asked), len(asked))

    return {
        "questions": count,
        "right": sum(entry.right for entry in results),
        "precision_at_coverage_30": precision(0.3),
        "precision_at_coverage_50": precision(0.5),
        "supported": share(len(supported), count),
        "supported_right": share(len(supported) - wrong, len(supported)),
        "supported_but_wrong": share(wrong, count),
        "unanswerable_refused": refused(True),
        "false_abstentions": refused(False),
        "bins": bins(given),
    }


def bins(given: list[Judged]) -> list[dict[str, float | int]]:
    """Return the answers given by probability: how sure they are and how many are right."""
    found: list[dict[str, float | int]] = []
    for low in (0.2, 0.4, 0.6, 0.8):
        inside = [entry for entry in given if low <= entry.probability < low + WIDTH + 1e-9]
        if inside:
            sure = sum(entry.probability for entry in inside) / len(inside)
            right = sum(entry.right for entry in inside) / len(inside)
            found.append({"answers": len(inside), "sure": round(sure, 3), "right": round(right, 3)})
    return found


def figure(points: list[dict[str, float | int]], caption: str) -> str:
    """Draw a reliability figure: how many are right over how sure they are."""
    side, edge = 300, 50

    def x(value: float) -> float:
        return round(edge + side * value, 1)

    def y(value: float) -> float:
        return round(edge + side * (1 - value), 1)

    ticks = "".join(
        f'<text x="{x(t)}" y="{edge + side + 18}" text-anchor="middle">{t:.1f}</text>'
        f'<text x="{edge - 8}" y="{y(t) + 4}" text-anchor="end">{t:.1f}</text>'
        f'<path d="M{x(0)} {y(t)}H{x(1)}" stroke="#ccc"/>'
        for t in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    )
    line = " ".join(f"{x(float(p['sure']))},{y(float(p['right']))}" for p in points)
    dots = "".join(
        f'<circle cx="{x(float(p["sure"]))}" cy="{y(float(p["right"]))}" r="5" fill="#1f6feb">'
        f"<title>{p['answers']} answers: {p['sure']} sure, {p['right']} right</title></circle>"
        for p in points
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {side + 100} '
        f'{side + 110}" font-family="sans-serif" font-size="12" fill="#57606a">'
        f"<title>{caption}</title>{ticks}"
        f'<path d="M{x(0)} {y(0)}L{x(1)} {y(1)}" stroke="#8b949e" stroke-dasharray="4 4"/>'
        f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="2"/>{dots}'
        f'<text x="{x(0.5)}" y="{edge + side + 38}" text-anchor="middle">probability</text>'
        f'<text x="{edge}" y="{edge - 14}">share of answers that are right</text></svg>\n'
    )


def main() -> int:
    """Write the figures and print them."""
    parser = argparse.ArgumentParser(description="How sure answers without a model rightly are.")
    parser.add_argument("folder", type=Path, help="a folder of LoCoMo conversations")
    parser.add_argument("conversations", nargs="+", help="the conversations, by id")
    parser.add_argument("--design", default="learned")
    parser.add_argument("--worlds", default="", help="levels of generated worlds, by commas")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "research" / "results")
    chosen = parser.parse_args()
    sets = {
        episode.id: asyncio.run(judged(episode, chosen.design))
        for episode in LoCoMo(chosen.folder).episodes()
        if episode.id in chosen.conversations
    }
    for level in filter(None, chosen.worlds.split(",")):
        worlds = synthetic(level, sessions=8, seed=SEED, episodes=WORLDS).episodes("test")
        sets[level] = [e for world in worlds for e in asyncio.run(judged(world, chosen.design))]
    conversations = [entry for results in sets.values() for entry in results]
    sets["own-chat"] = asyncio.run(judged(own_chat(), chosen.design))
    everything = [*conversations, *sets["own-chat"]]
    report = {
        "weights": open_model().digest,
        "conversations": figures(conversations),
        "all": figures(everything),
        **{name: figures(results) for name, results in sets.items()},
    }
    text = json.dumps(report, indent=1)
    name = "certainty"
    if chosen.design != "learned" or chosen.worlds:
        name = f"certainty-{chosen.design}"
    chosen.into.mkdir(parents=True, exist_ok=True)
    (chosen.into / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    caption = f"Reliability of {len(everything)} answers without a model"
    (chosen.into / f"{name}.svg").write_text(
        figure(bins([e for e in everything if not e.answer.abstained]), caption), encoding="utf-8"
    )
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
