"""The interpreter of a process that serves: its garbage collector and its threads.

A collection of the oldest generation walks all open memories and stops every request for
some tenths of a second, so none is made while it serves. Reference counts free what is
dropped; the collector is only for cycles, and those of a request are young. So the oldest
generation is collected when no request and no job is at work, ten minutes after the start
and then every ten at most.

A thread that computes gives the interpreter's lock to the event loop after five
milliseconds unless told otherwise, and a request asks for the lock several times: after
each read, write and flush. One millisecond makes requests beside such a thread wait a
third as long, and costs the thread nothing that can be measured.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from memagent.core.long_work import NEVER, frozen_heap

_YOUNG: Final = (5_000, 5, NEVER)
"""Objects and collections between collections of each generation: a few milliseconds each."""
_BETWEEN_S: Final = 600.0
_SWITCH_S: Final = 0.001
# When all garbage was collected last, by the monotonic clock.
_last: float = 0.0


@contextmanager
def serving_interpreter() -> Generator[None]:
    """Collect only young garbage meanwhile, and let threads take short turns.

    What was there before is collected no more at all.
    """
    global _last
    before, switch_s = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    _last = time.monotonic()
    gc.set_threshold(*_YOUNG)
    sys.setswitchinterval(min(switch_s, _SWITCH_S))
    try:
        with frozen_heap():
            yield
    finally:
        sys.setswitchinterval(switch_s)
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
