"""Faults of training: data that would silently train on something wrong."""

from __future__ import annotations

from memagent.core.errors import MemAgentError


class TrainFault(MemAgentError):
    """A group, a row or a run that breaks a rule of training; nothing was updated with it."""
