"""How many made-up calls the leak tests make: their own numbers add up to 2,300, times
MEMAGENT_FUZZ_SCALE (4 in `make test-full`; 44 gives 100,000).
"""

from __future__ import annotations

import os


def calls(number: int) -> int:
    """The number at the scale asked for."""
    return number * int(os.environ.get("MEMAGENT_FUZZ_SCALE", "1"))
