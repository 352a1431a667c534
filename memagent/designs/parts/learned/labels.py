"""The classes that the network's heads tell apart, in the order of their rows."""

from __future__ import annotations

from typing import Final

BOUNDS: Final = ("outside", "begins", "inside")
"""Whether a token stands outside of every statement, begins one, or continues one."""
ROLES: Final = ("none", "subject", "value", "old", "time")
"""The part of a token in its statement; `old` is the value that the statement replaces."""
ACTS: Final = (
    "tell", "change", "correct", "end", "done", "move", "reason", "joke", "hearsay", "retract",
)  # fmt: skip
"""What a statement does.

`tell` states something, `change` says that it is so now, `correct` that it never was
so, `end` that it is over or off, `done` that a plan came true, `move` that it has another
day, `reason` why something was so, `retract` takes back what was said and says nothing
instead. A `joke` is not meant and `hearsay` not known.
"""
KINDS: Final = ("state", "preference", "set", "event", "plan", "cause", "bond")
"""The behaviour in time: states and preferences are replaced, sets and events grow."""
SUBJECTS: Final = ("speaker", "named", "pronoun")
"""How the subject is called: not at all (the speaker), by words in the statement, or by a
pronoun for somebody in an earlier one.
"""
