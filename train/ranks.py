"""Processes that train together: one decides, all know; gradients are averaged.

Every function here is a collective: all processes call it, in the same order. With one
process each is a plain call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

T = TypeVar("T")
_BUCKET = 25_000_000
"""Numbers of a gradient that are averaged in one call."""


def on_main(work: Callable[[], T]) -> T:
    """Run the work on the main process and return its result on all.

    The others wait. An error of the work is raised on all of them, so none waits for a
    process that has given up.
    """
    state = PartialState()
    if state.num_processes == 1:
        return work()
    outcome: list[Any] = [None, None]
    if state.is_main_process:
        try:
            outcome[0] = work()
        except Exception as error:
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def shared(items: Sequence[T]) -> list[T]:
    """Return this process's share of the items: every n-th of n processes."""
    state = PartialState()
    return list(items[state.process_index :: state.num_processes])


def joined(items: Sequence[T], *, count: int) -> list[T]:
    """Return the `count` items of which each process holds the share that `shared` gave it."""
    processes = PartialState().num_processes
    if processes == 1:
        return list(items)
    flat: list[tuple[int, T]] = gather_object(
        [
            (PartialState().process_index + place * processes, item)
            for place, item in enumerate(items)
        ]
    )
    by_place = dict(flat)
    return [by_place[place] for place in range(count)]


def gathered(value: T) -> list[T]:
    """Return the values of all processes, in their order."""
    return [value] if PartialState().num_processes == 1 else gather_object([value])


class Alone:
    """An accelerator whose collectives return what this process has.

    TRL gathers figures in every loss; processes that compute different numbers of losses
    would wait for each other for ever.
    """

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor."""
        return tensor

    gather_for_metrics = gather

    def reduce(self, tensor: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return the tensor."""
        return tensor


def average_gradients(model: torch.nn.Module) -> None:
    """Replace each gradient by its mean over the processes.

    A parameter without a gradient on one process counts as zero there; one that has none
    on any process stays without. This needs no hooks, so processes may run different
    numbers of backward passes, through different adapters.
    """
    state = PartialState()
    if state.num_processes == 1:
        return
    trained = [each for each in model.parameters() if each.requires_grad]
    if not trained:
        return
    present = torch.tensor(
        [each.grad is not None for each in trained], dtype=torch.int32, device=trained[0].device
    )
    torch.distributed.all_reduce(present, op=torch.distributed.ReduceOp.MAX)
    used = [each for each, there in zip(trained, present.tolist(), strict=True) if there]
    bucket: list[torch.nn.Parameter] = []
    size = 0
    for each in used:
        if bucket and (size + each.numel() > _BUCKET or each.dtype != bucket[0].dtype):
            _average(bucket, state.num_processes)
            bucket, size = [], 0
        bucket.append(each)
        size += each.numel()
    if bucket:
        _average(bucket, state.num_processes)


def _average(parameters: Sequence[torch.nn.Parameter], processes: int) -> None:
    flat = torch.cat(
        [
            (torch.zeros_like(each) if each.grad is None else each.grad).reshape(-1)
            for each in parameters
        ]
    )
    torch.distributed.all_reduce(flat)
    flat /= processes
    at = 0
    for each in parameters:
        part = flat[at : at + each.numel()].view_as(each)
        if each.grad is None:
            each.grad = part.clone()
        else:
            each.grad.copy_(part)
        at += each.numel()
