"""A causal language model as a `ChatModel` whose responses keep the sampler's token ids.

The agent that is trained is the agent that serves; only this object differs from a
hosted model. A rollout gets a view of the policy, `policy.bound(key)`, whose draws
depend on the seed, the policy's version, the key and the ordinal of the call, and on
nothing else: the same key gives the same replies again. Unbound calls (an app) draw
anew each time.

    model = load_policy("runs/first/best")        # of `train.sampling.checkpoints`
    agent = Agent(model="hf:runs/first/best")     # the same in an app
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from time import perf_counter
from typing import Any

from memagent.core.errors import ConfigError, ContextOverflow, ReplyWithheld, RequestRefused
from memagent.core.exchange import (
    FinishReason,
    ModelRequest,
    ModelResponse,
    Role,
    Sampling,
    StepRef,
    TokenTrace,
    Usage,
)
from memagent.core.records import content_id
from train.credit.groups import Stateless
from train.errors import TrainFault
from train.sampling.batcher import (
    BatchStats,
    Continuous,
    Engine,
    Job,
    More,
    RequestBatcher,
    RequestPool,
    Sampled,
    Synced,
    in_batches,
)

# Sampler hooks: what changes the sampling of single calls.
#
# A hook that samples otherwise than the policy is trained makes the two differ, so the
# trainer weighs rows by the ratio of both probabilities whenever there is one.


@dataclass(frozen=True, kw_only=True)
class SampledCall:
    """A call that is about to be sampled."""

    role: Role
    key: str
    """Names the rollout and the ordinal of the call."""
    version: int
    """Version of the policy."""
    prompt_tokens: int


class SamplerHook(Stateless):
    """Changes nothing; the base of hooks."""

    def sampling(self, call: SampledCall, planned: Sampling, /) -> Sampling:
        """Return the sampling of a call. It depends on the arguments and the state alone."""
        del call
        return planned


SAMPLING = Sampling(temperature=1.0, max_tokens=256)
"""Sampling of requests and policies that say nothing else."""
OF_ONE_REQUEST = (ContextOverflow, RequestRefused, ReplyWithheld)
"""Errors that belong to one request; any other is a fault of the engine."""
_PROMPTS = 256
"""Prompts whose tokens are kept: those of a session's facts are the same in every rollout
of a group.
"""


class PolicyModel:
    """A chat model over an engine and a tokenizer with a chat template.

    Concurrent calls are answered in batches.
    """

    def __init__(  # noqa: PLR0913 (the settings of sampling)
        self,
        engine: Engine,
        tokenizer: Any,
        *,
        name: str = "policy",
        sampling: Sampling = SAMPLING,
        context_tokens: int | None = None,
        width: int = 64,
        seed: int = 0,
        adapters: Mapping[Role, str] | None = None,
        constrained: bool = False,
    ) -> None:
        """Prepare to answer through the engine.

        `sampling` fills the gaps of a request; `context_tokens` is the longest prompt
        with its completion; `width` is the most calls a batch; `adapters` names the
        LoRA adapter of each role; `constrained` holds replies to the request's JSON
        Schema, where the engine can. Raises `ConfigError` for a tokenizer without a
        chat template.
        """
        if getattr(tokenizer, "chat_template", None) is None:
            raise ConfigError(
                f"the tokenizer of {name!r} has no chat template; a policy speaks through one"
            )
        self._engine = engine
        self.tokenizer = tokenizer
        self.name = name
        self.sampling = sampling
        self.version = 0
        """Counts the updates of the weights; goes into every trace and every draw."""
        self.seed = seed
        self._context_tokens = context_tokens
        self._adapters = dict(adapters or {})
        self._constrained = constrained
        self._ordinals = count()
        self._encoded = lru_cache(maxsize=_PROMPTS)(self._encode)
        self._batcher: RequestBatcher[Job, Sampled] | RequestPool[Job, Sampled]
        if getattr(engine, "concurrent", False):
            self._batcher = RequestPool(lambda job: engine.generate([job])[0], width=width)
        else:
            self._batcher = RequestBatcher(self._serve, width=width)
        self.hook: SamplerHook | None = None
        """Changes the sampling of single calls."""
        self.fault: Exception | None = None
        """The first fault of the engine that a bound view met; see `faults_raised`."""

    @property
    def stats(self) -> BatchStats:
        """Counts of the batches so far."""
        return self._batcher.stats

    @property
    def generation_s(self) -> float:
        """Seconds spent in the engine."""
        return self._batcher.stats.seconds

    def sync(self) -> None:
        """Give an engine with its own copy of the weights the present ones.

        All processes that train together call it together.
        """
        if isinstance(self._engine, Synced):
            self._engine.sync()

    @contextmanager
    def participant(self) -> Generator[None]:
        """Take part in common batches; see `RequestBatcher.participant`."""
        with self._batcher.participant():
            yield

    @contextmanager
    def faults_raised(self) -> Generator[None]:
        """Raise `TrainFault` at the end if a bound view met a fault of the engine inside.

        Players record what fails and go on, so a dead engine would look like rollouts
        that fail. After a fault no bound view calls the engine again.
        """
        self.fault = None
        try:
            yield
        finally:
            if self.fault is not None:
                name = type(self.fault).__name__
                raise TrainFault(f"the engine failed: {name}: {self.fault}") from self.fault

    def bound(
        self, key: str, *, sampling: Sampling | None = None, given: Sequence[ModelResponse] = ()
    ) -> BoundPolicy:
        """Return a view whose draws are fixed by `key`; one for each rollout.

        `sampling` takes the place of the policy's own. The first calls get the replies that
        are `given` by another rollout; they cost nothing and are no calls of this one.
        """
        return BoundPolicy(self, key, sampling or self.sampling, given)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request.

        Raises `ContextOverflow` when the prompt leaves no room for a completion.
        """
        return await self.sample(
            request, key=f"free:{next(self._ordinals)}", sampling=self.sampling
        )

    async def sample(self, request: ModelRequest, *, key: str, sampling: Sampling) -> ModelResponse:
        """Answer a request with the draws of a key."""
        settings = _filled(request.sampling, sampling)
        prompt_ids = self.prompt_ids(request)
        if self.hook is not None:
            call = SampledCall(
                role=request.role, key=key, version=self.version, prompt_tokens=len(prompt_ids)
            )
            settings = self.hook.sampling(call, settings)
        limit = settings.max_tokens or 256
        if self._context_tokens is not None:
            limit = min(limit, self._context_tokens - len(prompt_ids))
            if limit < 1:
                raise ContextOverflow(
                    f"the prompt has {len(prompt_ids)} tokens and {self.name!r} holds "
                    f"{self._context_tokens} with the reply"
                )
        job = Job(
            key=key,
            prompt_ids=prompt_ids,
            max_tokens=limit,
            temperature=1.0 if settings.temperature is None else settings.temperature,
            top_p=1.0 if settings.top_p is None else settings.top_p,
            seed=_seed(self.seed if settings.seed is None else settings.seed, self.version, key),
            adapter=self._adapters.get(request.role),
            grammar=json.dumps(request.schema_) if self._constrained and request.schema_ else None,
        )
        began = perf_counter()
        sampled = await self._batcher.submit(job)
        return ModelResponse(
            id=content_id("res", self.name, str(self.version), key),
            text=_before_stop(
                self.tokenizer.decode(sampled.completion_ids, skip_special_tokens=True),
                settings.stop,
            ),
            finish=FinishReason.STOP if sampled.ended else FinishReason.LENGTH,
            usage=Usage(
                calls=1,
                prompt_tokens=len(prompt_ids),
                completion_tokens=len(sampled.completion_ids),
                seconds=perf_counter() - began,
            ),
            model=self.name,
            tokens=TokenTrace(
                prompt_ids=prompt_ids,
                completion_ids=sampled.completion_ids,
                logprobs=sampled.logprobs,
                policy_version=self.version,
            ),
        )

    def prompt_ids(self, request: ModelRequest) -> tuple[int, ...]:
        """Put the messages through the chat template, up to where the reply begins."""
        return self._encoded(tuple((message.role, message.content) for message in request.messages))

    def _serve(self, jobs: Sequence[Job], more: More[Sampled, Job]) -> None:
        engine = self._engine
        serve = engine.serve if isinstance(engine, Continuous) else in_batches(engine.generate)
        serve(jobs, more)

    def _encode(self, messages: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
        chat = [{"role": role, "content": content} for role, content in messages]
        return tuple(
            self.tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, tokenize=True, return_dict=False
            )
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One model call of a rollout: its role and step, and the response with its tokens."""

    role: Role
    step: StepRef
    response: ModelResponse


class BoundPolicy:
    """The policy as one rollout sees it; it keeps the rollout's calls."""

    def __init__(
        self, policy: PolicyModel, key: str, sampling: Sampling, given: Sequence[ModelResponse] = ()
    ) -> None:
        self._policy, self._key, self._sampling = policy, key, sampling
        self._given = given
        self.calls: list[Call] = []
        """Every call so far, in order."""
        self._begun = count()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request with this rollout's next draw, or the reply that is given.

        Raises `TrainFault` when a given reply was to another prompt.
        """
        number, policy = next(self._begun), self._policy
        if number < len(self._given):
            given = self._given[number]
            if given.tokens is None or given.tokens.prompt_ids != policy.prompt_ids(request):
                raise TrainFault(
                    f"{given.id} is no reply to this prompt; a fork left its beginning"
                )
            return given
        key = f"{self._key}#{number}"
        if policy.fault is not None:
            raise TrainFault("the engine failed in another call") from policy.fault
        try:
            response = await policy.sample(request, key=key, sampling=self._sampling)
        except OF_ONE_REQUEST:
            raise
        except Exception as error:
            policy.fault = policy.fault or error
            raise
        self.calls.append(Call(role=request.role, step=request.step, response=response))
        return response


def _filled(request: Sampling, default: Sampling) -> Sampling:
    """Return the request's sampling, its gaps filled from the default."""
    explicit = {name: value for name, value in request if value not in (None, ())}
    return default.model_copy(update=explicit)


def _before_stop(text: str, stop: Sequence[str]) -> str:
    ends = [at for word in stop if (at := text.find(word)) >= 0]
    return text[: min(ends)] if ends else text


def _seed(seed: int, version: int, key: str) -> int:
    """Return 64 bits from seed, version and key."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{version}\n{key}".encode()).digest()[:8], "big")
