"""Sampler hooks: what changes the sampling of single calls.

A hook that samples otherwise than the policy is trained makes the two differ, so the
trainer weighs rows by the ratio of both probabilities whenever there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memagent.core.exchange import Role, Sampling


@dataclass(frozen=True, kw_only=True)
class SampledCall:
    """A call that is about to be sampled."""

    role: Role
    key: str
    """Names the rollout and the ordinal of the call."""
    version: int
    """Version of the policy."""
    prompt_tokens: int


class SamplerHook:
    """Changes nothing; the base of hooks."""

    def sampling(self, call: SampledCall, planned: Sampling, /) -> Sampling:
        """Return the sampling of a call. It depends on the arguments and the state alone."""
        del call
        return planned

    def state(self) -> Mapping[str, Any]:
        """Return all that is kept between steps, as values that JSON can hold."""
        return {}

    def load(self, state: Any, /) -> None:
        """Take over what `state` returned."""
