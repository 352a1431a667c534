"""`AsyncClient`: an agent behind the REST service, with the verbs of a local one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from memagent.client import wire
from memagent.client.http import DEFAULT_URL, Connection, path_of
from memagent.client.remote_memory import RemoteMemory
from memagent.core.answers import Answer, AsOf, Filter, Hit, Question
from memagent.core.errors import InputError, fault_in
from memagent.core.recipes import Recipe
from memagent.core.records import Scope, Session, Turn
from memagent.core.reports import IngestReport
from memagent.memory.bank import system_clock
from memagent.memory.incoming import Said, as_question, as_session

if TYPE_CHECKING:
    import httpx


class AsyncClient:
    """A client for coroutines; use it as a context manager or call `close()`.

    Belongs to one event loop.

    `user_id` names the memory where the API key is bound to no user (or where there is
    no key at all); `agent_id` and `run_id` name another memory of that user. Needs the
    extra `client`.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        timeout_s: float = 60.0,
        attempts: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Opens no connection yet.

        `attempts` is how often a request is made at most. Raises `ConfigError`,
        `MissingExtra`.
        """
        named = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        terms = {name: value for name, value in named.items() if value is not None}
        try:
            Scope.model_validate(terms)
        except ValidationError as exc:
            raise InputError(f"the memory named cannot be one: {fault_in(exc)}") from exc
        self._connection = Connection(
            url,
            api_key=api_key,
            terms=terms,
            timeout_s=timeout_s,
            attempts=attempts,
            transport=transport,
        )

    @property
    def memory(self) -> RemoteMemory:
        """Direct verbs on the memory."""
        return RemoteMemory(self._connection)

    async def ask(self, question: Question | str, *, as_of: AsOf | None = None) -> Answer:
        """Answer from memory, with citations; abstains when nothing fits.

        Raises `ModelError`.
        """
        asked = as_question(question)
        if as_of is not None:
            asked = asked.model_copy(update={"as_of": as_of})
        return await self._connection.read(Answer, "POST", path_of("questions"), body=asked)

    async def stream(self, question: Question | str) -> AsyncGenerator[tuple[str, str]]:
        """(name, JSON) of the answer's events as they come: `step`s, then `answer`, then `done`."""
        async for event in self._connection.events(path_of("questions"), as_question(question)):
            yield event

    async def chat(self, text: str, *, speaker: str = "user") -> Answer:
        """Answer from memory and have the exchange remembered.

        Raises `ModelError`; what was said is stored then too.
        """
        body = wire.ChatRequest(text=as_question(text).text, speaker=speaker)
        return await self._connection.read(Answer, "POST", path_of("chat"), body=body)

    async def remember(
        self, what: Said, *, at: datetime | None = None, session_id: str | None = None
    ) -> IngestReport:
        """Store turns and wait until they are remembered. Raises `InputError`."""
        body = _session_body(what, at, session_id)
        return await self._connection.read(
            IngestReport, "POST", path_of("sessions"), body=body, params={"wait": True}
        )

    async def remember_later(
        self, what: Said, *, at: datetime | None = None, session_id: str | None = None
    ) -> wire.Job:
        """Store turns durably and leave the rest to a job."""
        return await self._connection.read(
            wire.Job, "POST", path_of("sessions"), body=_session_body(what, at, session_id)
        )

    async def search(
        self,
        text: str,
        *,
        k: int = 10,
        where: Filter | None = None,
        recipe: Recipe | str | None = None,
        max_tokens: int | None = None,
    ) -> list[Hit]:
        """At most k memories for a text, best first."""
        return await self.memory.search(
            text, k=k, where=where, recipe=recipe, max_tokens=max_tokens
        )

    async def job(self, job_id: str) -> wire.Job:
        """How far a job is. Raises `MemoryNotFound`."""
        return await self._connection.read(wire.Job, "GET", path_of("jobs", job_id))

    async def finish(self, job: wire.Job) -> wire.Job:
        """Wait for a job. Raises `ModelError` or `StoreError` when it failed."""
        return await self.memory.finish(job)

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _session_body(what: Said, at: datetime | None, session_id: str | None) -> wire.NewSession:
    session: Session = as_session(what, at=at, session_id=session_id, now=system_clock())
    turns: Sequence[Turn] = session.turns
    return wire.NewSession(
        id=session.id,
        at=session.at,
        turns=tuple(wire.NewTurn(**turn.model_dump()) for turn in turns),
    )
