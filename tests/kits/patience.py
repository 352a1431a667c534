"""Time limits that grow with the slowness of the machine.

A limit says how long something may take on a quiet machine. A busy or slow one gets as
many times more as a fixed piece of work takes there.
"""

from __future__ import annotations

import time

QUIET_S = 0.02
"""What the piece of work takes on a quiet core of 2024."""


def slowness() -> float:
    """Measure how many times longer a fixed piece of work takes here and now; at least 1."""
    began = time.perf_counter()
    total = 0
    for number in range(400_000):
        total += number & 7
    assert total > 0
    return max(1.0, (time.perf_counter() - began) / QUIET_S)


def patience_s(seconds: float) -> float:
    """Return a limit for this machine: `seconds` of a quiet one, and a margin of four."""
    return seconds * 4 * slowness()
