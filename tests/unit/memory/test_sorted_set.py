"""The persistent sorted set against Python's own set and `sorted`."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from memagent.state import orders as sorted_set
from memagent.state.orders import SortedSet

EDITS = st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=200)


@pytest.mark.parametrize("width", [3, 256])
@given(EDITS, st.sets(st.integers(0, 60)))
def test_edits_give_what_a_set_gives_and_older_sets_stay(
    width: int, edits: list[tuple[bool, int]], start: set[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_set, "_WIDTH", width)
        keys, plain = SortedSet(start), set(start)
        kept = [(keys, sorted(plain))]
        for added, key in edits:
            before = key in plain
            edited = keys.insert(key) if added else keys.remove(key)
            assert (edited is keys) == (before == added)
            keys = edited
            (plain.add if added else plain.discard)(key)
            kept.append((keys, sorted(plain)))
        for older, expected in kept:
            assert list(older) == expected and len(older) == len(expected)
            assert list(reversed(older)) == expected[::-1]
        for key in range(-1, 62, 7):
            assert list(keys.since(key)) == [other for other in sorted(plain) if other >= key]
            assert list(keys.after(key)) == [other for other in sorted(plain) if other > key]
            assert list(keys.before(key)) == [o for o in sorted(plain)[::-1] if o < key]
            assert keys.rank(key) == sum(other < key for other in plain)
            assert (key in keys) == (key in plain)
