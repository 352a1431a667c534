"""What can go wrong with an environment itself: data that is missing or unusable, a
score that cannot be made.
"""

from __future__ import annotations

from memagent.core.errors import MemAgentError


class EnvironmentFault(MemAgentError):
    """A dataset is missing, a probe cannot be scored, or results do not belong
    together; the message says what to do.
    """
