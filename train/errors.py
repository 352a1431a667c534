"""Faults of training: what cannot be trained on, or would train on something wrong
without anybody noticing.
"""

from __future__ import annotations

from memagent.core.errors import MemAgentError


class TrainFault(MemAgentError):
    """A group, a row or a run that breaks a rule of training; nothing was updated with it."""
