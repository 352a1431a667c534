"""A guided run in eight answers: a memory is told, changed, asked as of then, and undone.

No model, no key, no network. Every line after `>>>` is the line that runs.

python examples/demo.py
"""

from __future__ import annotations

import re
import time
from typing import Any

from rich.console import Console
from rich.text import Text

from memagent import Agent, Answer
from memagent.core.answers import Verdict
from memagent.core.snapshot import HistoryEntry

TOLD = (
    ("2026-01-12", "I live in Lisbon."),
    ("2026-01-12", "My dog Rex is allergic to chicken."),
    ("2026-02-20", "I work as a nurse at the Santa Maria hospital."),
)
MOVED = ("2026-06-02", "I don't live in Lisbon any more, I moved to Porto last Saturday.")
STORY = (
    ("Told", TOLD, 'agent.ask("Where do I live?")'),
    ("Changed", (MOVED,), 'agent.ask("Where do I live now?")'),
    ("Asked for the date, told as 'last Saturday'", (), 'agent.ask("When did I move to Porto?")'),
    ("As of then", (), 'agent.ask("Where do I live?", as_of="2026-03-01")'),
    ("Why: the versions of that memory", (), "agent.memory.history(_.citations[0].hit_id)"),
    ("Never told", (), 'agent.ask("Which car do I drive?")'),
    ("All about me", (), 'agent.ask("What do you know about me?")'),
    ("Undone: the move was a mistake", ("undo",), 'agent.ask("Where do I live now?")'),
)
"""For each answer its title, what happens before it, and the line that gets it."""
COLOURS = {Verdict.SUPPORTED: "green", Verdict.ABSTAINED: "yellow"}


def main() -> None:
    """Play the story on a memory that is gone afterwards."""
    screen = Console(highlight=False, markup=False, soft_wrap=True)
    began = time.perf_counter()
    with Agent(path=":memory:", user_id="ana") as agent:
        names: dict[str, Any] = {"agent": agent}
        for number, (title, before, line) in enumerate(STORY, start=1):
            screen.print(Text(f"\n{number}. {title}", "bold"))
            for event in before:
                run(screen, command_of(event), names)
            result = run(screen, line, names)
            names["_"] = result  # as in Python's own prompt
            if isinstance(result, Answer):
                show_answer(screen, result)
            else:
                show_history(screen, result)
    seconds = time.perf_counter() - began
    screen.print(f"\nEight answers in {seconds:.1f} s, without a model, a key or a server.")


def command_of(event: str | tuple[str, str]) -> str:
    """Return the line that tells the memory a sentence, or takes the last change back."""
    if isinstance(event, str):
        return f"agent.memory.{event}()"
    day, text = event
    return f'agent.remember("{text}", at="{day}")'


def run(screen: Console, line: str, names: dict[str, Any]) -> Any:
    """Print a line of this file and run it."""
    screen.print(Text(f">>> {line}", "cyan"))
    return eval(line, {}, names)


def show_answer(screen: Console, answer: Answer) -> None:
    """Print the answer, its evidence below it and the verdict."""
    first, *evidence = answer.text.split("\n")
    colour = COLOURS.get(answer.verdict, "red")
    screen.print(Text(f"    {first}", f"bold {colour}"), Text(f"({answer.verdict.value})", "dim"))
    for quoted in evidence:
        screen.print(Text(f"    {quoted}"))


def show_history(screen: Console, history: list[HistoryEntry]) -> None:
    """Print the versions of a memory, each with the reason for it."""
    for entry in history:
        if entry.item is not None:
            screen.print(Text(f"    version {entry.item.version}: {entry.item.text}"))
        if entry.op is not None and entry.op.reason:
            reason = re.sub(r"what \S+ said", "the version before", entry.op.reason)
            screen.print(Text(f"    {entry.op.op} because {reason}", "dim"))


if __name__ == "__main__":
    main()
