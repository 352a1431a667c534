"""Sampling through vLLM, in this process (colocate) or on a server.

It stands behind the same `Engine` as everything else. Asking is done here, because every
row has a length, temperature and seed of its own and TRL's call has one for all. Weights
are handed over once an update: LoRA adapters as adapters, under a name for each version
(`train.sampling.vllm_adapters`), so each role speaks with its own; whole weights through
TRL's `VLLMGeneration`. Sleep mode stays off: a rollout asks hundreds of times, and
waking up would cost more than it frees. `max_num_seqs` is the batch width, so that local
reruns fit beside the rollouts. Prefix caching is vLLM's default and is what makes reruns
from one memory cheap. JSON Schemas are held by vLLM itself.

Limits of the tests: neither vLLM nor a GPU was at hand when this was written. TRL's real
client and whole training runs with two adapters are driven by a server that speaks
vLLM's HTTP; the engine in this process and the transfer of whole weights are tested
against recordings. Throughput is not. The log-probabilities are vLLM's own, after
temperature, nucleus and grammar, and a few thousandths off the trainer's; the trainer
logs the difference and weighs rows by the ratio (`train.sampling.row_reader`).

    pip install "memagent[train,vllm]"      in an environment of its own: vLLM pins torch
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import torch

from memagent.core.errors import ConfigError
from train.errors import TrainFault
from train.sampling.batcher import Job, More, Sampled, all_results, in_batches
from train.sampling.vllm_adapters import (
    AdapterHost,
    AdapterVersions,
    ColocatedAdapters,
    ServerAdapters,
    served_rank,
)

MISSING = 'use_vllm needs vLLM: pip install "memagent[train,vllm]"'
Said = tuple[Sequence[int], Sequence[float]]
"""Completion ids and their log-probabilities."""


class Sender(Protocol):
    """Sends jobs to vLLM."""

    def serve(self, jobs: Sequence[Job], more: More[Said, Job]) -> None:
        """Answer jobs, and those that `more` gives, until all have ended."""
        ...


class VLLMEngine:
    """An `Engine` over a sender; `sync` hands the weights over when `version` has changed."""

    def __init__(
        self,
        sender: Sender,
        *,
        eos_ids: Sequence[int],
        version: Callable[[], int] = lambda: 0,
        hand_over: Callable[[int], object] = lambda _: None,
        served: Callable[[str | None], str | None] | None = None,
        on_device: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Sample through the sender.

        `version()` counts updates of the weights; `hand_over(version)` gives them to vLLM
        and takes part in it on every process. `served` gives the name under which vLLM has
        an adapter; without it rows that need one are refused. `on_device()` chooses this
        process's device: requests come from a worker thread, which would begin on the
        first one.
        """
        self.concurrent = isinstance(sender, ServerSender)
        """Whether many threads may ask at once."""
        self._on_device = on_device
        self._served = served
        self._sender = sender
        self._eos_ids = frozenset(eos_ids)
        self._version = version
        self._hand_over = hand_over
        self._synced: int | None = None
        self._handing_over = Lock()

    def sync(self) -> None:
        """Hand the weights over, unless vLLM has this version.

        All processes do so together: call it where each comes by, whether or not it has
        something to ask.
        """
        with self._handing_over:
            version = self._version()
            if version != self._synced:
                self._hand_over(version)
                self._synced = version

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """Return one result a job, in order; see `serve`."""
        return all_results(self.serve, jobs)

    def serve(self, jobs: Sequence[Job], more: More[Sampled, Job]) -> None:
        """Answer jobs, and those that `more` gives, each as soon as it has ended.

        Raises `ConfigError` for a row with an adapter where none are served, `TrainFault`
        when the weights were updated while vLLM answered with those before.
        """
        self.sync()

        def sampled(ended: Mapping[int, Said]) -> Sequence[Job]:
            if self._version() != self._synced:
                raise TrainFault(
                    f"vLLM answered with version {self._synced} of the weights, and the policy "
                    f"is version {self._version()} by now"
                )
            return self._named(more({place: self._sampled(*said) for place, said in ended.items()}))

        with self._on_device():
            self._sender.serve(self._named(jobs), sampled)

    def _named(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs with the names under which vLLM has their adapters."""
        if self._served is not None:
            return [replace(job, adapter=self._served(job.adapter)) for job in jobs]
        adapter = next((job.adapter for job in jobs if job.adapter), None)
        if adapter:
            raise ConfigError(f"vLLM was given whole weights, so it has no adapter {adapter!r}")
        return jobs

    def _sampled(self, ids: Sequence[int], logprobs: Sequence[float]) -> Sampled:
        return Sampled(
            completion_ids=tuple(ids),
            logprobs=tuple(logprobs),
            ended=bool(ids) and ids[-1] in self._eos_ids,
        )


class ServerSender:
    """Asks a vLLM server through TRL's client, row by row, since a request has one seed.

    Whoever wants many answers at a time asks in many threads.
    """

    def __init__(self, client: Any) -> None:
        """Send through a `trl.generation.vllm_client.VLLMClient`."""
        self._client = client

    def serve(self, jobs: Sequence[Job], more: More[Said, Job]) -> None:
        """Ask for one job after the other; the error of a request is raised."""

        def complete(asked: Sequence[Job]) -> list[Said]:
            return [self._complete(job) for job in asked]

        in_batches(complete)(jobs, more)

    def _complete(self, job: Job) -> Said:
        extra: dict[str, Any] = {"seed": _seed(job)}
        if job.grammar is not None:
            extra["structured_outputs"] = {"json": json.loads(job.grammar)}
        if job.adapter is not None:
            extra["model"] = job.adapter
        try:
            output = self._client.generate(
                prompts=[list(job.prompt_ids)],
                n=1,
                temperature=job.temperature,
                top_p=job.top_p,
                max_tokens=job.max_tokens,
                logprobs=0,
                generation_kwargs=extra,
            )
        except Exception as error:  # TRL's client raises nothing narrower
            raise TrainFault(f"the vLLM server gave no reply: {error}") from error
        return output["completion_ids"][0], [place[0] for place in output["logprobs"][0]]


class ColocatedSender:
    """Asks the vLLM engine in this process, each row with its own sampling."""

    def __init__(
        self,
        llm: Any,
        *,
        sampling: Callable[..., Any],
        structured: Callable[..., Any],
        adapters: ColocatedAdapters | None = None,
    ) -> None:
        """Send to a `vllm.LLM`.

        `sampling` and `structured` are vLLM's `SamplingParams` and
        `StructuredOutputsParams`.
        """
        self._llm = llm
        self._adapters = adapters
        self._sampling = sampling
        self._structured = structured

    def serve(self, jobs: Sequence[Job], more: More[Said, Job]) -> None:
        """Let rows join vLLM's running batch, and hand each out when it has ended."""
        engine, count = self._llm.llm_engine, 0
        while jobs or engine.has_unfinished_requests():
            for place, job in enumerate(jobs, start=count):
                request = self._adapters.request(job.adapter) if self._adapters else None
                prompt = {"prompt_token_ids": list(job.prompt_ids)}
                params = self._params(job)
                engine.add_request(str(place), prompt, params, lora_request=request)
            count += len(jobs)
            outputs = [output for output in engine.step() if output.finished]
            ended = {int(output.request_id): _said(output.outputs[0]) for output in outputs}
            jobs = more(ended) if ended else ()

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
    bare = trainer.accelerator.unwrap_model(trainer.model)
    opened = _with_adapters if hasattr(bare, "peft_config") else _with_weights
    sender, how = opened(trainer, bare, context_tokens)
    return VLLMEngine(
        sender,
        eos_ids=eos_ids,
        version=lambda: trainer.state.global_step,
        on_device=partial(torch.cuda.device, trainer.accelerator.device)
        if trainer.accelerator.device.type == "cuda"
        else nullcontext,
        **how,
    )


def _with_adapters(
    trainer: Any, model: Any, context_tokens: int | None
) -> tuple[Sender, dict[str, Any]]:
    """Return what asks a vLLM that holds the base model, and how adapters get there."""
    args, accelerator = trainer.args, trainer.accelerator
    host: AdapterHost | None
    if args.vllm_mode == "server":
        client = _client_of(args)
        sender: Sender = ServerSender(client)
        host = ServerAdapters(client) if accelerator.is_main_process else None
    else:
        llm, sampling, structured, request = _colocated(trainer, model, context_tokens)
        host = adapters = ColocatedAdapters(request)
        sender = ColocatedSender(llm, sampling=sampling, structured=structured, adapters=adapters)
    versions = AdapterVersions(
        model,
        host,
        folder=Path(args.output_dir) / "vllm",
        is_main=accelerator.is_main_process,
        wait=accelerator.wait_for_everyone,
    )
    return sender, {"hand_over": versions.publish, "served": versions.served}


def _colocated(trainer: Any, model: Any, context_tokens: int | None) -> tuple[Any, ...]:
    """Return an engine with the base model in this process, and vLLM's request classes.

    Set up as TRL does, which has no setting for adapters.
    """
    vllm, structured = _vllm()
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

    args, accelerator = trainer.args, trainer.accelerator
    for name, value in (
        ("RANK", accelerator.process_index),
        ("LOCAL_RANK", accelerator.local_process_index),
        ("WORLD_SIZE", accelerator.num_processes),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29577"),
    ):
        os.environ.setdefault(name, str(value))
    llm = vllm.LLM(
        model=model.get_base_model().config.name_or_path,
        gpu_memory_utilization=args.vllm_gpu_memory_utilization,
        max_model_len=args.vllm_max_model_length or context_tokens,
        max_num_seqs=args.batch_width,
        model_impl=args.vllm_model_impl,
        distributed_executor_backend="external_launcher",
        seed=accelerator.process_index,
        logprobs_mode="processed_logprobs",
        enable_lora=True,
        max_loras=2 * len(model.peft_config),
        max_lora_rank=served_rank(model),
    )
    return llm, vllm.SamplingParams, structured, LoRARequest


def _with_weights(
    trainer: Any, _model: Any, context_tokens: int | None
) -> tuple[Sender, dict[str, Any]]:
    """Return what asks a vLLM that is given whole weights, and how they get there."""
    args = trainer.args
    vllm, structured = _vllm()
    from trl.generation.vllm_generation import VLLMGeneration

    generation: Any = VLLMGeneration(
        model=trainer.model,
        accelerator=trainer.accelerator,
        processing_class=trainer.processing_class,
        mode=args.vllm_mode,
        server_base_url=_url(args),
        server_timeout=args.vllm_server_timeout,
        group_port=args.vllm_group_port,
        gpu_memory_utilization=args.vllm_gpu_memory_utilization,
        max_model_length=args.vllm_max_model_length or context_tokens,
        max_num_seqs=args.batch_width,
        enable_sleep_mode=False,
        model_impl=args.vllm_model_impl,
    )
    sender: Sender
    if args.vllm_mode != "server":
        sender = ColocatedSender(
            generation.llm, sampling=vllm.SamplingParams, structured=structured
        )
    else:
        # Only the main process has the client that weights go through; each process asks
        # with one of its own.
        main = trainer.accelerator.is_main_process
        client = generation.vllm_client if main else _client_of(args)
        sender = ServerSender(client)
    return sender, {"hand_over": partial(hand_over, generation, trainer.accelerator)}


def _url(args: Any) -> str:
    return args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"


def _client_of(args: Any) -> Any:
    """Return TRL's client of the server; raise `ConfigError` without vLLM."""
    from trl.generation.vllm_client import VLLMClient

    try:
        return VLLMClient(base_url=_url(args), connection_timeout=args.vllm_server_timeout)
    except ImportError as error:
        raise ConfigError(MISSING) from error


def _vllm() -> tuple[Any, Any]:
    """Return vLLM and its class for schemas; raise `ConfigError` without it."""
    try:
        import vllm  # pyright: ignore[reportMissingImports]
        from vllm.sampling_params import StructuredOutputsParams  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(MISSING) from error
    return vllm, StructuredOutputsParams


def hand_over(generation: Any, accelerator: Any, _version: int) -> None:
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
