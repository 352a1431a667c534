"""Sampling from a causal language model, many rows at a time; rows join and leave.

Results carry the sampler's own ids and log-probabilities. Every row draws from its own
stream of uniforms (Philox, seeded by the job), so its text depends on its seed and
prompt, not on the rest of its batch (up to rounding). Log-probabilities are those of
the distribution that was sampled: after temperature, grammar and nucleus. A trainer that
computes them anew from the same ids has none of the last two, and corrects for the
difference.

A row that has ended leaves and a job that is ready joins, whatever the others are at.
That is done every few tokens: a prompt is read in a pass of its own, and the keys and
values of all rows are copied into one left-padded batch. Rows with the same prompt read
it once: rollouts of one episode hear the same session, and answers of a group the same
question.

Shapes: B rows, P prompt, C completion, W columns of the batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn import functional

from train.sampling.batcher import Job, Sampled, all_results
from train.sampling.kv_cache import CACHE, join_caches, may_join, with_room

_COMPACT_BELOW = 0.5
"""Share of live rows under which ended ones are taken out though none joins."""
_BURST = 8
"""Most tokens between two times that rows leave and join."""
_LEAVING = 0.125
"""Share of the rows that need not wait for so many tokens once they have ended."""

_ONE_THREAD_BELOW = 100_000_000
"""Parameters under which a model on the CPU is given one thread."""


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
        """Return one result a job, in order."""
        return all_results(self.serve, jobs)

    @torch.inference_mode()
    def serve(
        self, jobs: Sequence[Job], more: Callable[[Mapping[int, Sampled]], Sequence[Job]]
    ) -> None:
        """Sample jobs, and those that `more` gives whenever some have ended.

        Jobs of one adapter are decoded together; adapters take turns.
        """
        with self._unwrapped() if self._unwrapped is not None else nullcontext(self.model) as model:
            was_training, device = model.training, next(model.parameters()).device
            model.eval()
            turns: dict[str, RunningRows] = {}
            count = 0
            try:
                while jobs or any(rows.busy for rows in turns.values()):
                    for place, job in enumerate(jobs, start=count):
                        fresh = RunningRows(self._eos_ids, self._pad_id, device)
                        rows = turns.setdefault(job.adapter or "", fresh)
                        rows.waiting.append((place, job, self._mask(job)))
                    count += len(jobs)
                    jobs = more(self._advanced(model, turns))
            finally:
                model.train(was_training)

    def _advanced(self, model: Any, turns: Mapping[str, RunningRows]) -> dict[int, Sampled]:
        """Let each adapter speak in turn until some rows have ended, and return these."""
        ended: dict[int, Sampled] = {}
        while not ended:
            for adapter, rows in sorted(turns.items()):
                if rows.busy:
                    with self._autocast(), _speaking(model, adapter):
                        ended |= rows.advance(model)
        return ended

    def _mask(self, job: Job) -> TokenMask | None:
        if job.grammar is None or self._masks is None:
            return None
        return self._masks(job.grammar, job.max_tokens)


def _prompts(
    jobs: Sequence[Job], *, pad_id: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the different prompts (prompts, P), left-padded, their mask, and each row's (B,)."""
    width = max(len(job.prompt_ids) for job in jobs)
    different = list(dict.fromkeys(job.prompt_ids for job in jobs))
    places = {ids: place for place, ids in enumerate(different)}
    padded = [[pad_id] * (width - len(ids)) + list(ids) for ids in different]
    mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in different]
    shared = torch.tensor([places[job.prompt_ids] for job in jobs])
    return torch.tensor(padded).to(device), torch.tensor(mask).to(device), shared.to(device)


@dataclass
class _Rows:
    """Rows of a batch: how each is sampled, and its tokens so far.

    Fields are (B,), but for the columns `attended` (B, W) that hold something of a row, and
    `uniforms`, `tokens` and `logprobs` (B, C). `position` is that of the last token
    `picked`; a row is `done` when it has `ended` or is as long as its `limit`.
    """

    attended: torch.Tensor
    position: torch.Tensor
    uniforms: torch.Tensor
    temperature: torch.Tensor
    top_p: torch.Tensor
    limit: torch.Tensor
    tokens: torch.Tensor
    logprobs: torch.Tensor
    picked: torch.Tensor
    length: torch.Tensor
    ended: torch.Tensor
    done: torch.Tensor

    @classmethod
    def of(cls, jobs: Sequence[Job], attended: torch.Tensor) -> _Rows:
        """Return rows whose prompts fill the columns that they attend to.

        Each draws from a stream of uniforms that belongs to its job alone.
        """
        device, count = attended.device, len(jobs)
        longest = max(job.max_tokens for job in jobs)
        streams = [np.random.Generator(np.random.Philox(key=job.seed)) for job in jobs]
        uniforms = np.stack([stream.random(longest, dtype=np.float32) for stream in streams])
        return cls(
            attended=attended,
            position=(attended.sum(1) - 1).clamp(min=0),
            uniforms=torch.from_numpy(uniforms).to(device),
            temperature=torch.tensor([job.temperature for job in jobs], device=device),
            top_p=torch.tensor([job.top_p for job in jobs], device=device),
            limit=torch.tensor([job.max_tokens for job in jobs], device=device),
            tokens=torch.zeros((count, longest), dtype=torch.long, device=device),
            logprobs=torch.zeros((count, longest), device=device),
            picked=torch.zeros(count, dtype=torch.long, device=device),
            length=torch.zeros(count, dtype=torch.long, device=device),
            ended=torch.zeros(count, dtype=torch.bool, device=device),
            done=torch.zeros(count, dtype=torch.bool, device=device),
        )

    def select(self, places: torch.Tensor) -> _Rows:
        """Return some of the rows."""
        return _Rows(**{name: value[places] for name, value in vars(self).items()})

    def beside(self, fresh: _Rows) -> _Rows:
        """Return these rows and fresh ones; both end at the same column."""

        def joined(name: str, own: torch.Tensor) -> torch.Tensor:
            other = getattr(fresh, name)
            if own.dim() == 1:
                return torch.cat([own, other])
            width = max(own.shape[1], other.shape[1])
            padded = [
                functional.pad(
                    each,
                    (width - each.shape[1], 0)
                    if name == "attended"
                    else (0, width - each.shape[1]),
                )
                for each in (own, other)
            ]
            return torch.cat(padded)

        return _Rows(**{name: joined(name, own) for name, own in vars(self).items()})

    def take(self, logits: torch.Tensor, eos: torch.Tensor) -> None:
        """Pick the next token of each row from logits (B, V) and note it.

        A row that is done may stay in the batch; its further tokens do not count.
        """
        places = torch.arange(len(self.done), device=logits.device)
        at = self.length.clamp(max=self.tokens.shape[1] - 1)
        self.picked, logps = _pick(logits, self.uniforms[places, at], self.temperature, self.top_p)
        going = ~self.done
        self.tokens[places, at] = torch.where(going, self.picked, self.tokens[places, at])
        self.logprobs[places, at] = torch.where(going, logps, self.logprobs[places, at])
        self.length += going.long()
        self.position = self.position + 1
        self.ended |= going & torch.isin(self.picked, eos)
        self.done |= self.ended | (self.length >= self.limit)


class RunningRows:
    """The rows of one adapter: those that are decoded together, and those that wait."""

    def __init__(self, eos_ids: Sequence[int], pad_id: int, device: torch.device) -> None:
        self.waiting: list[tuple[int, Job, TokenMask | None]] = []
        self._eos = torch.tensor(eos_ids, device=device)
        self._pad_id, self._device = pad_id, device
        self._places: list[int | None] = []
        """Of each row; None for one that was returned and has not been taken out."""
        self._masks: list[TokenMask | None] = []
        self._rows: _Rows | None = None
        self._cache: Any = None

    @property
    def busy(self) -> bool:
        """Whether there are rows that have not been returned."""
        return bool(self.waiting or self._places)

    def advance(self, model: Any) -> dict[int, Sampled]:
        """Let waiting rows join, decode some tokens, and return what has ended by place."""
        if self.waiting and (self._rows is None or may_join(self._cache)):
            self._join(model)
        assert self._rows is not None
        returned = self._places.count(None)
        enough = returned + max(1, int(_LEAVING * (len(self._places) - returned)))
        for _ in range(_BURST):
            if int(self._rows.done.sum()) >= enough:
                break
            self._step(model)
        return self._ended()

    def _join(self, model: Any) -> None:
        places, jobs, masks = zip(*self.waiting, strict=True)
        self.waiting = []
        ids, mask, shared = _prompts(jobs, pad_id=self._pad_id, device=self._device)
        logits, cache = _read(model, ids, mask, (mask.cumsum(1) - 1).clamp(min=0), None)
        if len(ids) < len(jobs):
            cache.batch_select_indices(shared)
            logits = logits[shared]
        fresh, cache = _Rows.of(jobs, mask[shared]), with_room(cache)
        self._take(fresh, masks, logits)
        if self._rows is None:
            self._rows, self._cache = fresh, cache
        else:
            kept = self._kept()
            own = self._rows.select(kept)
            empty = int(own.attended.any(0).int().argmax())  # columns that only others had
            own.attended = own.attended[:, empty:]
            join_caches(self._cache, kept, empty, cache)
            self._rows = own.beside(fresh)
        self._places += places
        self._masks += masks

    def _step(self, model: Any) -> None:
        rows = self._rows
        assert rows is not None
        rows.attended = functional.pad(rows.attended, (0, 1), value=1)
        logits, self._cache = _read(
            model, rows.picked[:, None], rows.attended, rows.position[:, None], self._cache
        )
        self._take(rows, self._masks, logits)

    def _take(self, rows: _Rows, masks: Sequence[TokenMask | None], logits: torch.Tensor) -> None:
        """Pick the next tokens, among those that the masks allow."""
        warmth = rows.temperature.unsqueeze(1)
        logits = logits.float() / torch.where(warmth > 0, warmth, 1.0)
        held = [(row, mask) for row, mask in enumerate(masks) if mask is not None]
        for row, mask in held:
            allowed = mask.allowed(logits.shape[1]).to(logits.device)
            logits[row].masked_fill_(~allowed, -torch.inf)
        rows.take(logits, self._eos)
        if held:
            done, picked = rows.done.tolist(), rows.picked.tolist()
            for row, mask in held:
                if not done[row]:
                    mask.accept(picked[row])

    def _ended(self) -> dict[int, Sampled]:
        """Return the rows that have ended by place, and take them out where it pays."""
        rows = self._rows
        assert rows is not None
        done = rows.done.tolist()
        rows_ended = [
            (row, place)
            for row, place in enumerate(self._places)
            if done[row] and place is not None
        ]
        ended = {place: self._sampled(rows, row) for row, place in rows_ended}
        for row, _ in rows_ended:
            self._places[row] = None
        alive = done.count(False)
        if not alive:
            self._rows, self._cache, self._places, self._masks = None, None, [], []
        elif alive <= _COMPACT_BELOW * len(done):
            kept = self._kept()
            self._cache.batch_select_indices(kept)
            self._rows = rows.select(kept)
        return ended

    def _kept(self) -> torch.Tensor:
        """Forget the rows that were returned and return the places (live,) of the others."""
        kept = [row for row, place in enumerate(self._places) if place is not None]
        self._places = [self._places[row] for row in kept]
        self._masks = [self._masks[row] for row in kept]
        return torch.tensor(kept, device=self._device)

    @staticmethod
    def _sampled(rows: _Rows, row: int) -> Sampled:
        length = int(rows.length[row])
        return Sampled(
            completion_ids=tuple(rows.tokens[row, :length].tolist()),
            logprobs=tuple(rows.logprobs[row, :length].tolist()),
            ended=bool(rows.ended[row]),
        )


def _read(
    model: Any, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any
) -> tuple[torch.Tensor, Any]:
    """Return the logits (B, V) behind the last of the ids (B, n), and the cache with them."""
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=1,
        **{CACHE: cache},
    )
    return out.logits[:, -1], getattr(out, CACHE)


def _pick(
    logits: torch.Tensor,
    uniforms: torch.Tensor,
    temperature: torch.Tensor,
    top_p: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (B,) token ids and their log-probabilities in the distribution sampled.

    The ids invert the cumulative distribution at a uniform draw; at temperature 0 they
    are the most probable ones.
    """
    logps = torch.log_softmax(logits, dim=-1)
    probs = logps.exp()
    nucleus = bool((top_p < 1).any())
    if nucleus:
        ordered, places = probs.sort(dim=-1, descending=True)
        outside = ordered.cumsum(-1) - ordered >= top_p.unsqueeze(1)
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
    kept = total.log() if nucleus else torch.zeros_like(total)
    return picked.squeeze(1), (logps.gather(1, picked) - kept).squeeze(1)


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
    return kept_adapter(model, speaking=adapter)


@contextmanager
def kept_adapter(model: Any, *, speaking: str | None = None) -> Generator[None]:
    """Restore the active adapter in the end; until then the one that is `speaking`, if any.

    Trainable parameters stay as they were: PEFT's own switch would freeze the others.
    """
    before = model.active_adapter
    trainable = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        if speaking is not None:
            model.set_adapter(speaking)
        yield
    finally:
        model.set_adapter(before)
        for parameter, requires_grad in trainable:
            parameter.requires_grad_(requires_grad)
