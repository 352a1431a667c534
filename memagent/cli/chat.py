"""`memagent chat`: a conversation in the terminal, or one message a line from a pipe.

A reply is printed as the model speaks; the exchange is remembered in the background. A
line that begins with a slash is a command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from typer import Option

import memagent
from memagent.cli import views
from memagent.cli.arguments import LeastTrust, find_id
from memagent.cli.frame import Options, emit, failed, neutral, plain, tell
from memagent.cli.stores import read_settings, store_path
from memagent.core.errors import InputError, MemAgentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memagent.core.answers import Reply
    from memagent.core.reports import IngestReport

COMMANDS = (
    "/why shows what the last reply rests on, /memories lists the newest memories, "
    "/forget ID deletes one, /undo takes back the last change, /quit ends"
)
_SHOWN = 20

Thread = Annotated[
    str | None,
    Option("--thread", help="The conversation to go on with; a new one unless given."),
]


def chat(options: Options, thread: Thread = None, min_trust: LeastTrust = None) -> int:
    """Talk with the agent: it replies with what it remembers and remembers what you say.

    Also reads messages from a pipe, one a line; the exit code is 1 then if one failed.
    """
    settings = read_settings(options)
    path = store_path(options, settings)
    agent = memagent.Agent(
        options.model,
        options.scope.user_id,
        path if path is not None else ":memory:",
        embedder=options.embedder,
        settings=settings,
        thread=thread,
    )
    code, piped = 0, not sys.stdin.isatty()
    with agent:
        _tell_unfinished(agent.resume(on_error="keep"))
        if not piped:
            tell(f"memory of {options.user_id!r}, design {agent.design.name}; {COMMANDS}")
        talk = _Talk(agent, options, min_trust)
        for message in _messages(options):
            if message == "/quit":
                break
            try:
                talk.take(message)
            except MemAgentError as exc:
                code = failed(options, exc)
        _tell_unfinished(agent.flush(on_error="keep"))
    return code if piped else 0


def _messages(options: Options) -> Iterator[str]:
    """Yield the lines of the input that are not empty."""
    prompts = sys.stdin.isatty() and sys.stdout.isatty() and not options.json
    if prompts:
        with suppress(ImportError):
            import_module("readline")  # arrow keys bring earlier lines back
    while True:
        try:
            text = input("you> ") if prompts else sys.stdin.readline()
        except EOFError:
            return
        if not text and not prompts:
            return
        if text.strip():
            yield text.strip()


class _Talk:
    """A conversation: what is said to the agent, and the commands."""

    def __init__(
        self, agent: memagent.Agent, options: Options, min_trust: str | None = None
    ) -> None:
        self._agent, self._options, self._min_trust = agent, options, min_trust
        self._last: Reply | None = None

    def take(self, message: str) -> None:
        """Reply to a message, or carry out a command."""
        if not message.startswith("/"):
            # so that a reply rests on the message before, too
            _tell_unfinished(self._agent.flush(on_error="keep"))
            self._last = self._reply(message)
            return
        word, _, rest = message.partition(" ")
        match word:
            case "/undo":
                _tell_unfinished(self._agent.flush(on_error="keep"))
                commit = self._agent.memory.undo()
                emit(self._options, {"undone": commit}, lambda: views.commit_view(commit))
            case "/forget":
                self._forget(rest.strip())
            case "/memories":
                self._memories()
            case "/why":
                self._why()
            case _:
                raise InputError(f"there is no command {word}; {COMMANDS}")

    def _reply(self, message: str) -> Reply:
        if self._options.json:
            reply = self._agent.chat(message, min_trust=self._min_trust)
            document = {"answer": reply.model_dump(mode="json", exclude={"hits"})}
            emit(self._options, document, lambda: plain(""))
            return reply
        reply = None
        for delta in self._agent.stream_chat(message, min_trust=self._min_trust):
            sys.stdout.write(neutral(delta.text))
            sys.stdout.flush()
            reply = delta.reply or reply
        assert reply is not None
        sys.stdout.write("\n")
        emit(self._options, None, partial(views.receipt_view, reply))
        return reply

    def _forget(self, name: str) -> None:
        _tell_unfinished(self._agent.flush(on_error="keep"))
        items = {item.id: item for item in self._agent.memory.get_all()}
        item = items[find_id(items, name, user_id=self._agent.user_id)]
        self._agent.memory.delete(item.id)
        emit(self._options, {"forgotten": item}, lambda: plain(f"forgotten: {item.text}"))

    def _memories(self) -> None:
        _tell_unfinished(self._agent.flush(on_error="keep"))
        items = self._agent.memory.get_all()[-_SHOWN:]
        emit(self._options, {"memories": items}, lambda: views.items_table(items))

    def _why(self) -> None:
        reply = self._last
        if reply is None:
            raise InputError("there is no reply yet")
        document = {"why": reply.model_dump(mode="json", include={"hits", "citations", "notes"})}
        emit(self._options, document, lambda: views.answer_view(reply, why=True))


def _tell_unfinished(reports: Sequence[IngestReport]) -> None:
    for chunk in (chunk for report in reports for chunk in report.failed_chunks):
        tell(
            f"memagent: stored, but not yet remembered: {chunk.failure}; the next chat tries again"
        )
