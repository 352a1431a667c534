"""`memagent chat`: a conversation in the terminal, or one message a line from a pipe.

Each message is answered from memory and then remembered with its answer in the
background. A line that begins with a slash is a command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import memagent
from memagent.cli import views
from memagent.cli.arguments import find_id
from memagent.cli.frame import Options, emit, failed, tell
from memagent.cli.stores import read_settings, store_path
from memagent.cli.terminal import plain
from memagent.core.errors import InputError, MemAgentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memagent.core.reports import IngestReport

COMMANDS = "/undo takes back the last change, /forget ID deletes a memory, /quit ends"


def chat(options: Options) -> int:
    """Talk with the agent: it answers from memory and remembers what you say.

    Also reads messages from a pipe, one a line.
    """
    settings = read_settings(options)
    path = store_path(options, settings)
    agent = memagent.Agent(
        options.model,
        options.scope.user_id,
        path if path is not None else ":memory:",
        embedder=options.embedder,
        settings=settings,
    )
    with agent:
        _tell_unfinished(agent.resume(on_error="keep"))
        if sys.stdin.isatty():
            tell(f"memory of {options.user_id!r}, design {agent.design.name}; {COMMANDS}")
        for message in _messages(options):
            if message == "/quit":
                break
            try:
                _answer(agent, options, message)
            except MemAgentError as exc:
                failed(options, exc)
        _tell_unfinished(agent.flush(on_error="keep"))
    return 0


def _messages(options: Options) -> Iterator[str]:
    """Yield the lines of the input that are not empty."""
    prompts = sys.stdin.isatty() and sys.stdout.isatty() and not options.json
    while True:
        try:
            text = input("you> ") if prompts else sys.stdin.readline()
        except EOFError:
            return
        if not text and not prompts:
            return
        if text.strip():
            yield text.strip()


def _answer(agent: memagent.Agent, options: Options, message: str) -> None:
    _tell_unfinished(agent.flush(on_error="keep"))  # so that the answer uses the last message too
    if not message.startswith("/"):
        answer = agent.chat(message)
        emit(
            options,
            {"answer": answer.model_dump(mode="json", exclude={"hits"})},
            lambda: views.answer_view(answer),
        )
        return
    word, _, rest = message.partition(" ")
    match word:
        case "/undo":
            commit = agent.memory.undo()
            emit(options, {"undone": commit}, lambda: views.commit_view(commit))
        case "/forget":
            items = {item.id: item for item in agent.memory.get_all()}
            item = items[find_id(items, rest.strip(), user_id=agent.user_id)]
            agent.memory.delete(item.id)
            emit(options, {"forgotten": item}, lambda: plain(f"forgotten: {item.text}"))
        case _:
            raise InputError(f"there is no command {word}; {COMMANDS}")


def _tell_unfinished(reports: Sequence[IngestReport]) -> None:
    for chunk in (chunk for report in reports for chunk in report.failed_chunks):
        tell(
            f"memagent: stored, but not yet remembered: {chunk.failure}; the next chat tries again"
        )
