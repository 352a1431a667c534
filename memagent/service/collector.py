"""The garbage collector of a process that serves: never over everything while it serves.

A collection of the oldest generation walks all open memories and stops every request for
some tenths of a second. Reference counts free what is dropped; the collector is only for
cycles, and those of a request are young. So the oldest generation is collected when no
request and no job is at work, ten minutes after the start and then every ten at most.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from memagent.core.long_work import NEVER, frozen_heap

_YOUNG: Final = (5_000, 5, NEVER)
"""Objects and collections between collections of each generation: a few milliseconds each."""
_BETWEEN_S: Final = 600.0
# When all garbage was collected last, by the monotonic clock.
_last: float = 0.0


@contextmanager
def young_collections() -> Generator[None]:
    """Collect only young garbage meanwhile; what was there before, no more at all."""
    global _last
    before = gc.get_threshold()
    gc.collect()
    _last = time.monotonic()
    gc.set_threshold(*_YOUNG)
    try:
        with frozen_heap():
            yield
    finally:
        gc.set_threshold(*before)


def collect_when_idle(*, at_work: int) -> bool:
    """Collect all garbage if nothing is at work, and if it is time; return whether it was."""
    global _last
    now = time.monotonic()
    if gc.get_threshold()[2] != NEVER or at_work or now - _last < _BETWEEN_S:
        return False
    _last = now
    gc.collect()
    return True
