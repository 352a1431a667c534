"""What the tests of the command line share: running it and reading its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from typer.testing import CliRunner, Result

from memagent.cli.app import app
from memagent.journal.sqlite import SqlJournal

SAMPLE = ROOT / "examples" / "data" / "two_friends.txt"
CHAT = """\
# 7 May 2023, 1:56 pm
Ana: I adopted a grey cat called Bolt last Saturday.
Ben: Lovely! I am learning to bake sourdough bread.

# 20 May 2023, 5:10 pm
Ana: Bolt had to go to the vet on Thursday.
Ben: My sourdough came out flat, like a pancake.
"""


def moved_into(folder: Path, monkeypatch: pytest.MonkeyPatch, *, columns: int = 120) -> Path:
    """Enter an empty working folder with a home of its own and none of the caller's settings."""
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("MEMAGENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "home"))
    monkeypatch.setenv("COLUMNS", str(columns))
    return folder


_MADE: dict[str, bytes] = {}


def made_store(folder: Path) -> Path:
    """Make a settings file and a store with the small chat in the working folder.

    They are made once, then copied.
    """
    if not _MADE:
        (folder / "chat.txt").write_text(CHAT, encoding="utf-8")
        assert run("init", "--path", "store.db").exit_code == 0
        assert got(run("ingest", "chat.txt", "--json"))["complete"]
        _MADE.update({file.name: file.read_bytes() for file in folder.iterdir()})
        _MADE["memagent.toml"] = _MADE["memagent.toml"].replace(str(folder).encode(), b"FOLDER")
    for name, content in _MADE.items():
        (folder / name).write_bytes(
            content.replace(b"FOLDER", str(folder).encode()) if name == "memagent.toml" else content
        )
    return folder / "store.db"


def run(*arguments: str, says: str | None = None) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, list(arguments), input=says)


def real(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as the shell starts it."""
    command = [sys.executable, "-W", "error", "-m", "memagent.cli.app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def got(result: Result | subprocess.CompletedProcess[str]) -> Any:
    """Return the one JSON document on standard output of a command that went well."""
    code = result.exit_code if isinstance(result, Result) else result.returncode
    assert code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def error_of(result: Result | subprocess.CompletedProcess[str], *, code: int = 1) -> str:
    """Return the message of a failed command: one line for people, with --json the same as JSON."""
    assert (result.exit_code if isinstance(result, Result) else result.returncode) == code
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    message = result.stderr.strip().removeprefix("memagent: ")
    if result.stdout:
        assert " ".join(json.loads(result.stdout)["error"]["message"].split()) == message
    return message


def texts(*arguments: str) -> list[str]:
    return [item["text"] for item in got(run("list", "--json", *arguments))]


def digest(*arguments: str) -> str:
    return got(run("diff", "--from", "0", "--json", *arguments))["to"]["digest"]


@contextmanager
def closing(journal: SqlJournal) -> Iterator[SqlJournal]:
    """Yield an open store and close it afterwards."""
    try:
        yield journal
    finally:
        journal.close()
