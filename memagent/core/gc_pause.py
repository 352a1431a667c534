"""The garbage collector during rollouts and replays: seldom, not over what was there before.

A thousand live memories are a million objects, none of which is garbage, and the
collector walks them again and again: with Python's own thresholds that is about an
eighth of a rollout's or a replay's time. Reference counts free nearly all of what is
dropped meanwhile; the collector is only for cycles.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

NEVER: Final = 1_000_000_000
"""A threshold of the oldest generation that is never reached."""


@contextmanager
def rare_collections(*, new_objects: int = 100_000) -> Generator[None]:
    """Collect garbage only after so many new objects.

    Objects that live on entry are left out. On leaving, the old settings return, with
    one collection of the rest.

    Blocks may nest; the inner ones change nothing, nor does a block in a process that
    serves, which collects young garbage only.
    """
    before = gc.get_threshold()
    if before[0] >= new_objects or before[2] >= NEVER:
        yield
        return
    gc.freeze()
    gc.set_threshold(new_objects, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        gc.collect(1)
