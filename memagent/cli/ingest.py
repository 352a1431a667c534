"""`memagent ingest`: conversations from a file into memory, with progress, a summary,
and a way to go on after a stop.

What has been remembered is skipped, so running the same command again goes on where the
last run stopped. Sessions are taken in order, because what is remembered of one depends
on those before; a chunk that fails stops its conversation unless the caller wants to go
on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from memagent.cli import views
from memagent.cli.frame import INTERRUPTED, Options, emit, message_of, opened, tell
from memagent.core.errors import InputError, MemAgentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from memagent.async_agent import AsyncAgent
    from memagent.core.exchange import Usage
    from memagent.core.records import Session
    from memagent.core.reports import IngestReport
    from memagent.readers import Conversation

OPS = ("ADD", "UPDATE", "DELETE", "NOOP")


@dataclass(slots=True)
class Tally:
    """What one run did so far."""

    file: str
    users: list[str] = field(default_factory=list[str])
    sessions: int = 0
    """Sessions of which something was remembered in this run."""
    skipped: int = 0
    """Sessions that were remembered completely before."""
    turns: int = 0
    chunks: int = 0
    ops: Counter[str] = field(default_factory=Counter[str])
    rejected: Counter[str] = field(default_factory=Counter[str])
    """Refused ops by reason."""
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    warnings: list[str] = field(default_factory=list[str])
    usage: Usage | None = None
    began: float = field(default_factory=time.monotonic)
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        return time.monotonic() - self.began

    @property
    def complete(self) -> bool:
        """Whether everything the file holds is remembered now."""
        return not self.failures and not self.interrupted

    def begin(self, user: str, conversation: Conversation) -> None:
        """Note whose memory comes next, and what its reader had to say."""
        self.users.append(user)
        for warning in conversation.warnings:
            self.warnings.append(f"{conversation.id}: {warning}")
            tell(f"warning: {self.warnings[-1]}")

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
            self.rejected.update(one.reason.value for one in chunk.rejected)
        self.usage = report.usage if self.usage is None else self.usage + report.usage
        for chunk in report.failed_chunks:
            self.fail(
                chunk.failure or "", user=user, session=report.session_id, chunk=chunk.chunk_id
            )

    def fail(
        self, why: str, *, user: str, session: str, chunk: str | None = None, retry: bool = True
    ) -> None:
        """Note a session or chunk that could not be remembered, and whether another run
        may do better.
        """
        self.failures.append(
            {"user": user, "session": session, "chunk": chunk, "why": why, "retry": retry}
        )

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return 0 if self.usage is None else self.usage.prompt_tokens + self.usage.completion_tokens

    @property
    def cost_usd(self) -> float | None:
        """What the model calls cost; None when a price is unknown."""
        return 0.0 if self.usage is None else self.usage.cost_usd

    @property
    def turns_per_s(self) -> float:
        """Turns remembered per second of wall time."""
        return self.turns / max(self.seconds, 1e-9)

    def status(self) -> str:
        """One line for the progress bar."""
        ops = " ".join(f"{name} {self.ops[name]}" for name in OPS if self.ops[name])
        calls = f"{self.tokens:,} tokens  {_money(self.cost_usd)}" if self.tokens else ""
        return "  ".join(part for part in (f"{self.turns_per_s:.0f} turns/s", ops, calls) if part)

    def document(self) -> dict[str, Any]:
        """The summary, for JSON."""
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
            "cost_usd": self.cost_usd,
            "complete": self.complete,
        }

    def view(self) -> RenderableType:
        """The summary, for people."""
        before = f", {self.skipped} had been before" if self.skipped else ""
        refused = ", ".join(f"{reason} {count}" for reason, count in sorted(self.rejected.items()))
        rows: dict[str, object] = {
            "user": ", ".join(self.users),
            "sessions": f"{self.sessions} remembered{before}",
            "turns": f"{self.turns:,} in {self.chunks:,} chunks",
            "ops": ", ".join(f"{name} {self.ops[name]:,}" for name in OPS),
            "refused": refused or "none",
            "time": f"{self.seconds:.1f} s, {self.turns_per_s:,.0f} turns/s",
            "model": f"{self.tokens:,} tokens, {_money(self.cost_usd)}"
            if self.tokens
            else "not asked",
        }
        if self.failures:
            rows["failed"] = f"{len(self.failures)} sessions"
        return views.pairs(rows)


def _money(usd: float | None) -> str:
    return "cost unknown" if usd is None else f"${usd:.4f}"


async def ingest_file(
    options: Options,
    file: Path,
    *,
    format: str,
    conversation: str | None,
    limit: int | None,
    prefix: str,
    keep_going: bool,
) -> int:
    """Read the file and remember it; gives the exit code.

    Raises what reading the first conversation and opening the store raise.
    """
    import asyncio

    from memagent.core.records import Scope

    found = read_file(file, options, format=format, conversation=conversation)
    tally = Tally(file=str(file))
    with opened(options, write=True, make=True, vectors=True) as store:
        try:
            for user, one in found:
                tally.begin(user, one)
                sessions = [_prefixed(session, prefix) for session in one.sessions[:limit]]
                agent = store.agent(Scope(user_id=user), model=options.model)
                with progress(len(sessions), f"sessions of {user}") as advance:
                    for session in sessions:
                        await _remember(agent, session, tally)
                        advance(tally.status())
                        if options.verbose:
                            tell(f"{user}, {session.id}: {tally.status()}")
                        if tally.failures and not keep_going:
                            break
                if tally.failures and not keep_going:
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
            "memagent: not everything was remembered; run the same command again to go on from there"
        )
    return INTERRUPTED if tally.interrupted else int(not tally.complete)


async def _remember(agent: AsyncAgent, session: Session, tally: Tally) -> None:
    """Remember one session and count what came of it; what goes wrong is counted too."""
    from memagent.memory.chunking import split_session

    user, chunks = (
        agent.bank.scope.user_id,
        split_session(session, chunk_turns=agent.design.chunk_turns),
    )
    try:
        report = await agent.remember(session)
    except InputError as exc:
        hint = f"; if this is another conversation than user {user!r} has, give it another --user, or its sessions a --prefix"
        tally.fail(f"{exc}{hint}", user=user, session=session.id, retry=False)
    except MemAgentError as exc:
        tally.fail(message_of(exc), user=user, session=session.id)
    else:
        tally.count(report, {chunk.index: len(chunk.turns) for chunk in chunks}, user=user)


# -- reading ---------------------------------------------------------------------------


def read_file(
    file: Path, options: Options, *, format: str, conversation: str | None
) -> Iterable[tuple[str, Conversation]]:
    """(user, conversation) of a file: one goes to `--user`, several go to users of
    their own names, read one by one.

    Raises `InputError` for a file that cannot be read, and when one user is named for
    several conversations.
    """
    from memagent.readers import iter_conversations

    found = iter_conversations(file, format)
    if conversation is not None:
        names: list[str] = []
        for one in found:
            names.append(one.id)
            if one.id == conversation:
                return [(options.scope.user_id, one)]
        raise InputError(
            f"{file} holds no conversation {conversation!r}; it holds {', '.join(names[:20])}"
        )
    first, second = next(found), next(found, None)
    if second is None:
        return [(options.scope.user_id, first)]
    if options.user is not None:
        raise InputError(
            f"{file} holds several conversations ({first.id}, {second.id}, ...), which one user cannot hold together; choose one with "
            "--conversation, or leave out --user to give each a user of its own name"
        )
    return ((one.id, one) for one in chain((first, second), found))


def _prefixed(session: Session, prefix: str) -> Session:
    """The session with the prefix before its id and those of its turns."""
    if not prefix:
        return session
    turns = tuple(turn.model_copy(update={"id": f"{prefix}{turn.id}"}) for turn in session.turns)
    return session.model_copy(update={"id": f"{prefix}{session.id}", "turns": turns})


# -- progress --------------------------------------------------------------------------


class Advance(Protocol):
    """To be called after each step, with a line on how things stand."""

    def __call__(self, status: str, steps: int = 1) -> None: ...


@contextmanager
def progress(total: int, unit: str) -> Generator[Advance]:
    """A bar on standard error, if that is a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    screen = views.console(stderr=True)
    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}", markup=False),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=total, status="")

        def advance(status: str, steps: int = 1) -> None:
            bar.update(task, advance=steps, status=views.one_line(status))

        yield advance
