"""Bad input does what `docs/bad-input.md` says: the message word for word, and nothing
lost or half-written.

The tables are read from the page. `<...>` in a message stands for what differs from
case to case. The two usual outcomes in the third column are checked here, any other one
by the case itself.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
from bad_input_cases import CASES, Place
from crash_child import CrashServer, Say
from places import ROOT

from memagent.agent import Agent
from memagent.build import open_store
from memagent.core.errors import MemAgentError
from memagent.designs.verbatim import DESIGN
from memagent.embed.static import HashEmbedder
from memagent.journal.sqlite import SqlJournal

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
PAGE = ROOT / "docs" / "bad-input.md"
UNTOUCHED = "Nothing is written."
REFUSED = "The memory stays as it is; the journal keeps the refused op."
Heads = dict[str, tuple[int, str]]
"""Last sequence and digest of the memory of each user."""


class Row(NamedTuple):
    """A row of the table."""

    input: str
    answer: str
    data: str

    @property
    def pattern(self) -> str | None:
        """What the caller gets, as a pattern; None when that is no error."""
        match = re.fullmatch(r"(`+) ?(.+?) ?\1", self.answer)
        if match is None:
            return None
        return "".join(
            ".+" if part.startswith("<") else re.escape(part)
            for part in re.split(r"(<[a-z ]+>)", match[2])
        )


def rows() -> list[Row]:
    """Every row of every table of the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines
        if line.startswith("| ")
    ]
    return [Row(*row) for row in cells if row[0] not in ("Input", "---")]


ROWS = rows()


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("test_bad_input", "bank_workloads") as running:
        yield running


def look(path: Path) -> Heads:
    """The memories of a store as its journal tells them, with every hash of it checked."""

    async def replay() -> Heads:
        store = open_store(path=path, embedder="hashing", read_only=True)
        assert isinstance(store.journal, SqlJournal)
        found: Heads = {}
        for scope in await store.journal.scopes():
            assert store.journal.verify(scope) == []
            state = await store.bank(scope).sync()
            found[scope.user_id] = (state.seq, state.digest())
        store.close()
        return found

    return asyncio.run(replay())


@pytest.mark.parametrize("row", ROWS, ids=[row.input for row in ROWS])
def test_bad_input_does_what_the_page_says(
    row: Row, tmp_path: Path, server: CrashServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Heads] = []
    place = Place(tmp_path, server, monkeypatch, lambda: seen.append(look(tmp_path / "memory.db")))
    with place.open_now:
        try:
            told = CASES[row.input](place)
        except AssertionError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
    if row.pattern is None:
        assert told is None
        assert row.answer.startswith("no error")
    else:
        assert isinstance(told, str)
        assert re.fullmatch(row.pattern, told, re.DOTALL), told
    monkeypatch.undo()
    before, after = seen[-1], look(place.path)
    if row.data.startswith(UNTOUCHED):
        assert after == before
    elif row.data == REFUSED:
        assert after == {"ana": (before["ana"][0] + 1, before["ana"][1])}
    for file, content in place.given.items():
        assert file.read_bytes() == content


def test_the_page_has_every_case_once() -> None:
    assert [row.input for row in ROWS] == list(CASES)
    assert len(CASES) >= 30
    assert all(row.data.endswith(".") for row in ROWS)
    assert all(row.pattern is None or row.pattern[0].isupper() for row in ROWS)


# -- what runs in another process ------------------------------------------------------


def _agent(path: str, *, read_only: bool = False) -> Agent:
    """An agent that needs no file but the store, not even the table of installed plug-ins."""
    return Agent(
        user_id="ana", path=path, embedder=HashEmbedder(), design=DESIGN, read_only=read_only
    )


def open_what_is_locked(say: Say, *, path: str) -> None:
    """Open a store for writing, and say why not."""
    try:
        _agent(path)
    except MemAgentError as error:
        say(f"{type(error).__name__}: {error}")


def open_what_may_only_be_read(say: Say, *, path: str) -> None:
    """As a user without rights: open for writing, then for reading."""
    import_module("memagent.checkpoints.store")  # that user may not read the interpreter's files
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    open_what_is_locked(say, path=path)
    with _agent(path, read_only=True) as agent:
        say(f"reads {agent.memory.get_all()[0].text}")


def write_to_a_full_disk(say: Say, *, path: str) -> None:
    """Write where not a byte more may be written, then where it may."""
    import resource  # not on every system

    with _agent(path) as agent:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        for write in (
            lambda: agent.memory.add("refused"),
            lambda: agent.memory.export(f"{path}.export"),
        ):
            try:
                write()
            except MemAgentError as error:
                say(f"{type(error).__name__}: {error}")
        say(f"kept {agent.search('key', k=1)[0].text}")
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        agent.memory.add("Bo has a dog")
        say(f"then {agent.search('dog', k=1)[0].text}")
