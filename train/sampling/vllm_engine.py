"""Sampling through vLLM, in this process (colocate) or on a server.

It stands behind the same `Engine` as everything else. TRL's `VLLMGeneration` sets vLLM
up and hands it the weights; asking it is done here, because every row has a length,
temperature and seed of its own and TRL's call has one for all. Weights are handed over
once an update. Sleep mode stays off: a rollout asks hundreds of times, and waking up
would cost more than it frees. `max_num_seqs` is the batch width, so that local reruns
fit beside the rollouts. Prefix caching is vLLM's default and is what makes reruns from
one memory cheap; it is emptied with each hand-over. JSON Schemas are held by vLLM
itself.

Limits of the tests: neither vLLM nor a GPU was at hand when this was written. The
mapping of rows to requests is tested against recordings of both calls; setting up,
handing over weights and throughput are not. The log-probabilities are vLLM's own, after
temperature, nucleus and grammar, and a few thousandths off the trainer's; the trainer
logs the difference and weighs rows by the ratio (`train.sampling.mismatch`).

    pip install "memagent[train,vllm]"      in an environment of its own: vLLM pins torch
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch

from memagent.core.errors import ConfigError
from train.sampling.generation import Job, Sampled

Said = tuple[Sequence[int], Sequence[float]]
"""Completion ids and their log-probabilities."""


class Sender(Protocol):
    """Sends jobs to vLLM."""

    def send(self, jobs: Sequence[Job]) -> list[Said]:
        """Return one completion a job, in order."""
        ...


class VLLMEngine:
    """An `Engine` over a sender; `sync` hands the weights over when `version` has changed."""

    def __init__(
        self,
        sender: Sender,
        *,
        eos_ids: Sequence[int],
        version: Callable[[], int] = lambda: 0,
        hand_over: Callable[[], None] = lambda: None,
        on_device: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Sample through the sender.

        `version()` counts updates of the weights; `hand_over()` gives them to vLLM and
        takes part in it on every process. `on_device()` chooses this process's device:
        requests come from a worker thread, which would begin on the first one.
        """
        self._on_device = on_device
        self._sender = sender
        self._eos_ids = frozenset(eos_ids)
        self._version = version
        self._hand_over = hand_over
        self._synced: int | None = None

    def sync(self) -> None:
        """Hand the weights over, unless vLLM has this version.

        All processes do so together: call it where each comes by, whether or not it has
        something to ask.
        """
        version = self._version()
        if version != self._synced:
            self._hand_over()
            self._synced = version

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """Return one result a job, in order.

        Raises `ConfigError` for a row that needs a LoRA adapter of its own.
        """
        if adapter := next((job.adapter for job in jobs if job.adapter), None):
            raise ConfigError(
                f"vLLM is given merged weights, so it cannot speak with adapter {adapter!r}: "
                "train one adapter for all roles, or set use_vllm = false"
            )
        self.sync()
        with self._on_device():
            said = self._sender.send(jobs) if jobs else []
        return [
            Sampled(
                completion_ids=tuple(ids),
                logprobs=tuple(logprobs),
                ended=bool(ids) and ids[-1] in self._eos_ids,
            )
            for ids, logprobs in said
        ]


class ServerSender:
    """Asks a vLLM server through TRL's client, many requests at a time.

    There is one request a row, since a request has one seed.
    """

    def __init__(self, client: Any, *, width: int = 64) -> None:
        """Send through a `trl.generation.vllm_client.VLLMClient`, `width` requests at once."""
        self._client = client
        self._width = width

    def send(self, jobs: Sequence[Job]) -> list[Said]:
        """Return one completion a job, in order; the error of a request is raised."""
        with ThreadPoolExecutor(max_workers=min(self._width, len(jobs))) as pool:
            return list(pool.map(self._complete, jobs))

    def _complete(self, job: Job) -> Said:
        extra: dict[str, Any] = {"seed": _seed(job)}
        if job.grammar is not None:
            extra["structured_outputs"] = {"json": json.loads(job.grammar)}
        output = self._client.generate(
            prompts=[list(job.prompt_ids)],
            n=1,
            temperature=job.temperature,
            top_p=job.top_p,
            max_tokens=job.max_tokens,
            logprobs=0,
            generation_kwargs=extra,
        )
        return output["completion_ids"][0], [place[0] for place in output["logprobs"][0]]


class ColocatedSender:
    """Asks the vLLM engine in this process: all rows in one call, each with its own sampling."""

    def __init__(
        self, llm: Any, *, sampling: Callable[..., Any], structured: Callable[..., Any]
    ) -> None:
        """Send to a `vllm.LLM`.

        `sampling` and `structured` are vLLM's `SamplingParams` and
        `StructuredOutputsParams`.
        """
        self._llm = llm
        self._sampling = sampling
        self._structured = structured

    def send(self, jobs: Sequence[Job]) -> list[Said]:
        """Return one completion a job, in order."""
        outputs = self._llm.generate(
            [{"prompt_token_ids": list(job.prompt_ids)} for job in jobs],
            sampling_params=[self._params(job) for job in jobs],
            use_tqdm=False,
        )
        return [_said(output.outputs[0]) for output in outputs]

    def _params(self, job: Job) -> Any:
        grammar = (
            {}
            if job.grammar is None
            else {"structured_outputs": self._structured(json=json.loads(job.grammar))}
        )
        return self._sampling(
            n=1,
            temperature=job.temperature,
            top_p=job.top_p,
            max_tokens=job.max_tokens,
            logprobs=0,
            seed=_seed(job),
            **grammar,
        )


def open_vllm(trainer: Any, *, eos_ids: Sequence[int], context_tokens: int | None) -> VLLMEngine:
    """Open the engine that a trainer's `vllm_*` settings describe.

    Raises `ConfigError` without vLLM, and for settings that do not go together with
    many short calls.
    """
    args = trainer.args
    if len(set(trainer.adapters.values())) > 1:
        raise ConfigError(
            "vLLM is given merged weights, so it cannot speak with an adapter a role: set "
            "model.lora.per_role = false, or use_vllm = false"
        )
    if args.vllm_enable_sleep_mode:
        raise ConfigError(
            "vllm_enable_sleep_mode must be false: a rollout asks too often to wake vLLM up "
            "each time"
        )
    if args.vllm_mode == "colocate" and args.vllm_tensor_parallel_size != 1:
        raise ConfigError(
            "vllm_tensor_parallel_size must be 1 with vllm_mode = 'colocate': every process asks "
            "on its own"
        )
    try:
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]
        from vllm.sampling_params import StructuredOutputsParams  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError('use_vllm needs vLLM: pip install "memagent[train,vllm]"') from error
    from trl.generation.vllm_generation import VLLMGeneration

    url = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    generation: Any = VLLMGeneration(
        model=trainer.model,
        accelerator=trainer.accelerator,
        processing_class=trainer.processing_class,
        mode=args.vllm_mode,
        server_base_url=url,
        server_timeout=args.vllm_server_timeout,
        group_port=args.vllm_group_port,
        gpu_memory_utilization=args.vllm_gpu_memory_utilization,
        max_model_length=args.vllm_max_model_length or context_tokens,
        max_num_seqs=args.batch_width,
        enable_sleep_mode=False,
        model_impl=args.vllm_model_impl,
    )
    sender = _sender_of(trainer, generation, url, SamplingParams, StructuredOutputsParams)
    return VLLMEngine(
        sender,
        eos_ids=eos_ids,
        version=lambda: trainer.state.global_step,
        hand_over=partial(hand_over, generation, trainer.accelerator),
        on_device=partial(torch.cuda.device, trainer.accelerator.device)
        if trainer.accelerator.device.type == "cuda"
        else nullcontext,
    )


def _sender_of(trainer: Any, generation: Any, url: str, sampling: Any, structured: Any) -> Sender:
    """Return what asks vLLM, on a server or in this process."""
    args = trainer.args
    if args.vllm_mode != "server":
        return ColocatedSender(generation.llm, sampling=sampling, structured=structured)
    from trl.generation.vllm_client import VLLMClient

    # Only the main process has the client that weights go through; each process asks
    # with one of its own.
    client = (
        generation.vllm_client
        if trainer.accelerator.is_main_process
        else VLLMClient(base_url=url, connection_timeout=args.vllm_server_timeout)
    )
    return ServerSender(client, width=args.batch_width)


def hand_over(generation: Any, accelerator: Any) -> None:
    """Give vLLM the weights and let no process ask before it has them all.

    Only the main process sends them to a server; the others would ask the old ones.
    """
    generation.sync_weights()
    accelerator.wait_for_everyone()


def _said(output: Any) -> Said:
    ids = list(output.token_ids)
    return ids, [place[token].logprob for place, token in zip(output.logprobs, ids, strict=True)]


def _seed(job: Job) -> int:
    """Return the job's seed in 63 bits, as vLLM takes it."""
    return job.seed & (2**63 - 1)
