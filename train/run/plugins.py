"""Techniques of a run: names and dotted paths become objects, one of each.

A technique is found by its entry point in `memagent.techniques` or by a path
`package.module:attribute`. A class is made with the arguments that
`[trainer.arguments.NAME]` gives; any other object is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from memagent.core.errors import ConfigError
from memagent.plugins import load
from train.credit.objectives import Objective, Objectives
from train.credit.slots import Chained, Estimator, Selector, Stateful
from train.rollouts.allocation import Allocator
from train.rollouts.anchors import AnchorSelector
from train.rollouts.slots import NO_HINTER, NO_SOURCE, EpisodeSampler, GroupSource, Hinter
from train.sampling.hooks import SamplerHook
from train.settings.options import LoGoOptions

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The techniques that fill the slots of a run."""

    estimator: Estimator
    selector: Chained
    objectives: Objectives
    allocator: Allocator
    anchor_selector: AnchorSelector
    episode_sampler: EpisodeSampler
    source: GroupSource
    hinter: Hinter
    sampler_hook: SamplerHook | None

    def stateful(self) -> dict[str, Stateful]:
        """Return those that keep something between steps, by slot."""
        return dict(self._stateful())

    def _stateful(self) -> Iterator[tuple[str, Stateful]]:
        for number, part in enumerate(self.selector.parts):
            yield f"selector/{number}", part
        yield from self.objectives.stateful().items()
        for slot in (
            "estimator",
            "allocator",
            "anchor_selector",
            "episode_sampler",
            "source",
            "hinter",
            "sampler_hook",
        ):
            if isinstance(part := getattr(self, slot), Stateful):
                yield slot, part


def open_plugins(args: LoGoOptions) -> Plugins:
    """Open the techniques that options name.

    Raises `UnknownPlugin` for one that is not there, and `ConfigError` for arguments that
    it does not take or that no technique of the run takes.
    """
    opened = _Opener(args.arguments)
    plugins = Plugins(
        estimator=cast(Estimator, opened.get(args.estimator)),
        selector=Chained([opened.of(name, Selector) for name in args.selectors]),
        objectives=Objectives(
            parts={_short(name): opened.of(name, Objective) for name in args.objectives}
        ),
        allocator=cast(Allocator, opened.get(args.allocation)),
        anchor_selector=cast(AnchorSelector, opened.get(args.anchor_selector)),
        episode_sampler=opened.of(args.episode_sampler, EpisodeSampler),
        source=opened.of(args.group_source, GroupSource) if args.group_source else NO_SOURCE,
        hinter=opened.of(args.hinter, Hinter) if args.hinter else NO_HINTER,
        sampler_hook=opened.of(args.sampler_hook, SamplerHook) if args.sampler_hook else None,
    )
    opened.check_all_used()
    return plugins


@runtime_checkable
class HasChecks(Protocol):
    """A technique that does not go with all settings."""

    def check(self, args: Any, /) -> None:
        """Raise `ConfigError` for settings of the trainer that it does not go with."""
        ...


def check_plugins(plugins: Plugins, args: Any) -> None:
    """Let every technique that has a `check` look at the trainer's settings.

    Raises the `ConfigError` of the first that does not go with them.
    """
    slots = (plugins.estimator, *plugins.selector.parts, plugins.source)
    for part in (*plugins.objectives.parts.values(), *slots):
        if isinstance(part, HasChecks):
            part.check(args)


class _Opener:
    """Opens techniques and notes whose arguments were used."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._used: set[str] = set()

    def get(self, name: str) -> object:
        """Return the object behind a name, made with its arguments if it is a class."""
        found, values = load("techniques", name), self._arguments.get(name, {})
        self._used.add(name)
        if not isinstance(values, dict):
            raise ConfigError(f"trainer.arguments.{name}: give a table, not {values!r}")
        if isinstance(found, type):
            try:
                return found(**values)
            except TypeError as error:
                raise ConfigError(f"trainer.arguments.{name}: {error}") from error
        if values:
            raise ConfigError(f"trainer.arguments.{name}: {name} takes no arguments")
        return found

    def of(self, name: str, kind: type[T]) -> T:
        """Return the object behind a name, of a kind."""
        found = self.get(name)
        if not isinstance(found, kind):
            raise ConfigError(f"technique {name!r} is no {kind.__name__}; it is {found!r}")
        return found

    def check_all_used(self) -> None:
        """Raise `ConfigError` for arguments of a technique that the run does not name."""
        if spare := sorted(self._arguments.keys() - self._used):
            raise ConfigError(
                f"trainer.arguments.{spare[0]}: no slot of [trainer] names that technique"
            )


def _short(name: str) -> str:
    """Return the last word of a dotted path, or the name."""
    return name.rpartition(":")[2]
