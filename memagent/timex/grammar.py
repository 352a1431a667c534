"""The atoms of the time grammar: every phrase that names a time by itself.

An atom is a regular expression, a reader that turns its match into a `Reading`, and a
guard that says what the match is worth in free text, where "may" is mostly a verb and
"2000" mostly a number. `phrases` joins atoms ("from X to Y") and puts operators before
them ("the week before X", "since X"). Patterns are written in lower case and match
lowered text, three times as fast as matching without regard to case; guards see the
text as written. The surprise: patterns are written once with named groups and used
twice, alone for reading and, with the names stripped, inside one compiled alternation
for scanning. Among the patterns that match at a place the longest readable one wins, so
their order means nothing.
"""

from __future__ import annotations

import re
from functools import cache

from memagent.timex import dates, foreign, relative

ATOMS = dates.ATOMS + relative.ATOMS + foreign.ATOMS


@cache
def any_atom() -> re.Pattern[str]:
    """Return the pattern that finds where an atom may start in lowered text.

    It joins all atoms. Those that start with a word share one test for its edge, the
    numeric ones one for a digit. It is compiled at first use, which takes longer than
    all other imports of this package.
    """
    bare = [re.sub(r"[?]P<[a-z0-9]+>", "?:", atom.source) for atom in ATOMS]
    worded = "|".join(source.removeprefix(r"\b") for source in bare if source.startswith(r"\b"))
    numeric = "|".join(source for source in bare if not source.startswith(r"\b"))
    return re.compile(rf"(?<!\w)(?=\w)(?:{worded})|(?=[\d'’])(?:{numeric})")
