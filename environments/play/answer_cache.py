"""A cache in front of the answerer.

Memories that show it the same give one answer and cost one call.

The key is (question, what was shown, answerer). Only the answerer's call is cached:
retrieval and the check of citations run on each memory as ever. Failures are never
stored, so a question that failed is asked again; callers that come while a call is
under way wait for it. The surprise: scores of hits are no part of the key, since a
model is shown what hits say and not how they scored; an answerer by rules that weighs
scores is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from environments.errors import EnvironmentFault
from memagent.async_agent import AsyncAgent
from memagent.core.answers import Answer, Hit, Question
from memagent.core.exchange import Usage

_UNSHOWN = {"score": True, "why": {"arms", "ranks"}, "item": {"op_id", "embedding_missing"}}


class AnswerKey(NamedTuple):
    """The things that decide an answer."""

    question: str
    context: str
    answerer: str


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """The statistics of a cache."""

    size: int
    hits: int
    """Answers given without a call, those waited for included."""
    misses: int
    """Calls made."""
    failures: int
    """Calls that failed; nothing was stored."""
    dropped: int
    """Answers given up for room."""

    @property
    def hit_rate(self) -> float:
        """Share of the requests that needed no call; 0 before the first."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0


class AnswerCache:
    """Answers by key, the least recently used given up first.

    Not for use from several threads.
    """

    def __init__(self, *, capacity: int = 100_000) -> None:
        """`capacity` is the most answers kept. Raises `EnvironmentFault` below 1."""
        if capacity < 1:
            raise EnvironmentFault(f"a cache keeps at least 1 answer, not {capacity}")
        self._capacity = capacity
        self._answers: OrderedDict[AnswerKey, Answer] = OrderedDict()
        self._under_way: dict[AnswerKey, asyncio.Future[Answer]] = {}
        self._hits = self._misses = self._failures = self._dropped = 0

    @property
    def stats(self) -> CacheStats:
        """Counts so far."""
        return CacheStats(
            size=len(self._answers),
            hits=self._hits,
            misses=self._misses,
            failures=self._failures,
            dropped=self._dropped,
        )

    async def answer(self, key: AnswerKey, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer under a key, by `call` when there is none.

        A repeated answer costs no usage. Raises what the call raises.
        """
        while True:
            known = self._answers.get(key)
            if known is not None:
                self._answers.move_to_end(key)
                self._hits += 1
                return known.model_copy(update={"usage": Usage()})
            waited = self._under_way.get(key)
            if waited is None:
                return await self._called(key, call)
            await asyncio.wait([waited])
            if not waited.cancelled() and (failure := waited.exception()) is not None:
                raise failure

    async def _called(self, key: AnswerKey, call: Callable[[], Awaitable[Answer]]) -> Answer:
        self._misses += 1
        mark = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await call()
        except Exception as failure:
            self._failures += 1
            mark.set_exception(failure)
            mark.exception()  # seen: nobody may be waiting
            raise
        except BaseException:
            mark.cancel()
            raise
        else:
            self._keep(key, answer)
            mark.set_result(answer)
            return answer
        finally:
            del self._under_way[key]

    def _keep(self, key: AnswerKey, answer: Answer) -> None:
        self._answers[key] = answer
        while len(self._answers) > self._capacity:
            self._answers.popitem(last=False)
            self._dropped += 1


def question_digest(question: Question) -> str:
    """Digest of a question as an answerer sees it; its id and k do not count."""
    return _digest(question.model_dump_json(exclude={"id", "k"}))


def context_digest(hits: Sequence[Hit]) -> str:
    """Return the digest of the texts that hits show, in their order.

    It covers items, events and the paths that led to them, not their scores.
    """
    return _digest(*(hit.model_dump_json(exclude=_UNSHOWN) for hit in hits))


def with_answer_cache(agent: AsyncAgent, cache: AnswerCache, *, fingerprint: str) -> AsyncAgent:
    """Return the agent with its answerer behind the cache.

    `fingerprint` names whatever else decides an answer: model, prompt, sampling.

    Answers that use tools are not cached. Raises `EnvironmentFault` for a design that
    answers by rules.
    """
    if not agent.design.needs_model:
        raise EnvironmentFault(
            f"the design {agent.design.name!r} answers by rules, at no cost and by the scores of "
            "its hits; play it without a cache"
        )
    inner: Callable[[Question, Sequence[Hit], Any], Awaitable[Answer]] = agent.design.answerer
    whole = f"{agent.design.name}/{fingerprint}"

    async def answerer(question: Question, hits: Sequence[Hit], ctx: Any, /) -> Answer:
        if ctx.tools or ctx.transcript:
            return await inner(question, hits, ctx)
        key = AnswerKey(question_digest(question), context_digest(hits), whole)
        return await cache.answer(key, lambda: inner(question, hits, ctx))

    return replace(agent, design=replace(agent.design, answerer=answerer))


def _digest(*parts: str) -> str:
    whole = hashlib.sha256(b"memagent/answers/1")
    for part in parts:
        data = part.encode("utf-8", "replace")
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()
