"""The configuration of an episode."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, TypedDict

from pydantic import ConfigDict

from environments.errors import EnvironmentFault


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """The length, density and noise of an episode.

    Raises `EnvironmentFault` for values out of range.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", use_attribute_docstrings=True
    )
    sessions: int = 8
    """Sessions of an episode."""
    turns: int = 16
    """Turns a session has at least: small talk fills it up to here."""
    facts: float = 3.0
    """Mean number of true things told in a session, revisions included."""
    overwrite: float = 0.3
    """Share of them that revise what was told before: changes, corrections, losses,
    outcomes.
    """
    interference: float = 0.2
    """Adds, the later the session the more, repetitions in other words and further
    revisions of old facts; 0 adds none.
    """
    distractors: float = 0.3
    """Tellings that change nothing, per fact: look-alike facts about bystanders, jokes,
    rumours that are denied.
    """
    speakers: int = 2
    """People who take part in the conversation."""
    friends: int = 2
    """People a speaker tells of at most, in bonds that stay."""
    relations: int = 24
    """Relations used in one episode besides bonds, drawn from the grammar; all when it has
    no more.
    """
    only: tuple[str, ...] = ()
    """Names of the relations to use, bonds too; all of the world's when empty."""
    chat: float = 0.6
    """Chance that a listener asks before a fact, and that one replies after it; 0 also
    leaves out greetings.
    """
    probes: int | None = None
    """Questions an episode has at most; three a session when None."""

    def __post_init__(self) -> None:
        lowest = {"sessions": 1, "turns": 1, "speakers": 2, "relations": 1}
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if value is None or isinstance(value, tuple):
                continue
            least = lowest.get(name, 0)
            if value < least:
                raise EnvironmentFault(f"{name} must be at least {least}, not {value}")
            if name in ("overwrite", "interference", "chat") and value > 1:
                raise EnvironmentFault(f"{name} is a share from 0 to 1, not {value}")

    @property
    def max_questions(self) -> int:
        """Questions an episode has at most."""
        return 3 * self.sessions if self.probes is None else self.probes


class WorldOptions(TypedDict, total=False):
    """Options that override a world's own configuration; None leaves the world's value."""

    turns: int | None
    facts: float | None
    overwrite: float | None
    interference: float | None
    distractors: float | None
    speakers: int | None
    friends: int | None
    only: tuple[str, ...] | None
