"""Sampling from a causal language model, one left-padded batch at a time, with the
sampler's own ids and log-probabilities.

Every row draws from its own stream of uniforms (Philox, seeded by the job), so what a
row says depends on its seed and prompt, not on who shares its batch (up to rounding).
Log-probabilities are those of the temperature-scaled distribution without nucleus
truncation and without grammar: what a trainer computes anew from the same ids. Rows
that end early are taken out of the batch once half of it has ended. Rows with the same
prompt read it once: rollouts of one episode hear the same session, and answers of a
group the same question.

Shapes: B rows, P prompt, C completion, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

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
        """Rows of like length go together."""
        return (len(self.prompt_ids), self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """What was sampled: C ids, with the end token if it came, and C log-probabilities in nats."""

    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool
    """Whether the end token came before `max_tokens`."""


class Engine(Protocol):
    """What samples batches."""

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """One result a job, in order."""
        ...


class TokenMask(Protocol):
    """Which tokens may come next in one row; stateful, one a row."""

    def allowed(self, size: int) -> torch.Tensor:
        """(V,) bool on the CPU for the next position."""
        ...

    def accept(self, token_id: int) -> None:
        """The token that was taken."""
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
        """`unwrapped()` gives the bare model of a wrapped one for the time of a batch
        (FSDP, DeepSpeed); `autocast` is entered around each forward pass; `masks`
        makes a token mask from a JSON Schema and the most tokens of the reply.
        """
        self.model = model
        self._eos_ids = tuple(eos_ids)
        self._pad_id = pad_id
        self._unwrapped = unwrapped
        self._autocast = autocast
        self._masks = masks
        parameters = list(model.parameters())
        if (
            parameters[0].device.type == "cpu"
            and sum(one.numel() for one in parameters) < _ONE_THREAD_BELOW
        ):
            torch.set_num_threads(
                1
            )  # more only wait for each other when a step takes a millisecond

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """Sample all jobs; those of one adapter share batches."""
        found: dict[int, Sampled] = {}
        with self._unwrapped() if self._unwrapped is not None else nullcontext(self.model) as model:
            for adapter in sorted({job.adapter or "" for job in jobs}):
                places = [place for place, job in enumerate(jobs) if (job.adapter or "") == adapter]
                with _speaking(model, adapter):
                    sampled = self._sample(model, [jobs[place] for place in places])
                found.update(zip(places, sampled, strict=True))
        return [found[place] for place in range(len(jobs))]

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
        longest = max(job.max_tokens for job in jobs)
        width = max(len(job.prompt_ids) for job in jobs)
        prompts = {
            ids: place for place, ids in enumerate(dict.fromkeys(job.prompt_ids for job in jobs))
        }
        shared = torch.tensor(
            [prompts[job.prompt_ids] for job in jobs]
        )  # (B,) place of each row's prompt
        input_ids = torch.full((len(prompts), width), self._pad_id, dtype=torch.long)
        prompt_mask = torch.zeros((len(prompts), width), dtype=torch.long)
        for row, ids in enumerate(prompts):
            input_ids[row, width - len(ids) :] = torch.tensor(ids)
            prompt_mask[row, width - len(ids) :] = 1
        attended = torch.cat(
            [prompt_mask[shared], torch.zeros((len(jobs), longest), dtype=torch.long)], dim=1
        )
        input_ids, attended, shared = input_ids.to(device), attended.to(device), shared.to(device)
        prompt_mask = prompt_mask.to(device)
        uniforms = torch.from_numpy(np.stack([_uniforms(job, longest) for job in jobs])).to(
            device
        )  # (B, C)
        temperature = torch.tensor([job.temperature for job in jobs], device=device).unsqueeze(1)
        top_p = torch.tensor([job.top_p for job in jobs], device=device).unsqueeze(1)
        limits = torch.tensor([job.max_tokens for job in jobs], device=device)
        eos = torch.tensor(self._eos_ids, device=device)
        masks = [self._mask(job) for job in jobs]
        nucleus = bool((top_p < 1).any())
        tokens = torch.full((len(jobs), longest), self._pad_id, dtype=torch.long, device=device)
        logprobs = torch.zeros((len(jobs), longest), device=device)
        lengths = torch.zeros(len(jobs), dtype=torch.long, device=device)
        ended = torch.zeros(len(jobs), dtype=torch.bool, device=device)
        done = torch.zeros(len(jobs), dtype=torch.bool, device=device)
        rows = torch.arange(len(jobs), device=device)  # rows still in the batch
        positions = (prompt_mask.cumsum(1) - 1).clamp(min=0)
        cache: Any = None
        for step in range(longest):
            out = model(
                input_ids=input_ids,
                attention_mask=attended[rows, : width + step] if step else prompt_mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            said = out.logits[:, -1]
            cache = out.past_key_values
            if not step:
                if len(prompts) < len(jobs):
                    cache.batch_select_indices(shared)
                    said, positions = said[shared], positions[shared]
                cache = with_room(cache)
            warmth = temperature[rows]
            logits = said.float() / torch.where(warmth > 0, warmth, 1.0)  # (B, V)
            logps = torch.log_softmax(logits, dim=-1)
            logits = self._constrained(logits, rows, masks)
            picked = _pick(
                logits, uniforms[rows, step], warmth.squeeze(1), top_p[rows] if nucleus else None
            )
            tokens[rows, step] = picked
            logprobs[rows, step] = logps.gather(1, picked.unsqueeze(1)).squeeze(1)
            fresh = ~done[
                rows
                # a row that has ended stays until the batch is made smaller; what it says
                # then is not kept
            ]
            lengths[rows] += fresh.long()
            ended[rows] |= fresh & torch.isin(picked, eos)
            done[rows] |= ended[rows] | (lengths[rows] >= limits[rows])
            going = ~done[rows]
            alive = int(going.sum())
            if not alive:
                break
            _accept(picked, rows, masks, done)
            attended[rows, width + step] = 1
            if alive <= _COMPACT_BELOW * len(rows):
                kept = going.nonzero().squeeze(1)
                cache.batch_select_indices(kept)
                rows, picked, positions = rows[kept], picked[kept], positions[kept]
            input_ids = picked.unsqueeze(1)
            positions = positions[:, -1:] + 1
        return _collected(tokens.cpu(), logprobs.cpu(), lengths.tolist(), ended.tolist())

    def _mask(self, job: Job) -> TokenMask | None:
        if job.grammar is None or self._masks is None:
            return None
        return self._masks(job.grammar, job.max_tokens)

    def _constrained(
        self, logits: torch.Tensor, rows: torch.Tensor, masks: Sequence[TokenMask | None]
    ) -> torch.Tensor:
        """(B, V) logits with forbidden tokens at minus infinity."""
        if not any(mask is not None for mask in masks):
            return logits
        for place, row in enumerate(rows.tolist()):
            mask = masks[row]
            if mask is not None:
                logits[place].masked_fill_(
                    ~mask.allowed(logits.shape[1]).to(logits.device), -torch.inf
                )
        return logits


def _accept(
    picked: torch.Tensor, rows: torch.Tensor, masks: Sequence[TokenMask | None], done: torch.Tensor
) -> None:
    if not any(mask is not None for mask in masks):
        return
    over = done.tolist()
    for row, token in zip(rows.tolist(), picked.tolist(), strict=True):
        mask = masks[row]
        if mask is not None and not over[row]:
            mask.accept(token)


def _pick(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    temperature: torch.Tensor,
    top_p: torch.Tensor | None,
) -> torch.Tensor:
    """(B,) token ids by inverting the cumulative distribution at a uniform draw; the
    most probable one at temperature 0.
    """
    probs = torch.softmax(logits, dim=-1)
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
    return torch.where(temperature > 0, drawn, logits.argmax(-1))


def _uniforms(job: Job, count: int) -> np.ndarray:
    """(C,) draws in [0, 1) that belong to this job alone."""
    return np.random.Generator(np.random.Philox(key=job.seed)).random(count, dtype=np.float32)


def _collected(
    tokens: torch.Tensor, logprobs: torch.Tensor, lengths: Sequence[int], ended: Sequence[bool]
) -> list[Sampled]:
    return [
        Sampled(
            completion_ids=tuple(tokens[row, :length].tolist()),
            logprobs=tuple(logprobs[row, :length].tolist()),
            ended=ended[row],
        )
        for row, length in enumerate(lengths)
    ]


def _speaking(model: Any, adapter: str) -> AbstractContextManager[Any]:
    """The model with an adapter at work, or with none; a model without adapters is left alone."""
    if not hasattr(model, "peft_config"):
        return nullcontext()
    if not adapter:
        return model.disable_adapter()
    return using_adapter(model, adapter)


@contextmanager
def using_adapter(model: Any, adapter: str) -> Generator[None]:
    """Switch to an adapter and back.

    What can be trained stays as it was: PEFT's own switch would freeze the others.
    """
    before = model.active_adapter
    trainable = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.set_adapter(adapter)
    try:
        yield
    finally:
        model.set_adapter(before)
        for parameter, wanted in trainable:
            parameter.requires_grad_(wanted)
