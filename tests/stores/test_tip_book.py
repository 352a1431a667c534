"""The file of the noted ends by itself: what is read back, what is cut off, when it is short again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from memagent.core.errors import ConfigError, StoreReadOnly
from memagent.core.records import Scope
from memagent.journal.proof.audit import Noted, TipBook, read_key
from memagent.journal.rows import ScopeKey, Tip, scope_digest, scope_key

HEAD, RECORD = 23, 104
ANN, BOB = (scope_key(Scope(user_id=name)) for name in ("ann", "bob"))


def tip(head: int) -> Tip:
    return Tip(scope_id=1, head=head, chain=bytes([head % 256]) * 32, recorded_us=0)


def noted(key: ScopeKey, head: int) -> Noted:
    return Noted(scope_digest(key), head, tip(head).chain)


def begun(path: Path, key: bytes | None = None, *, shared: bool | None = None) -> TipBook:
    book = TipBook(path, key) if shared is None else TipBook(path, key, shared=shared)
    book.open(())
    return book


@pytest.mark.parametrize("key", [None, b"secret"])
def test_what_is_noted_is_read(tmp_path: Path, key: bytes | None) -> None:
    book = begun(tmp_path / "tips", key)
    assert book.last() is None and book.read() == ({}, 0) and book.sound() == ([], [])
    book.note({ANN: tip(2), BOB: tip(1)})
    book.note({})
    book.note({ANN: tip(3)})
    assert book.last() == noted(ANN, 3)
    assert book.read() == ({one.digest: one for one in (noted(ANN, 3), noted(BOB, 1))}, 0)
    assert (tmp_path / "tips").stat().st_size == HEAD + 3 * RECORD
    assert (tmp_path / "tips").stat().st_mode & 0o777 == 0o600
    book.close()
    book.close()
    book.note({ANN: tip(4)})
    assert book.last() == noted(ANN, 3), "a closed book notes nothing"


def test_the_highest_end_counts_and_the_later_of_two(tmp_path: Path) -> None:
    book = begun(tmp_path / "tips")
    book.note({ANN: tip(5)})
    book.note({ANN: tip(4)})
    book.note({BOB: tip(7)})
    book.note({BOB: Tip(1, 7, b"n" * 32, 0)})
    latest, bad = book.read()
    assert bad == 0
    assert latest[scope_digest(ANN)].seq == 5
    assert latest[scope_digest(BOB)].chain == b"n" * 32


def test_the_last_sound_record_is_looked_for_among_sixty_four(tmp_path: Path) -> None:
    book = begun(tmp_path / "tips")
    for head in range(1, 101):
        book.note({ANN: tip(head)})
    data = bytearray((tmp_path / "tips").read_bytes())
    for bad in range(1, 65):
        data[-bad * RECORD] ^= 1
        (tmp_path / "tips").write_bytes(data)
        expected = noted(ANN, 100 - bad) if bad < 64 else None
        assert book.last() == expected, bad
    assert book.read()[1] == 64
    (found,), (wrong,) = book.sound()
    assert found.seq == 36 and wrong.startswith("64 records of")


def test_a_single_record_is_the_last(tmp_path: Path) -> None:
    book = begun(tmp_path / "tips")
    book.note({ANN: tip(1)})
    assert book.last() == noted(ANN, 1)
    (tmp_path / "tips").write_bytes((tmp_path / "tips").read_bytes()[:-1])
    assert book.last() is None
    assert book.read() == ({}, 1)


def test_a_record_cut_off_is_taken_away_and_whole_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "tips"
    begun(path).note({ANN: tip(1)})
    for cut in (1, RECORD - 1):
        with path.open("ab") as file:
            file.write(b"x" * cut)
        again = begun(path)
        assert path.stat().st_size == HEAD + RECORD
        again.close()
    again = begun(path)
    again.note({ANN: tip(2)})
    assert again.read() == ({scope_digest(ANN): noted(ANN, 2)}, 0)


def test_a_book_begun_with_another_choice_of_key_is_refused(tmp_path: Path) -> None:
    begun(tmp_path / "plain")
    with pytest.raises(ConfigError, match=r"begun without a key: run .*--seal"):
        begun(tmp_path / "plain", b"secret")
    begun(tmp_path / "keyed", b"secret")
    with pytest.raises(ConfigError, match=r"begun with a key: name the file"):
        begun(tmp_path / "keyed")
    assert TipBook(tmp_path / "keyed", b"secret").keyed and not TipBook(tmp_path / "keyed").keyed
    assert begun(tmp_path / "other", b"other").sound() == ([], [])


def test_another_key_s_records_are_bad(tmp_path: Path) -> None:
    begun(tmp_path / "tips", b"secret").note({ANN: tip(1)})
    assert TipBook(tmp_path / "tips", b"guess").read() == ({}, 1)
    assert TipBook(tmp_path / "tips").read() == ({}, 2), "the head is another one too"


@pytest.mark.parametrize("shared", [None, False, True])
def test_a_long_file_is_made_short_unless_it_is_shared(
    tmp_path: Path, shared: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent.journal.proof.audit._LONG_BYTES", HEAD + 3 * RECORD)
    book = begun(tmp_path / "tips", shared=shared)
    sizes: list[int] = []
    for head in range(1, 9):
        book.note({ANN: tip(head)})
        sizes.append(((tmp_path / "tips").stat().st_size - HEAD) // RECORD)
    assert sizes == (list(range(1, 9)) if shared else [1, 2, 3, 1, 2, 3, 1, 2])
    assert book.read() == ({scope_digest(ANN): noted(ANN, 8)}, 0)


def test_a_file_of_many_users_is_not_made_short_at_every_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made short when it is twice what it was when that was done last."""
    monkeypatch.setattr("memagent.journal.proof.audit._LONG_BYTES", HEAD)
    book = begun(tmp_path / "tips")
    everybody: Mapping[ScopeKey, Tip] = {
        scope_key(Scope(user_id=f"user {number}")): tip(1) for number in range(10)
    }
    book.note(everybody)
    sizes: list[int] = []
    for head in range(2, 16):
        book.note({ANN: tip(head)})
        sizes.append(((tmp_path / "tips").stat().st_size - HEAD) // RECORD)
    assert sizes == [11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 11, 12, 13, 14]


def test_workers_note_in_the_file_that_another_wrote_anew(tmp_path: Path) -> None:
    one, other = (begun(tmp_path / "tips", shared=True) for _ in range(2))
    one.note({ANN: tip(1)})
    other.rewrite([noted(ANN, 1)])
    one.note({ANN: tip(2)})
    assert other.read() == ({scope_digest(ANN): noted(ANN, 2)}, 0)
    (tmp_path / "tips").unlink()
    one.note({ANN: tip(3)})
    assert not (tmp_path / "tips").exists(), "a file that is gone is not begun in silence"


def test_a_place_that_takes_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreReadOnly, match=r"cannot write .*: No such file"):
        TipBook(tmp_path / "nowhere" / "tips").rewrite(())
    book = begun(tmp_path / "tips")
    (tmp_path / "tips").unlink()
    os.mkdir(tmp_path / "tips.new")
    with pytest.raises(StoreReadOnly, match=r"Is a directory"):
        book.rewrite(())


def test_a_key_is_sixteen_bytes_at_least(tmp_path: Path) -> None:
    place = tmp_path / "key"
    with pytest.raises(ConfigError, match=r"cannot be read: No such file"):
        read_key(place)
    place.write_bytes(b" 0123456789abcde\n")
    with pytest.raises(ConfigError, match=r"has 15 bytes; give 16 at least"):
        read_key(place)
    place.write_bytes(b" 0123456789abcdef\n")
    assert read_key(place) == b"0123456789abcdef"
