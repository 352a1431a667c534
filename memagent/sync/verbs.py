"""Synchronous verbs made of asynchronous ones, and the memory's verbs in that form.

`blocking` turns an asynchronous method into a synchronous one with the same name,
parameters, docstring and result, for editors as for `inspect.signature`; so no verb is
written twice. The surprise: the verb is looked up by its name on the object that the
call reaches, so one class serves a local `Memory` and the service's `RemoteMemory`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import datetime
from functools import wraps
from operator import methodcaller
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from memagent.core.answers import AsOf
from memagent.memory.facade import Memory

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Run = Callable[[Callable[[Any], Coroutine[Any, Any, Any]]], Any]
"""Waits for the coroutine that a function makes of the asynchronous object."""


class Blocking(Protocol[P, T_co]):
    """A synchronous method, as type checkers see it."""

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[P, T_co]:
        """Bind the method to an object."""
        ...


def blocking(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Blocking[P, T]:
    """Make a method that waits for an asynchronous one.

    The class that gets it has a method `_run(make)`, which waits for the coroutine that
    `make` gives for the asynchronous object.
    """
    name = getattr(verb, "__name__", "")

    @wraps(verb)
    def wait(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        call = methodcaller(name, *args, **kwargs)
        return self._run(call)

    return cast("Blocking[P, T]", wait)


def blocking_stream(
    verb: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Blocking[P, Iterator[T]]:
    """Make a generator of an asynchronous one.

    The class that gets it has a method `_iterate(make)`, which yields the pieces of the
    stream that `make` gives for the asynchronous object.
    """
    name = getattr(verb, "__name__", "")

    @wraps(verb)
    def iterate(self: Any, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        yield from self._iterate(methodcaller(name, *args, **kwargs))

    return cast("Blocking[P, Iterator[T]]", iterate)


class SyncMemory:
    """The verbs of `memagent.memory.facade.Memory` for synchronous code.

    Forks and views of the past are memories of the same kind; in a view of the past
    writes raise `StoreReadOnly`.
    """

    def __init__(self, run: Run) -> None:
        """Take the function that waits for a coroutine over the memory."""
        self._run = run

    add = blocking(Memory.add)
    add_many = blocking(Memory.add_many)
    search = blocking(Memory.search)
    get = blocking(Memory.get)
    get_all = blocking(Memory.get_all)
    sessions = blocking(Memory.sessions)
    update = blocking(Memory.update)
    delete = blocking(Memory.delete)
    delete_all = blocking(Memory.delete_all)
    reset = blocking(Memory.reset)
    history = blocking(Memory.history)
    undo = blocking(Memory.undo)
    graph_stats = blocking(Memory.graph_stats)
    snapshot = blocking(Memory.snapshot)
    restore = blocking(Memory.restore)
    diff = blocking(Memory.diff)
    export = blocking(Memory.export)
    export_graph = blocking(Memory.export_graph)
    import_ = blocking(Memory.import_)
    quarantine = blocking(Memory.quarantine)
    accept = blocking(Memory.accept)
    refuse = blocking(Memory.refuse)
    touched_by = blocking(Memory.touched_by)
    exclude = blocking(Memory.exclude)
    roll_back = blocking(Memory.roll_back)
    erase = blocking(Memory.erase)
    erase_session = blocking(Memory.erase_session)

    def as_of(self, when: AsOf | datetime | str) -> SyncMemory:
        """Return a read-only view of the memory at a point in time."""
        return self._over(self._run(lambda memory: memory.as_of(when)))

    def fork(self) -> SyncMemory:
        """Return a private copy; its writes never reach this memory."""
        return self._over(self._run(lambda memory: memory.fork()))

    def _over(self, memory: object) -> SyncMemory:
        return SyncMemory(lambda make: self._run(lambda _: make(memory)))
