"""Named places at which a test can stop or kill a process.

Tests prove with them that a crash anywhere loses nothing acknowledged. The stores and
the bank call `reach(name)` as they pass each place: an audit event of Python, which is
next to nothing in a process that hears none. Nothing here hears one: the tests' kits
know the names and add a hook of their own, so no environment variable and no setting
arms a point.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

EVENT: Final = "memagent.reach"
reach: Final = partial(sys.audit, EVENT)
"""Reports that the place with a name has been reached."""
