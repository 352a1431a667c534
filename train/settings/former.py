"""Former settings of `[trainer]`: each is read as the technique that took its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memagent.core.errors import ConfigError

_FORMER: dict[str, tuple[str, str, str]] = {
    "dynamic_sampling": ("selectors", "dynamic_sampling", ""),
    "keep_members": ("selectors", "d3s", "keep"),
    "echo_weight": ("objectives", "echo", "weight"),
    "gradient_gate": ("objectives", "gradient_gate", "k"),
}
"""By former name the slot, the technique, and the argument that takes the value."""


def current(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `[trainer]` with former names turned into techniques.

    A former setting that is off (0 or false) is dropped. Raises `ConfigError` when the
    technique is named as well.
    """
    fresh = {name: value for name, value in values.items() if name not in _FORMER}
    for name, (slot, technique, argument) in _FORMER.items():
        if not values.get(name):
            continue
        named = fresh.get(slot) or []
        if technique in named:
            raise ConfigError(f"trainer.{name}: {slot} names {technique!r} already; say it once")
        fresh[slot] = [*named, technique]
        if argument:
            table = fresh.get("arguments") or {}
            fresh["arguments"] = {**table, technique: {argument: values[name]}}
    return fresh
