"""Play memory designs in every set of acting tasks: `python scripts/acting_table.py`.

Arms: the oracle, random actions, the set's player without memory (of the stream, or of
all but the last step of a long task) and with its whole history, and the designs.
Designs that learn play the sets in which a stream has habits; designs that keep a
workspace small play those in which a single task is long. Models are scripts
(`acting_notes.py`); the arms of a small trained policy are those of
`trained_memory.py`. A cell is kept in the JSON file, so a run that was stopped goes on.

    python scripts/acting_table.py --into benchmarks/measured/acting.json
    python scripts/acting_table.py --page docs/research/acting.md
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from acting_notes import as_cases, noted
from pages import write_part

from environments.acting.play import OraclePlayer, Player, RandomPlayer, play_task
from environments.acting.task import open_task_set
from memagent.build import open_agent
from memagent.core.records import MemoryItem
from memagent.core.trials import Edit, Trial
from memagent.core.workspace import Workspace, workspace_of
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.parts.lessons import all_but_last
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.embed.static import TABLE_FOLDER, WordPiece
from memagent.testing import FunctionModel

STREAMS: Final = ("procedures", "tiny_house", "tiny_shop")
LONG: Final = ("execution_horizon", "topic_switch", "schedule", "hidden_rule")
LEARNING: Final = ("exp_rag", "re_mem", "mem_rl", "ace", "mistake_notebook", "case_bank")
WORKING: Final = ("mem1", "delethink", "memo", "mem_act")
TIDIED: Final = ("ace",)
PLAIN: Final = ("oracle", "random", "no memory", "full history")
COLUMNS: Final = ("success", "reward", "steps", "words", "tokens", "memories", "size", "rise")
_PIECES: Final = WordPiece((TABLE_FOLDER / "vocab.txt").read_text("utf-8").split("\n"))


@lru_cache(maxsize=50_000)
def tokens_of(line: str) -> int:
    """Count the tokens of a line by the word pieces that the package ships."""
    return sum(len(_PIECES.pieces(word)) or 1 for word in _PIECES.words(line))


def tokens_in(text: str) -> int:
    """Count the tokens of a text."""
    return sum(tokens_of(line) for line in text.split("\n"))


@dataclass
class Measured:
    """A player that counts the words and the tokens shown to it."""

    player: Player
    words: int = 0
    tokens: int = 0

    async def act(self, task: Any, memories: Sequence[MemoryItem], trial: Trial) -> str | None:
        """Return the player's action."""
        texts = [workspace_of(trial).prompt, *(item.text for item in memories)]
        self.words += sum(len(text.split()) for text in texts)
        self.tokens += sum(map(tokens_in, texts))
        return await self.player.act(task, as_cases(memories), trial)


async def last_step_only(workspace: Workspace, _: SlotContext, /) -> Edit | None:
    """Cut all but the last step: the arm without memory of a long task."""
    places = all_but_last(workspace)
    return Edit(at=0, folds=places) if places else None


def design_of(arm: str, *, long: bool) -> MemoryDesign | str | None:
    """Return the design of an arm; None plays without an agent."""
    if arm == "no memory" and long:
        return replace(VERBATIM, compactor=last_step_only)
    if arm == "full history":
        return VERBATIM if long else "exp_rag"
    return None if arm in PLAIN else arm


async def played(name: str, arm: str, *, seed: int, count: int) -> dict[str, float]:
    """Return the figures of one arm over one stream."""
    tasks = open_task_set(name)
    stream = tasks.stream(seed, count)
    own: Player = tasks.player(seed)
    player = Measured({"oracle": OraclePlayer(), "random": RandomPlayer(seed)}.get(arm, own))
    design = design_of(arm, long=name in LONG)
    trials, kept = list[Trial](), list[MemoryItem]()
    if design is None:
        trials = [await play_task(task, player) for task in stream]
    else:
        model, k = FunctionModel(noted), 200 if arm == "full history" else 40
        async with open_agent(
            path=":memory:", embedder="hashing", design=design, model=model
        ) as agent:
            for task in stream:
                trials.append(await play_task(task, player, agent=agent, k=k))
                if arm in TIDIED and len(trials) % 20 == 0:
                    await agent.tidy()
            kept = await agent.memory.get_all(limit=None)
    won = [float(trial.outcome is not None and trial.outcome.good) for trial in trials]
    third = max(count // 3, 1)
    return {
        "success": fmean(won),
        "reward": fmean(trial.outcome.reward for trial in trials if trial.outcome),
        "steps": fmean(len(trial.steps) for trial in trials),
        "words": player.words / count,
        "tokens": player.tokens / count,
        "memories": float(len(kept)),
        "size": float(sum(tokens_in(item.text) for item in kept)),
        "rise": fmean(won[-third:]) - fmean(won[:third]),
    }


def arms(name: str) -> tuple[str, ...]:
    """Return the arms that play a set."""
    return (*PLAIN, *(LEARNING if name in STREAMS else WORKING))


def measure(into: Path, *, seeds: int, tasks: int, runs: int) -> None:
    """Fill the file cell by cell."""
    known: dict[str, Any] = json.loads(into.read_text("utf-8")) if into.exists() else {}
    for name in (*LONG, *STREAMS):
        count = tasks if name in STREAMS else runs
        for arm in arms(name):
            key = f"{name} / {arm}"
            rows: list[dict[str, float]] = known.setdefault(key, [])
            for seed in range(len(rows), seeds):
                rows.append(asyncio.run(played(name, arm, seed=seed, count=count)))
                into.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            print(key, f"{fmean(row['success'] for row in rows):.2f}", flush=True)


def table(source: Path) -> str:
    """Return the Markdown tables of a file of figures, one for each set."""
    known: dict[str, list[dict[str, float]]] = json.loads(source.read_text("utf-8"))
    lines: list[str] = []
    for name in (*STREAMS, *LONG):
        lines += [f"## {name}", "", f"| arm | {' | '.join(COLUMNS)} |"]
        lines.append("| --- " * (1 + len(COLUMNS)) + "|")
        for arm in arms(name):
            rows = known.get(f"{name} / {arm}", [])
            if rows:
                lines.append(f"| {arm} | {' | '.join(_cell(rows, column) for column in COLUMNS)} |")
        lines.append("")
    return "\n".join(lines)


def trained_table(source: Path) -> str:
    """Return the Markdown table of the small trained policy, means over its seeds."""
    known: dict[str, dict[str, dict[str, float]]] = json.loads(source.read_text("utf-8"))
    columns = ("success", "reward", "steps", "words", "refused", "seeds")
    lines = ["", "## short talks", "", f"| arm | {' | '.join(columns)} |"]
    lines.append("| --- " * (1 + len(columns)) + "|")
    for arm in next(iter(known.values())):
        rows = [arms[arm] for arms in known.values()]
        cells = [_cell(rows, column) for column in columns[:-1]]
        lines.append(f"| {arm} | {' | '.join(cells)} | {len(rows)} |")
    return "\n".join(lines) + "\n"


def _cell(rows: Sequence[dict[str, float]], column: str) -> str:
    values = [row[column] for row in rows]
    digits = (
        0 if column in ("words", "tokens", "memories", "size") else 1 if column == "steps" else 2
    )
    spread = f" +- {stdev(values):.{digits}f}" if len(values) > 1 and column != "steps" else ""
    return f"{fmean(values):.{digits}f}{spread}"


def main() -> int:
    """Measure, or print the tables of what was measured into a page."""
    parser = argparse.ArgumentParser(description="Table of designs and acting tasks.")
    parser.add_argument("--into", type=Path, default=Path("benchmarks/measured/acting.json"))
    parser.add_argument("--page", type=Path, help="Markdown page; its tables are replaced")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=60, help="tasks of a stream")
    parser.add_argument("--runs", type=int, default=1, help="tasks of a set of long ones")
    given = parser.parse_args()
    if given.page is None:
        measure(given.into, seeds=given.seeds, tasks=given.tasks, runs=given.runs)
        return 0
    tables = table(given.into)
    if (trained := given.into.with_name("trained_memory.json")).exists():
        tables += trained_table(trained)
    write_part(given.page, "acting tables", tables)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
