"""`AsyncClient`: an agent behind the REST service, with the verbs of a local one.

`Client` is the same for synchronous code, as `Agent` is beside `AsyncAgent`: one event
loop in a background thread runs the very same coroutines.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from pydantic import ValidationError

from memagent.client import wire
from memagent.client.http import DEFAULT_URL, Connection, path_of
from memagent.client.remote_memory import RemoteMemory
from memagent.core.answers import Answer, AsOf, Hit, Question, Reply
from memagent.core.errors import InputError, StoreError, fault_in
from memagent.core.recipes import Recipe, recipe_of
from memagent.core.records import DEFAULT_THREAD, Scope, Trust
from memagent.core.snapshot import Commit, IngestReport
from memagent.core.trials import Trial
from memagent.experience import Learned, OutcomeArguments, Recall
from memagent.memory.bank import system_clock
from memagent.memory.incoming import Said, as_question, as_session
from memagent.memory.options import SearchArguments
from memagent.sync.live_agent import LoopThread
from memagent.sync.verbs import SyncMemory, blocking

if TYPE_CHECKING:
    import httpx


class ClientArguments(TypedDict, total=False):
    """The keywords of a client.

    `user_id` names the memory where the API key is bound to no user, or where there is
    no key at all; `agent_id` and `run_id` name another memory of that user. A request
    has `timeout_s` seconds (60 by default) and is made at most `attempts` times (4).
    """

    api_key: str | None
    user_id: str | None
    agent_id: str | None
    run_id: str | None
    timeout_s: float
    attempts: int
    transport: httpx.AsyncBaseTransport | None


class AsyncClient:
    """A client for coroutines; use it as a context manager or call `close()`.

    It belongs to one event loop, and needs the extra `client`.
    """

    def __init__(self, url: str = DEFAULT_URL, **options: Unpack[ClientArguments]) -> None:
        """Make a client that opens no connection yet.

        The keywords are those of `ClientArguments`. Raises `ConfigError`,
        `MissingExtra`, `InputError`.
        """
        settings: dict[str, Any] = {**options}
        names = {name: settings.pop(name, None) for name in ("user_id", "agent_id", "run_id")}
        terms = {name: value for name, value in names.items() if value is not None}
        try:
            Scope.model_validate(terms)
        except ValidationError as exc:
            raise InputError(f"the memory named cannot be one: {fault_in(exc)}") from exc
        self._connection = Connection(url, terms=terms, **settings)

    @property
    def memory(self) -> RemoteMemory:
        """Direct verbs on the memory."""
        return RemoteMemory(self._connection)

    async def ask(
        self,
        question: Question | str,
        *,
        as_of: AsOf | None = None,
        min_trust: Trust | str | None = None,
    ) -> Answer:
        """Answer from memory, with citations; abstain when nothing fits.

        `min_trust` leaves out what is trusted less. Raises `ModelError`.
        """
        asked = as_question(question, as_of=as_of, min_trust=min_trust)
        return await self._connection.write(Answer, "questions", body=asked)

    async def stream(self, question: Question | str) -> AsyncGenerator[tuple[str, str]]:
        """Yield (name, JSON) of the answer's events: each `step`, then `answer`, then `done`."""
        async for event in self._connection.events(path_of("questions"), as_question(question)):
            yield event

    async def chat(
        self,
        text: str,
        *,
        speaker: str = "user",
        thread: str = DEFAULT_THREAD,
        system: str | None = None,
        min_trust: Trust | None = None,
    ) -> Reply:
        """Reply to a message of a conversation and have the exchange remembered.

        Raises `ModelError`; the text is stored even then.
        """
        body = wire.ChatRequest(
            text=as_question(text).text,
            speaker=speaker,
            thread=thread,
            system=system,
            min_trust=min_trust,
        )
        return await self._connection.write(Reply, "chat", body=body)

    async def remember(
        self, what: Said, *, at: datetime | None = None, session_id: str | None = None
    ) -> IngestReport:
        """Store turns and wait until they are remembered. Raises `InputError`."""
        body = _session_body(what, at, session_id)
        return await self._connection.write(
            IngestReport, "sessions", body=body, params={"wait": True}
        )

    async def remember_later(
        self, what: Said, *, at: datetime | None = None, session_id: str | None = None
    ) -> wire.Job:
        """Store turns durably and leave the rest to a job."""
        return await self._connection.write(
            wire.Job, "sessions", body=_session_body(what, at, session_id)
        )

    async def search(self, text: str, **options: Unpack[SearchArguments]) -> list[Hit]:
        """Return at most k hits for a text, best first."""
        return await self.memory.search(text, **options)

    async def context(self, text: str, *, k: int = 20, max_tokens: int = 2_000) -> wire.Context:
        """Return a block for a prompt, within a budget of tokens."""
        return await self.memory.context(text, k=k, max_tokens=max_tokens)

    async def recall(self, task: str, *, k: int = 10, recipe: Recipe | str | None = None) -> Recall:
        """Recall memories for a task and start a trial. Raises `InputError`."""
        text = as_question(task).text
        body = wire.NewTrial(task=text, k=k, recipe=None if recipe is None else recipe_of(recipe))
        return await self._connection.write(Recall, "trials", body=body)

    async def report(
        self, what: Recall | Trial | str, reward: float, **outcome: Unpack[OutcomeArguments]
    ) -> Learned:
        """Report what came of a trial; the same report again changes nothing.

        Raises `InputError` for another outcome, `MemoryNotFound`, `ModelError`.
        """
        trial_id = what if isinstance(what, str) else what.id
        try:
            done = {"steps": what.steps, "edits": what.edits} if isinstance(what, Trial) else {}
            body = wire.TrialOutcome.model_validate({"reward": reward, **done, **outcome})
        except ValidationError as exc:
            raise InputError(f"the report cannot be sent: {fault_in(exc)}") from exc
        return await self._connection.write(Learned, "trials", trial_id, "report", body=body)

    async def tidy(self, budget: int | None = None) -> Commit | None:
        """Let the design's keeper put the memory in order; None when nothing was to do."""
        body = wire.TidyRequest(budget=budget)
        return (await self._connection.write(wire.Tidied, "tidy", body=body)).commit

    async def job(self, job_id: str) -> wire.Job:
        """Return a job as it stands. Raises `MemoryNotFound`."""
        return await self._connection.read(wire.Job, "jobs", job_id)

    async def finish(self, job: wire.Job) -> wire.Job:
        """Wait for a job. Raises `ModelError` or `StoreError` when it failed."""
        return await self._connection.finish(job)

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _session_body(what: Said, at: datetime | None, session_id: str | None) -> wire.NewSession:
    session = as_session(what, at=at, session_id=session_id, now=system_clock())
    turns = tuple(wire.NewTurn(**turn.model_dump()) for turn in session.turns)
    return wire.NewSession(id=session.id, at=session.at, turns=turns)


T = TypeVar("T")
_CLOSED = "this client is closed; open another one"


class Client:
    """A client for synchronous code; use it as a context manager or call `close()`.

    Threads may share it. `client.memory` has the verbs of `agent.memory`.
    """

    def __init__(self, url: str = DEFAULT_URL, **options: Unpack[ClientArguments]) -> None:
        """Make a client that opens no connection yet; the keywords are `AsyncClient`'s.

        Raises `ConfigError`, `MissingExtra`, `InputError`.
        """
        self._client = AsyncClient(url, **options)
        self._thread = LoopThread()
        self._closed = False

    ask = blocking(AsyncClient.ask)
    chat = blocking(AsyncClient.chat)
    remember = blocking(AsyncClient.remember)
    remember_later = blocking(AsyncClient.remember_later)
    search = blocking(AsyncClient.search)
    context = blocking(AsyncClient.context)
    recall = blocking(AsyncClient.recall)
    report = blocking(AsyncClient.report)
    tidy = blocking(AsyncClient.tidy)
    job = blocking(AsyncClient.job)
    finish = blocking(AsyncClient.finish)

    @property
    def memory(self) -> SyncMemory:
        """Direct verbs on the memory."""
        return SyncMemory(lambda make: self._run(lambda client: make(client.memory)))

    def stream(self, question: Question | str) -> Iterator[tuple[str, str]]:
        """Yield (name, JSON) of the answer's events as they come."""
        if self._closed:
            raise StoreError(_CLOSED)
        yield from self._thread.iterate(self._client.stream(question))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine of the asynchronous client and return its result."""
        if self._closed:
            work.close()
            raise StoreError(_CLOSED)
        return self._thread.run(work)

    def _run(self, make: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        return self.run(make(self._client))

    def close(self) -> None:
        """Close the connections; harmless when repeated."""
        if not self._closed:
            self.run(self._client.close())
            self._closed = True
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
