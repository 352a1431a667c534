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


@contextmanager
def rare_collections(*, new_objects: int = 100_000) -> Generator[None]:
    """Collect garbage only after so many new objects.

    Objects that live on entry are left out. On leaving, the old settings return, with
    one collection of the rest.

    Blocks may nest; the inner ones change nothing.
    """
    if gc.get_threshold()[0] >= new_objects:
        yield
        return
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(new_objects, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        gc.collect(1)
