"""Twelve tasks of somebody's first day with memagent, played from the documents alone.

A task is a section of a page: its blocks run as they stand, after the sections before it.
It ends as the page says when every block prints what the page shows. As a script this
plays the tasks and prints a table with the seconds of each:
PYTHONPATH=tests/kits python tests/kits/first_tasks.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from doc_pages import Outcome, blocks_of, comparable, played
from docs_model import docs_model
from places import ROOT
from scripted_server import ScriptedServer


class Task(NamedTuple):
    """What a first-time user wants, and the section that shows how."""

    aim: str
    page: str
    heading: str


TASKS = (
    Task("try it without a key", "README.md", "Sixty seconds without a key"),
    Task("get a cited answer, and an honest no", "docs/quickstart.md", "Remember and ask"),
    Task("change a memory, look back, undo", "docs/quickstart.md", "Change, look back, undo"),
    Task("correct a memory by hand", "docs/how-to.md", "Correct a memory in the terminal"),
    Task("distil memories with a model", "docs/tutorial.md", "Remember a conversation"),
    Task("see a memory updated, and its past", "docs/tutorial.md", "Let life change"),
    Task("survive a model that is away", "docs/tutorial.md", "When the model is away"),
    Task("use a local model", "docs/tutorial.md", "The same with Ollama"),
    Task("stream a reply that knows an older thread", "docs/chat.md", "Streaming"),
    Task("put it behind an HTTP endpoint", "docs/how-to.md", "A FastAPI app"),
    Task("erase a user", "docs/how-to.md", "Erasure"),
    Task("find out why something is missing", "docs/how-to.md", "Why did it not remember X?"),
)
PAGES = tuple(dict.fromkeys(task.page for task in TASKS))


class Result(NamedTuple):
    """How a task ended."""

    task: Task
    as_shown: bool
    seconds: float


def results(outcomes: Mapping[str, Outcome]) -> Iterator[Result]:
    """Yield how each task ended, from the outcomes of its pages."""
    for task in TASKS:
        outcome = outcomes[task.page]
        blocks = blocks_of((ROOT / task.page).read_text(encoding="utf-8"))
        places = [place for place, one in enumerate(blocks) if one.heading == task.heading]
        as_shown = bool(places) and all(
            place < len(outcome.outputs)
            and comparable(outcome.outputs[place]) == comparable(blocks[place].output)
            for place in places
        )
        yield Result(task, as_shown, sum(outcome.seconds[place] for place in places if as_shown))


def main() -> int:
    """Play the tasks and print how each ended."""
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    with ScriptedServer(docs_model) as server, tempfile.TemporaryDirectory() as folder:
        outcomes = played(pages, Path(folder).resolve(), model_url=server.url)
    ended = list(results(outcomes))
    for number, (task, as_shown, seconds) in enumerate(ended, 1):
        state = "as shown" if as_shown else "NOT as shown"
        sys.stdout.write(f"{number:2} {seconds:5.1f} s  {state}  {task.aim}  ({task.page})\n")
    sys.stdout.write(f"   {sum(result.seconds for result in ended):5.1f} s in all\n")
    return 0 if all(result.as_shown for result in ended) else 1


if __name__ == "__main__":
    sys.exit(main())
