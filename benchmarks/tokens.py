"""Benchmark of the tokens of prompts, and of how many gold turns they hold.

Conversations of LoCoMo go through a design turn by turn, a scripted model stands for a
real one: it notes each turn as it was said and adds every note, so that all code is
given the same memory. Counted are the tokens of whole prompts by the tokenizer of
SmolLM2 (`scripts/fetch_small_model.py` fetches it), by role, for each turn remembered
and each question asked, and the part of the gold turns of all questions that the
answering prompt shows. Lines that two prompts share from their start can be cached by a
provider; `fixed first` is the share of an answering prompt's tokens that it has in
common with the one before.

    python benchmarks/tokens.py CONVERSATION... [--design memory_r2] [--baseline FOLDER]

`--baseline` measures another checkout of this repository too, and prints both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from platformdirs import user_cache_path

from environments.datasets.locomo_files import read_locomo
from memagent import AsyncAgent, MemoryBank
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Usage
from memagent.core.records import Chunk, Session
from memagent.embed.static import StaticEmbedder
from memagent.memory.incoming import split_session
from memagent.opening.open_store import build_design

TOKENIZER: Final = "smollm2-135m-instruct"


@dataclass
class CountingModel:
    """Notes every turn, adds every note, answers nothing, and counts what it is asked."""

    count: Any
    chunks: dict[tuple[str, int], Chunk] = field(default_factory=dict[tuple[str, int], Chunk])
    noted: int = 0
    tokens: Counter[str] = field(default_factory=Counter[str])
    calls: Counter[str] = field(default_factory=Counter[str])
    prompt: str = ""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Count the tokens of a request and answer it."""
        self.prompt = "\n".join(message.content for message in request.messages)
        size = self.count(self.prompt)
        self.tokens[request.role.value] += size
        self.calls[request.role.value] += 1
        return ModelResponse(
            id=f"r{sum(self.calls.values())}",
            text=json.dumps(self._reply(request)),
            usage=Usage(),
        )

    def _reply(self, request: ModelRequest) -> dict[str, object]:
        if request.role is Role.EXTRACTOR:
            step = request.step
            assert step.session_id is not None and step.chunk_index is not None
            turns = self.chunks[step.session_id, step.chunk_index].turns
            self.noted = len(turns)
            facts = [
                {"text": t.said, "subject": t.speaker, "source": t.id, "when": None, "kind": "fact"}
                for t in turns
            ]
            return {"facts": facts}
        if request.role is Role.MANAGER:
            return {"ops": [{"op": "ADD", "fact": place} for place in range(self.noted)]}
        return {"citations": [], "answer": "", "abstain": True}


async def measured(path: Path, design: str) -> dict[str, float]:
    """Return the figures of one conversation, as sums."""
    from tokenizers import Tokenizer

    home = user_cache_path("memagent", appauthor=False) / TOKENIZER
    encode: Any = Tokenizer.from_file(str(home / "tokenizer.json")).encode
    (conversation,) = read_locomo(path)
    made = build_design(design, has_model=True)
    model = CountingModel(lambda text: len(encode(text).ids))
    agent = AsyncAgent(design=made, model=model, bank=MemoryBank(embedder=StaticEmbedder()))
    turns = 0
    for session in conversation.sessions:
        for chunk in chunks_of(session, agent):
            model.chunks[session.id, chunk.index] = chunk
        await agent.remember(session)
        turns += len(session.turns)
    ingest = sum(model.tokens.values())
    figures = defaultdict[str, float](float, turns=turns, ingest=ingest)
    figures.update({f"ingest, {role}": size for role, size in model.tokens.items()})
    model.tokens.clear()
    before = ""
    for question in conversation.questions:
        if not question.evidence_turn_ids:
            continue
        answer = await agent.ask(question.text)
        shown = {turn for hit in answer.hits for turn in hit.source_turn_ids}
        gold = set(question.evidence_turn_ids)
        figures["questions"] += 1
        figures["gold"] += len(gold & shown) / len(gold)
        figures["memories"] += len(answer.hits)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before, model.prompt, strict=False))
        figures["same"] += sum(1 for _ in same) / len(model.prompt)
        before = model.prompt
    figures["ask"] = sum(model.tokens.values())
    return dict(figures)


def chunks_of(session: Session, agent: AsyncAgent) -> tuple[Chunk, ...]:
    """Return the chunks that the agent cuts a session into."""
    return split_session(session, chunk_turns=agent.design.chunk_turns)


def summary(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return means over all turns and all questions."""
    total = Counter[str]()
    for row in rows:
        total.update(row)
    turns, questions = total["turns"], total["questions"]
    per_turn = {name: total[name] / turns for name in total if name.startswith("ingest")}
    return {
        **{f"{name}, tokens a turn": round(value, 1) for name, value in per_turn.items()},
        "ask, tokens a question": round(total["ask"] / questions, 1),
        "memories shown a question": round(total["memories"] / questions, 2),
        "gold turns in the prompt": round(total["gold"] / questions, 4),
        "fixed first, share of a prompt": round(total["same"] / questions, 3),
        "turns": turns,
        "questions": questions,
    }


def main() -> None:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--design", default="memory_r2")
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [asyncio.run(measured(path, options.design)) for path in options.paths]
    now = summary(rows)
    if options.json:
        sys.stdout.write(json.dumps(now) + "\n")
        return
    before: dict[str, float] = {}
    if options.baseline is not None:
        command = [sys.executable, __file__, *map(str, options.paths)]
        out = subprocess.run(
            [*command, "--design", options.design, "--json"],
            env={**os.environ, "PYTHONPATH": str(options.baseline.absolute())},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        before = json.loads(out.stdout)
    for name, value in now.items():
        was = before.get(name)
        less = f"  was {was:10,}  {1 - value / was:6.1%} less" if was else ""
        sys.stdout.write(f"{name:34} {value:10,}{less}\n")
    sys.stdout.write(json.dumps({"benchmark": "tokens", "now": now, "before": before}) + "\n")


if __name__ == "__main__":
    main()
