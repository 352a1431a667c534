"""Sampling from a causal language model, one left-padded batch at a time.

Results carry the sampler's own ids and log-probabilities. Every row draws from its own
stream of uniforms (Philox, seeded by the job), so its text depends on its seed and
prompt, not on the rest of its batch (up to rounding). Log-probabilities are those of
the distribution that was sampled: after temperature, grammar and nucleus. A trainer that
computes them anew from the same ids has none of the last two, and corrects for the
difference. Rows that end early are taken out
of the batch once half of it has ended. Rows with the same prompt read it once: rollouts
of one episode hear the same session, and answers of a group the same question.

Shapes: B rows, P prompt, C completion, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from train.sampling.kv_cache import with_room

_COMPACT_BELOW = 0.5
"""Share of live rows under which ended ones are taken out."""

_ONE_THREAD_BELOW = 100_000_000
"""Parameters under which a model on the CPU is given one thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One completion to sample."""

    key: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    """0 takes the most probable token."""
    top_p: float = 1.0
    seed: int = 0
    adapter: str | None = None
    """LoRA adapter that speaks; None for the model as it is."""
    grammar: str | None = None
    """JSON Schema as text that the completion is held to; None for free text."""

    @property
    def order(self) -> tuple[int, str]:
        """Sort key: rows of like length go together."""
        return (len(self.prompt_ids), self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """C sampled ids, with the end token if it came, and C log-probabilities in nats."""

    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool
    """Whether the end token came before `max_tokens`."""


class Engine(Protocol):
    """Samples batches."""

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """Return one result a job, in order."""
        ...


@runtime_checkable
class Synced(Protocol):
    """An engine that holds a copy of the weights."""

    def sync(self) -> None:
        """Give it the present weights; all processes call it together."""
        ...


class TokenMask(Protocol):
    """The tokens that may come next in one row; stateful, one a row."""

    def allowed(self, size: int) -> torch.Tensor:
        """Return (V,) bool on the CPU for the next position."""
        ...

    def accept(self, token_id: int) -> None:
        """Go on by the token that was picked."""
        ...


class TransformersEngine:
    """Samples from a transformers model in this process."""

    def __init__(
        self,
        model: Any,
        *,
        eos_ids: Sequence[int],
        pad_id: int,
        unwrapped: Callable[[], AbstractContextManager[Any]] | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        masks: Callable[[str, int], TokenMask] | None = None,
    ) -> None:
        """Sample from a model whose replies end with one of `eos_ids`.

        `unwrapped()` gives the bare model of a wrapped one for the time of a batch;
        `autocast` is entered around each forward pass; `masks` makes
        a token mask from a JSON Schema and the most tokens of the reply.
        """
        self.model = model
        self._eos_ids = tuple(eos_ids)
        self._pad_id = pad_id
        self._unwrapped = unwrapped
        self._autocast = autocast
        self._masks = masks
        parameters = list(model.parameters())
        size = sum(parameter.numel() for parameter in parameters)
        if parameters[0].device.type == "cpu" and size < _ONE_THREAD_BELOW:
            # More threads only wait for each other when a step takes a millisecond.
            torch.set_num_threads(1)

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """Sample all jobs; those of one adapter share batches."""
        results: dict[int, Sampled] = {}
        with self._unwrapped() if self._unwrapped is not None else nullcontext(self.model) as model:
            for adapter in sorted({job.adapter or "" for job in jobs}):
                places = [place for place, job in enumerate(jobs) if (job.adapter or "") == adapter]
                with _speaking(model, adapter):
                    sampled = self._sample(model, [jobs[place] for place in places])
                results.update(zip(places, sampled, strict=True))
        return [results[place] for place in range(len(jobs))]

    @torch.inference_mode()
    def _sample(self, model: Any, jobs: Sequence[Job]) -> list[Sampled]:
        device = next(model.parameters()).device
        was_training = model.training
        model.eval()
        try:
            with self._autocast():
                return self._decode(model, jobs, device)
        finally:
            model.train(was_training)

    def _decode(self, model: Any, jobs: Sequence[Job], device: torch.device) -> list[Sampled]:
        prompts = _Prompts.of(jobs, pad_id=self._pad_id, device=device)
        masks = [self._mask(job) for job in jobs]
        rows = _Rows(jobs, masks, eos_ids=self._eos_ids, pad_id=self._pad_id, device=device)
        width = prompts.ids.shape[1]
        room = torch.zeros_like(rows.tokens)
        attended = torch.cat([prompts.mask[prompts.shared], room], dim=1)  # (B, P + C)
        input_ids = prompts.ids
        positions = (prompts.mask.cumsum(1) - 1).clamp(min=0)
        cache: Any = None
        for step in range(rows.longest):
            out = model(
                input_ids=input_ids,
                attention_mask=attended[rows.live, : width + step] if step else prompts.mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            logits = out.logits[:, -1]
            cache = out.past_key_values
            if not step:
                if len(prompts.ids) < len(jobs):
                    cache.batch_select_indices(prompts.shared)
                    logits, positions = logits[prompts.shared], positions[prompts.shared]
                cache = with_room(cache)
            picked = rows.take(logits, step)
            going = ~rows.done[rows.live]
            alive = int(going.sum())
            if not alive:
                break
            rows.accept(picked)
            attended[rows.live, width + step] = 1
            if alive <= _COMPACT_BELOW * len(rows.live):
                kept = going.nonzero().squeeze(1)
                cache.batch_select_indices(kept)
                rows.live, picked, positions = rows.live[kept], picked[kept], positions[kept]
            input_ids = picked.unsqueeze(1)
            positions = positions[:, -1:] + 1
        return rows.results()

    def _mask(self, job: Job) -> TokenMask | None:
        if job.grammar is None or self._masks is None:
            return None
        return self._masks(job.grammar, job.max_tokens)


@dataclass(frozen=True, kw_only=True)
class _Prompts:
    """The different prompts of a batch; rows with the same prompt share it."""

    ids: torch.Tensor
    """(prompts, P) left-padded"""
    mask: torch.Tensor
    """(prompts, P)"""
    shared: torch.Tensor
    """(B,) place of each row's prompt"""

    @classmethod
    def of(cls, jobs: Sequence[Job], *, pad_id: int, device: torch.device) -> _Prompts:
        width = max(len(job.prompt_ids) for job in jobs)
        places = {
            ids: place for place, ids in enumerate(dict.fromkeys(job.prompt_ids for job in jobs))
        }
        input_ids = torch.full((len(places), width), pad_id, dtype=torch.long)
        mask = torch.zeros((len(places), width), dtype=torch.long)
        for row, ids in enumerate(places):
            input_ids[row, width - len(ids) :] = torch.tensor(ids)
            mask[row, width - len(ids) :] = 1
        shared = torch.tensor([places[job.prompt_ids] for job in jobs])
        return cls(ids=input_ids.to(device), mask=mask.to(device), shared=shared.to(device))


class _Rows:
    """The rows of a batch: how each is sampled, and its tokens so far."""

    def __init__(
        self,
        jobs: Sequence[Job],
        masks: Sequence[TokenMask | None],
        *,
        eos_ids: Sequence[int],
        pad_id: int,
        device: torch.device,
    ) -> None:
        count, self.longest = len(jobs), max(job.max_tokens for job in jobs)
        uniforms = np.stack([_uniforms(job, self.longest) for job in jobs])
        self._uniforms = torch.from_numpy(uniforms).to(device)  # (B, C)
        self._temperature = torch.tensor([job.temperature for job in jobs], device=device)
        self._top_p = torch.tensor([job.top_p for job in jobs], device=device).unsqueeze(1)
        self._nucleus = bool((self._top_p < 1).any())
        self._limits = torch.tensor([job.max_tokens for job in jobs], device=device)
        self._eos = torch.tensor(eos_ids, device=device)
        self._masks = masks if any(mask is not None for mask in masks) else None
        self.tokens = torch.full((count, self.longest), pad_id, dtype=torch.long, device=device)
        self._logprobs = torch.zeros((count, self.longest), device=device)
        self._lengths = torch.zeros(count, dtype=torch.long, device=device)
        self._ended = torch.zeros(count, dtype=torch.bool, device=device)
        self.done = torch.zeros(count, dtype=torch.bool, device=device)
        self.live = torch.arange(count, device=device)
        """Rows that are still in the batch."""

    def take(self, logits: torch.Tensor, step: int) -> torch.Tensor:
        """Pick the next token of each live row from logits (live, V) and note it.

        A row that has ended stays until the batch is made smaller; its further tokens
        do not count.
        """
        rows = self.live
        temperature = self._temperature[rows]
        warmth = temperature.unsqueeze(1)
        logits = self._constrained(logits.float() / torch.where(warmth > 0, warmth, 1.0))
        top_p = self._top_p[rows] if self._nucleus else None
        picked, logps = _pick(logits, self._uniforms[rows, step], temperature, top_p)
        self.tokens[rows, step] = picked
        self._logprobs[rows, step] = logps
        fresh = ~self.done[rows]
        self._lengths[rows] += fresh.long()
        self._ended[rows] |= fresh & torch.isin(picked, self._eos)
        self.done[rows] |= self._ended[rows] | (self._lengths[rows] >= self._limits[rows])
        return picked

    def accept(self, picked: torch.Tensor) -> None:
        """Tell the masks of rows that go on which tokens were picked."""
        if self._masks is None:
            return
        done = self.done.tolist()
        for row, token in zip(self.live.tolist(), picked.tolist(), strict=True):
            mask = self._masks[row]
            if mask is not None and not done[row]:
                mask.accept(token)

    def results(self) -> list[Sampled]:
        """Return the sampled rows, in their order."""
        tokens, logprobs, ended = self.tokens.cpu(), self._logprobs.cpu(), self._ended.tolist()
        return [
            Sampled(
                completion_ids=tuple(tokens[row, :length].tolist()),
                logprobs=tuple(logprobs[row, :length].tolist()),
                ended=ended[row],
            )
            for row, length in enumerate(self._lengths.tolist())
        ]

    def _constrained(self, logits: torch.Tensor) -> torch.Tensor:
        """Return (live, V) logits with forbidden tokens at minus infinity."""
        if self._masks is not None:
            for place, row in enumerate(self.live.tolist()):
                mask = self._masks[row]
                if mask is not None:
                    allowed = mask.allowed(logits.shape[1]).to(logits.device)
                    logits[place].masked_fill_(~allowed, -torch.inf)
        return logits


def _pick(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    temperature: torch.Tensor,
    top_p: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (B,) token ids and their log-probabilities in the distribution sampled.

    The ids invert the cumulative distribution at a uniform draw; at temperature 0 they
    are the most probable ones.
    """
    logps = torch.log_softmax(logits, dim=-1)
    probs = logps.exp()
    if top_p is not None:
        ordered, places = probs.sort(dim=-1, descending=True)
        outside = ordered.cumsum(-1) - ordered >= top_p
        probs = torch.zeros_like(probs).scatter(1, places, ordered.masked_fill(outside, 0.0))
    cumulative = probs.cumsum(-1)  # (B, V)
    total = cumulative[:, -1:]
    # Rounding must not bring the target up to the total: the last token would be taken,
    # allowed or not.
    target = torch.minimum(
        uniforms.unsqueeze(1).to(total.dtype) * total, total.nextafter(torch.zeros_like(total))
    )
    drawn = (
        torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
    )
    picked = torch.where(temperature > 0, drawn, logits.argmax(-1)).unsqueeze(1)
    kept = total.log() if top_p is not None else torch.zeros_like(total)
    return picked.squeeze(1), (logps.gather(1, picked) - kept).squeeze(1)


def _uniforms(job: Job, count: int) -> np.ndarray:
    """Return (C,) draws in [0, 1) that belong to this job alone."""
    return np.random.Generator(np.random.Philox(key=job.seed)).random(count, dtype=np.float32)


def _speaking(model: Any, adapter: str) -> AbstractContextManager[Any]:
    """Let the model speak with an adapter, or with none.

    Leave a model without adapters alone, and one whose only adapter all roles share: it
    speaks as it is trained.
    """
    adapters = getattr(model, "peft_config", {})
    if not adapters or (not adapter and len(adapters) == 1):
        return nullcontext()
    if not adapter:
        return model.disable_adapter()
    return using_adapter(model, adapter)


@contextmanager
def using_adapter(model: Any, adapter: str) -> Generator[None]:
    """Switch to an adapter and back."""
    with kept_adapter(model):
        model.set_adapter(adapter)
        yield


@contextmanager
def kept_adapter(model: Any) -> Generator[None]:
    """Restore the active adapter in the end.

    Trainable parameters stay as they were: PEFT's own switch would freeze the others.
    """
    before = model.active_adapter
    trainable = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        yield
    finally:
        model.set_adapter(before)
        for parameter, requires_grad in trainable:
            parameter.requires_grad_(requires_grad)
