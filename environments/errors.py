"""Faults of an environment itself: missing or unusable data, an impossible score."""

from __future__ import annotations

from memagent.core.errors import MemAgentError


class EnvironmentFault(MemAgentError):
    """A fault of an environment; the message says what to do.

    A dataset is missing, a probe cannot be scored, or results do not belong together.
    """
