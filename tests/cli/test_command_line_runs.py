"""Commands that take long or find trouble: ingest and its resumption, chat, reembed, doctor."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line_kit import (
    CHAT,
    SAMPLE,
    closing,
    error_of,
    got,
    made_store,
    moved_into,
    real,
    run,
    texts,
)

from memagent.build import open_sqlite, open_store
from memagent.checkpoints.tables import FORMS
from memagent.core.errors import ModelTimeout
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Chunk, Fact, Scope, SourceRef
from memagent.designs.base import Proposal, SlotContext
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.embed.static import text_digest
from memagent.protocols import Matrix


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return moved_into(tmp_path, monkeypatch)


@pytest.fixture
def store(folder: Path) -> Path:
    return made_store(folder)


# -- ingest ----------------------------------------------------------------------------


def locomo(name: str, *sessions: Sequence[str]) -> dict[str, Any]:
    conversation: dict[str, Any] = {"speaker_a": "Ana", "speaker_b": "Ben"}
    for number, said in enumerate(sessions, 1):
        turns = [
            {"speaker": "Ana", "dia_id": f"D{number}:{n}", "text": text}
            for n, text in enumerate(said, 1)
        ]
        conversation |= {
            f"session_{number}": turns,
            f"session_{number}_date_time": f"1:56 pm on {number} May, 2023",
        }
    return {"sample_id": name, "conversation": conversation, "qa": []}


@pytest.fixture
def two(folder: Path) -> Path:
    """Write a LoCoMo file of two conversations with the same session and turn ids."""
    file = folder / "two.json"
    held = [
        locomo("conv-1", ["I adopted a cat called Bolt."], ["I moved to Lisbon."]),
        locomo("conv-2", ["I bake bread every Sunday."]),
    ]
    file.write_text(json.dumps(held), encoding="utf-8")
    return file


def test_several_conversations_go_to_users_of_their_own_names(two: Path) -> None:
    path = ["--path", "store.db"]
    assert got(run("ingest", str(two), "--json", *path))["users"] == ["conv-1", "conv-2"]
    assert texts("--user", "conv-2", *path) == ["I bake bread every Sunday."]
    assert "several conversations" in error_of(run("ingest", str(two), "--user", "x", *path))
    chosen = [
        "ingest",
        str(two),
        "--user",
        "x",
        "--conversation",
        "conv-1",
        "--limit-sessions",
        "1",
        "--json",
        *path,
    ]
    assert got(run(*chosen))["sessions"] == 1
    assert "holds conv-1, conv-2" in error_of(
        run("ingest", str(two), "--conversation", "conv-9", *path)
    )


def test_a_clash_of_ids_is_told_and_a_prefix_solves_it(two: Path) -> None:
    path = ["--path", "store.db"]
    got(run("ingest", str(two), "--conversation", "conv-1", "--json", *path))
    clashing = ["ingest", str(two), "--conversation", "conv-2", "--json", *path]
    failed = run(*clashing)
    assert failed.exit_code == 1
    assert (
        "--prefix" in failed.stderr
        and json.loads(failed.stdout)["failures"][0]["session"] == "session_1"
    )
    assert got(run(*clashing, "--prefix", "b/"))["sessions"] == 1
    assert {
        hit["item"]["session_id"] for hit in got(run("search", "bread", "-k", "1", "--json", *path))
    } == {"b/session_1"}


def test_message_files_and_text_files_are_told_apart(folder: Path) -> None:
    said = [
        {
            "role": "user",
            "content": "I adopted a cat called Bolt.",
            "created_at": "2023-05-08T10:00:00Z",
        }
    ]
    (folder / "m.jsonl").write_text("\n".join(map(json.dumps, said)), encoding="utf-8")
    assert got(run("ingest", "m.jsonl", "--path", "store.db", "--json"))["turns"] == 1
    assert "this is no JSON" in error_of(
        run("ingest", str(SAMPLE), "--format", "messages", "--path", "new.db")
    )
    assert not (folder / "new.db").exists()


class _Flaky:
    """Verbatim's extractor behind a provider that times out at one word, while it is told to."""

    down = True

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        if self.down and any("vet" in turn.text for turn in chunk.turns):
            raise ModelTimeout("the provider did not answer")
        return await VERBATIM.extractor(chunk, ctx)


EXTRACTOR = _Flaky()
FLAKY = replace(VERBATIM, name="flaky", extractor=EXTRACTOR)


def test_a_run_that_failed_goes_on_where_it_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "chat.txt").write_text(
        f"{CHAT}\n# 1 June 2023\nAna: It rains today in Lisbon.\n", encoding="utf-8"
    )
    arguments = [
        "ingest",
        "chat.txt",
        "--path",
        "store.db",
        "--design",
        f"{__name__}:FLAKY",
        "--json",
    ]
    failed = run(*arguments)
    summary = json.loads(failed.stdout)
    assert failed.exit_code == 1 and "run the same command again" in failed.stderr
    assert (summary["complete"], summary["turns"], len(summary["failures"])) == (False, 2, 1)
    assert "did not answer" in summary["failures"][0]["why"]
    kept_going = json.loads(run(*arguments, "--keep-going").stdout)
    assert (kept_going["skipped_sessions"], kept_going["turns"], len(kept_going["failures"])) == (
        1,
        1,
        1,
    )
    monkeypatch.setattr(EXTRACTOR, "down", False)
    rest = got(run(*arguments))
    assert (rest["sessions"], rest["skipped_sessions"], rest["turns"], rest["complete"]) == (
        1,
        2,
        2,
        True,
    )
    assert len(texts("--path", "store.db")) == 5
    assert (got(run(*arguments))["sessions"], len(texts("--path", "store.db"))) == (0, 5)


SLOW = """
import asyncio
from dataclasses import replace
from memagent.designs.verbatim import DESIGN
async def extract(chunk, ctx):
    await asyncio.sleep(0.2)
    return await DESIGN.extractor(chunk, ctx)
SLOW = replace(DESIGN, name="slow", extractor=extract)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a child there")
def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "slow_design.py").write_text(SLOW, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    arguments = ["ingest", str(SAMPLE), "--path", "store.db", "--json"]
    command = [
        sys.executable,
        "-m",
        "memagent.cli.app",
        *arguments,
        "--design",
        "slow_design:SLOW",
        "--verbose",
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None and child.stdout is not None
    assert "2024" in child.stderr.readline()  # the first session is done
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    stopped = json.loads(out)
    assert (
        1 <= stopped["sessions"] < 10
        and not stopped["complete"]
        and "run the same command again" in err
    )
    rest = got(run(*arguments))
    assert rest["complete"] and rest["skipped_sessions"] >= stopped["sessions"] - 1
    assert (
        rest["turns"] + stopped["turns"]
        == got(run("ingest", str(SAMPLE), "--path", "other.db", "--json"))["turns"]
    )


# -- chat ------------------------------------------------------------------------------


def test_chat_answers_from_what_was_just_said_and_takes_commands(folder: Path) -> None:
    said = (
        "I adopted a turtle called Bolt.\nWhat is my turtle called?\nHe eats lettuce.\n"
        "/why\n/memories\n/undo\n/nope\n/quit\nnever read\n"
    )
    lines = [
        json.loads(line)
        for line in run("chat", "--path", "store.db", "--json", says=said).stdout.splitlines()
    ]
    kinds = ["answer", "answer", "answer", "why", "memories", "undone", "error"]
    assert [next(iter(line)) for line in lines] == kinds
    assert [item["text"] for item in lines[4]["memories"]] == [
        "I adopted a turtle called Bolt.",
        "He eats lettuce.",
    ]
    assert "Bolt" in lines[1]["answer"]["text"] and lines[1]["answer"]["citations"]
    held = got(run("list", "--path", "store.db", "--json"))
    assert [item["text"] for item in held] == ["I adopted a turtle called Bolt."]
    forgotten = run("chat", "--path", "store.db", says=f"/forget {held[0]['id'][:12]}\n\n")
    told = run("chat", "--path", "other.db", says="I adopted a turtle.\nWhat did I adopt?\n")
    assert "No language model is set" in told.stdout and "[1] user" in told.stdout
    assert "forgotten: I adopted a turtle" in forgotten.stdout and texts("--path", "store.db") == []


# -- embedding anew --------------------------------------------------------------------


class _Letters:
    """An embedder that is not shipped: counts letters."""

    id, dim = "letters-8", 8

    async def embed(self, texts: Sequence[str]) -> Matrix:
        rows = np.array(
            [[text.count(letter) + 1.0 for letter in "aeioubst"] for text in texts],
            dtype=np.float32,
        )
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


LETTERS = _Letters


def test_reembed_changes_the_embedder_of_a_store(store: Path) -> None:
    letters = f"{__name__}:LETTERS"
    assert "memagent reembed" in error_of(run("search", "cat", "--embedder", letters))
    done = got(run("reembed", "--embedder", letters, "--json"))
    assert (done["embedder"], done["dimensions"]) == ("letters-8", 8) and done["texts"] > 4
    assert len(got(run("search", "cat", "--embedder", letters, "--json"))) == 4
    assert "letters-8" in error_of(run("search", "cat"))
    assert got(run("list", "--json")), "looking needs no embedder"


def test_reembed_replaces_kept_vectors_that_are_of_no_use(store: Path) -> None:
    letters = f"{__name__}:LETTERS"
    got(run("reembed", "--embedder", letters, "--json"))
    with closing(open_sqlite(store)) as journal:
        wrong = np.ones(3, dtype=np.float32) / np.sqrt(np.float32(3))
        journal.cache.put_many("letters-8", {text_digest(f"Ana: {texts()[0]}"): wrong})
    got(run("reembed", "--embedder", letters, "--json"))
    assert len(got(run("search", "cat", "--embedder", letters, "--json"))) == 4


# -- doctor ----------------------------------------------------------------------------


def test_doctor_finds_damage_in_the_history(store: Path) -> None:
    assert got(run("doctor", "--json"))["ok"]
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE payloads SET body = replace(body, 'Bolt', 'Colt') WHERE seq = 1")
    connection.close()
    found = run("doctor", "--json")
    report = json.loads(found.stdout)
    assert found.exit_code == 1 and not report["ok"]
    assert "seq 1" in report["problems"][0] and report["users"][0]["chain"] != "intact"


def test_doctor_checks_a_checkpoint_in_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "memory.db"
    store = open_store(path=path, embedder="hashing")
    bank = store.bank(Scope(user_id="ana"))
    assert store.checkpoints is not None
    tea = OpBatch(accepted=(Add(fact=Fact(text="Ana likes tea")),))
    asyncio.run(bank.commit(tea, source=SourceRef()))
    file = store.checkpoints.save(bank)
    sound = file.read_bytes()
    with monkeypatch.context() as wrong:
        wrong.setitem(FORMS, "touched", replace(FORMS["touched"], encode=lambda _: b"[7]"))
        store.checkpoints.save(bank)
    store.close()

    def checkpoint() -> tuple[str, list[str]]:
        report = json.loads(run("doctor", "--path", str(path), "--json").output)
        problems = [problem for problem in report["problems"] if "checkpoint" in problem]
        return report["users"][0]["checkpoint"], problems

    state, (problem,) = checkpoint()
    assert state == "at entry 1, 1 faults"
    assert f"touched differ from the journal's: delete {file}" in problem
    file.write_bytes(sound)
    assert checkpoint() == ("at entry 1, sound", [])
    file.write_bytes(sound[:-1])
    state, problems = checkpoint()
    assert state.startswith("not used: ")
    assert problems == []
    file.unlink()
    assert checkpoint() == ("none", [])


def test_doctor_names_what_shadows_the_packages_and_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "shadow" / "train").mkdir(parents=True)
    (folder / "shadow" / "train" / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder / "shadow"))
    found = real("doctor", "--json")
    assert found.returncode == 1
    report = json.loads(found.stdout)
    assert (
        str(folder / "shadow" / "train") in report["problems"][0]
        and "shadows" in report["problems"][0]
    )
    assert all(
        state == "installed" or f'pip install "memagent[{name}]"' in state
        for name, state in report["extras"].items()
    )
    assert {"llm", "minilm", "qdrant"} <= set(report["extras"])


def test_doctor_is_content_with_a_store_that_is_not_made_yet(folder: Path) -> None:
    assert "not made yet" in got(run("doctor", "--path", "none.db", "--json"))["store"]["state"]
    assert not (folder / "none.db").exists()
