"""The commands that take words in: `ingest` from a file, `chat` from a terminal or a pipe.

`ingest` shows progress and a summary. Sessions that are remembered already are skipped,
so running the same command again goes on where the last run stopped. Sessions are taken
in order, because each builds on the memories of those before; a chunk that fails stops
its conversation unless the caller wants to go on.

`chat` prints a reply as the model speaks; the exchange is remembered in the background.
A line that begins with a slash is a command.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group, RenderableType
from typer import Argument, Option

import memagent
from memagent.cli import views
from memagent.cli.frame import (
    INTERRUPTED,
    Options,
    emit,
    failed,
    message_of,
    neutral,
    pairs,
    plain,
    progress,
    tell,
)
from memagent.cli.stores import LeastTrust, find_id, opened, read_settings, store_path
from memagent.core.errors import InputError, MemAgentError

if TYPE_CHECKING:
    from memagent.async_agent import AsyncAgent
    from memagent.build import Store
    from memagent.core.answers import Reply
    from memagent.core.exchange import Usage
    from memagent.core.records import Session
    from memagent.core.snapshot import IngestReport
    from memagent.readers import Conversation

OPS = ("ADD", "UPDATE", "DELETE", "NOOP")


@dataclass(slots=True)
class Tally:
    """The counts of one run."""

    file: str
    usage: Usage
    users: list[str] = field(default_factory=list[str])
    sessions: int = 0
    """Sessions remembered in this run, at least in part."""
    skipped: int = 0
    """Sessions remembered completely before."""
    turns: int = 0
    chunks: int = 0
    ops: Counter[str] = field(default_factory=Counter[str])
    rejected: Counter[str] = field(default_factory=Counter[str])
    """Refused ops by reason."""
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    warnings: list[str] = field(default_factory=list[str])
    began: float = field(default_factory=time.monotonic)
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """The wall time so far."""
        return time.monotonic() - self.began

    @property
    def complete(self) -> bool:
        """Whether the whole file is remembered now."""
        return not self.failures and not self.interrupted

    def count(self, report: IngestReport, turns: dict[int, int], *, user: str) -> None:
        """Add the report of one session; `turns` is the number of turns in each of its chunks."""
        if report.skipped:
            self.skipped += 1
            return
        self.sessions += 1
        done = [chunk for chunk in report.chunks if chunk.failure is None]
        self.turns += sum(turns[chunk.index] for chunk in done)
        self.chunks += len(done)
        for chunk in report.chunks:
            self.ops.update(applied.op.op for applied in chunk.applied)
            self.rejected.update(op.reason.value for op in chunk.rejected)
        self.usage += report.usage
        for chunk in report.failed_chunks:
            self.fail(
                chunk.failure or "", user=user, session=report.session_id, chunk=chunk.chunk_id
            )

    def fail(
        self, why: str, *, user: str, session: str, chunk: str | None = None, retry: bool = True
    ) -> None:
        """Note a failed session or chunk; `retry` says that another run may do better."""
        self.failures.append(
            {"user": user, "session": session, "chunk": chunk, "why": why, "retry": retry}
        )

    @property
    def tokens(self) -> int:
        """The prompt and completion tokens of all calls."""
        return self.usage.prompt_tokens + self.usage.completion_tokens

    @property
    def turns_per_s(self) -> float:
        """The turns remembered per second of wall time."""
        return self.turns / max(self.seconds, 1e-9)

    def status(self) -> str:
        """Return one line for the progress bar."""
        ops = " ".join(f"{name} {self.ops[name]}" for name in OPS if self.ops[name])
        calls = f"{self.tokens:,} tokens  {_money(self.usage.cost_usd)}" if self.tokens else ""
        return "  ".join(part for part in (f"{self.turns_per_s:.0f} turns/s", ops, calls) if part)

    def document(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {
            "file": self.file,
            "users": self.users,
            "sessions": self.sessions,
            "skipped_sessions": self.skipped,
            "turns": self.turns,
            "chunks": self.chunks,
            "ops": {name: self.ops[name] for name in OPS},
            "rejected": dict(sorted(self.rejected.items())),
            "failures": self.failures,
            "warnings": self.warnings,
            "seconds": round(self.seconds, 3),
            "turns_per_s": round(self.turns_per_s, 1),
            "tokens": self.tokens,
            "cost_usd": self.usage.cost_usd,
            "complete": self.complete,
        }

    def view(self) -> RenderableType:
        """Return the summary for people."""
        before = f", {self.skipped} had been before" if self.skipped else ""
        refused = ", ".join(f"{reason} {count}" for reason, count in sorted(self.rejected.items()))
        rows: dict[str, object] = {
            "user": ", ".join(self.users),
            "sessions": f"{self.sessions} remembered{before}",
            "turns": f"{self.turns:,} in {self.chunks:,} chunks",
            "ops": ", ".join(f"{name} {self.ops[name]:,}" for name in OPS),
            "time": f"{self.seconds:.1f} s, {self.turns_per_s:,.0f} turns/s",
        }
        if refused:
            rows["refused"] = refused
        if self.tokens:
            rows["model"] = f"{self.tokens:,} tokens, {_money(self.usage.cost_usd)}"
        if self.failures:
            rows["failed"] = f"{len(self.failures)} sessions"
        return pairs(rows)


def _money(usd: float | None) -> str:
    return "cost unknown" if usd is None else f"${usd:.4f}"


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """The options of `memagent ingest`."""

    format: Annotated[
        str,
        Option(
            metavar="FORMAT",
            help="auto, whatsapp, telegram, signal, chatgpt, claude, letta, zep, messages, text, "
            "or a plug-in's.",
        ),
    ] = "auto"
    conversation: Annotated[
        str | None, Option(metavar="ID", help="Of several conversations, only this one.")
    ] = None
    limit_sessions: Annotated[
        int | None, Option(min=1, metavar="N", help="Only the first N sessions.")
    ] = None
    prefix: Annotated[
        str, Option(metavar="TEXT", help="Put before session and turn ids, against clashes.")
    ] = ""
    keep_going: Annotated[bool, Option("--keep-going", help="Go on after a chunk that failed.")] = (
        False
    )


async def ingest(
    options: Options,
    file: Annotated[
        Path,
        Argument(
            metavar="FILE",
            help="An export of WhatsApp, Telegram, Signal, ChatGPT, Claude, Letta or Zep; "
            "message JSONL, or text.",
        ),
    ],
    choices: IngestOptions,
) -> int:
    """Remember conversations from a file.

    What was remembered before is skipped, so a stopped run can be made again.
    """
    import asyncio

    from memagent.core.exchange import Usage

    conversations = _read_file(file, options, choices)
    tally = Tally(file=str(file), usage=Usage())
    with opened(options, write=True, make=True, vectors=True) as store:
        try:
            for user, conversation in conversations:
                tally.users.append(user)
                for warning in conversation.warnings:
                    tally.warnings.append(f"{conversation.id}: {warning}")
                    tell(f"warning: {tally.warnings[-1]}")
                await _remember_conversation(store, options, choices, user, conversation, tally)
                if tally.failures and not choices.keep_going:
                    break
        except InputError as exc:  # a later conversation of the file
            tally.fail(str(exc), user="", session="", retry=False)
        except asyncio.CancelledError:
            tally.interrupted = True
    emit(options, tally.document(), tally.view)
    for failure in tally.failures:
        tell(f"memagent: {failure['session'] or file}: {failure['why']}")
    if tally.interrupted or any(failure["retry"] for failure in tally.failures):
        tell(
            "memagent: not everything was remembered; "
            "run the same command again to go on from there"
        )
    return INTERRUPTED if tally.interrupted else int(not tally.complete)


async def _remember_conversation(
    store: Store,
    options: Options,
    choices: IngestOptions,
    user: str,
    conversation: Conversation,
    tally: Tally,
) -> None:
    sessions = conversation.sessions[: choices.limit_sessions]
    agent = store.agent(memagent.Scope(user_id=user), model=options.model)
    with progress(len(sessions), f"sessions of {user}") as advance:
        for session in sessions:
            turns = tuple(
                turn.model_copy(update={"id": f"{choices.prefix}{turn.id}"})
                for turn in session.turns
            )
            named = {"id": f"{choices.prefix}{session.id}", "turns": turns}
            await _remember(agent, session.model_copy(update=named), tally)
            advance(tally.status(), 1)
            if options.verbose:
                tell(f"{user}, {choices.prefix}{session.id}: {tally.status()}")
            if tally.failures and not choices.keep_going:
                break


async def _remember(agent: AsyncAgent, session: Session, tally: Tally) -> None:
    """Remember one session and count its outcome, failures too."""
    from memagent.memory.incoming import split_session

    user = agent.bank.scope.user_id
    chunks = split_session(session, chunk_turns=agent.design.chunk_turns)
    try:
        report = await agent.remember(session, on_error="keep")
    except InputError as exc:
        hint = (
            f"if this is another conversation than user {user!r} has, "
            "give it another --user, or its sessions a --prefix"
        )
        tally.fail(f"{exc}; {hint}", user=user, session=session.id, retry=False)
    except MemAgentError as exc:
        tally.fail(message_of(exc), user=user, session=session.id)
    else:
        tally.count(report, {chunk.index: len(chunk.turns) for chunk in chunks}, user=user)


# -- reading ---------------------------------------------------------------------------


def _read_file(
    file: Path, options: Options, choices: IngestOptions
) -> Iterable[tuple[str, Conversation]]:
    """Pair each conversation of a file with its user.

    A single conversation goes to `--user`; several go to users of their own names and
    are read one by one. Raises `InputError` for a file that cannot be read, and for one
    user named for several conversations.
    """
    from memagent.readers import iter_conversations

    conversations = iter_conversations(file, choices.format)
    if choices.conversation is not None:
        names: list[str] = []
        for conversation in conversations:
            names.append(conversation.id)
            if conversation.id == choices.conversation:
                return [(options.scope.user_id, conversation)]
        raise InputError(
            f"{file} holds no conversation {choices.conversation!r}; "
            f"it holds {', '.join(names[:20])}"
        )
    first, second = next(conversations), next(conversations, None)
    if second is None:
        return [(options.scope.user_id, first)]
    if options.user is not None:
        raise InputError(
            f"{file} holds several conversations ({first.id}, {second.id}, ...), "
            "which one user cannot hold together; choose one with --conversation, "
            "or leave out --user to give each a user of its own name"
        )
    every = chain((first, second), conversations)
    return ((conversation.id, conversation) for conversation in every)


COMMANDS = (
    "/why shows what the last reply rests on, /memories lists the newest memories, "
    "/forget ID deletes one, /undo takes back the last change, /quit ends"
)
_SHOWN = 20


def chat(
    options: Options,
    thread: Annotated[
        str | None, Option(help="The conversation to go on with; a new one unless given.")
    ] = None,
    min_trust: LeastTrust = None,
) -> int:
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
        if message != "/why":  # so that what is shown or said rests on the message before, too
            _tell_unfinished(self._agent.flush(on_error="keep"))
        if not message.startswith("/"):
            self._last = self._reply(message)
            return
        word, _, rest = message.partition(" ")
        match word:
            case "/undo":
                commit = self._agent.memory.undo()
                emit(self._options, {"undone": commit}, lambda: views.commit_view(commit))
            case "/forget":
                items = {item.id: item for item in self._agent.memory.get_all()}
                item = items[find_id(items, rest.strip(), user_id=self._agent.user_id)]
                self._agent.memory.delete(item.id)
                emit(self._options, {"forgotten": item}, lambda: plain(f"forgotten: {item.text}"))
            case "/memories":
                newest = self._agent.memory.get_all()[-_SHOWN:]
                emit(self._options, {"memories": newest}, lambda: views.items_table(newest))
            case "/why":
                reply = self._last
                if reply is None:
                    raise InputError("there is no reply yet")
                parts = {"hits", "citations", "notes"}
                document = {"why": reply.model_dump(mode="json", include=parts)}
                emit(self._options, document, lambda: views.answer_view(reply, why=True))
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
        receipt = [
            *views.citation_lines(reply.citations),
            *(plain(f"note: {note}", "dim") for note in reply.notes),
        ]
        emit(self._options, None, lambda: Group(*receipt))
        return reply


def _tell_unfinished(reports: Sequence[IngestReport]) -> None:
    for chunk in (chunk for report in reports for chunk in report.failed_chunks):
        tell(
            f"memagent: stored, but not yet remembered: {chunk.failure}; the next chat tries again"
        )
