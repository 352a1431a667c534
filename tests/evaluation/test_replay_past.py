"""A past session of a stored memory can be heard once more, otherwise, and the store never changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from places import ROOT
from typer.testing import CliRunner, Result

from environments.auditing.forcing import Forced, recorded_facts
from environments.auditing.past_session import past_session
from environments.auditing.replay import ReplayReport, replay
from environments.errors import EnvironmentFault
from environments.evaluate import app
from memagent.build import open_agent
from memagent.core.exchange import ModelRequest, Role
from memagent.core.ops import Add, Delete, Noop, RejectReason, Update
from memagent.core.records import Fact, Session, Turn
from memagent.core.snapshot import EMPTY
from memagent.readers import read_conversation
from memagent.testing import FunctionModel

SAMPLE = ROOT / "examples" / "data" / "two_friends.txt"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "memory.db"

    async def fill() -> None:
        async with open_agent(path=path, design="verbatim") as agent:
            for session in read_conversation(SAMPLE).sessions[:5]:
                await agent.remember(session)

    asyncio.run(fill())
    return path


async def replayed(
    path: Path,
    session: str,
    *,
    forced: Forced | None = None,
    design: str = "verbatim",
    ask: tuple[str, ...] = (),
) -> ReplayReport:
    async def run() -> ReplayReport:
        async with open_agent(path=path, design=design, read_only=True) as agent:
            return await replay(await past_session(agent, session), forced=forced, questions=ask)

    return await run()


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("session", ["1", "2", "3", "4", "5", "2024-03-09"])
async def test_a_session_heard_again_as_it_was_leaves_the_same_memory(
    session: str, store: Path
) -> None:
    report = await replayed(store, session)
    assert report.difference.empty and report.failure is None
    assert report.ops_replayed == report.ops_as_it_was
    assert report.ops_replayed["ADD"] > 0


async def test_the_memory_before_a_session_is_the_one_after_the_session_before(store: Path) -> None:
    async def digests() -> tuple[list[str], list[str], list[int]]:
        async with open_agent(path=store, design="verbatim", read_only=True) as agent:
            past = [await past_session(agent, str(number)) for number in range(1, 6)]
            assert past[-1].after.digest == agent.snapshot().digest
            return (
                [one.before.digest for one in past],
                [one.after.digest for one in past],
                [one.number for one in past],
            )

    before, after, numbers = await digests()
    assert before == [EMPTY.digest, *after[:-1]] and numbers == [1, 2, 3, 4, 5]


async def test_forced_to_noop_the_session_leaves_nothing_but_its_turns(store: Path) -> None:
    asked = "What is Ravi's cat called?"
    report = await replayed(store, "2", forced="NOOP", ask=(asked,))
    added = {one.id for one in report.difference.removed}
    assert len(added) == report.ops_as_it_was["ADD"] and not report.difference.added
    assert report.ops_replayed == {"ADD": 0, "UPDATE": 0, "DELETE": 0, "NOOP": 12, "REJECTED": 0}
    (compared,) = report.answers
    assert compared.question == asked and "Pixel" in compared.as_it_was.text
    assert "Pixel" not in compared.replayed.text
    assert compared.as_it_was.evidence[0].turn_id == "2024-02-03:3"


async def test_forced_to_add_what_was_an_update_becomes_an_item_of_its_own(store: Path) -> None:
    report = await replayed(store, "3", forced="ADD")
    assert report.ops_as_it_was["UPDATE"] == 1 and report.ops_replayed["UPDATE"] == 0
    assert report.ops_replayed["ADD"] > report.ops_as_it_was["ADD"]
    ((corrected, wrong),) = report.difference.changed
    assert corrected.id == wrong.id and corrected.version == 2 and wrong.version == 1


async def test_the_facts_of_a_forced_rerun_are_those_the_journal_recorded(store: Path) -> None:
    async def facts() -> tuple[int, int]:
        async with open_agent(path=store, design="verbatim", read_only=True) as agent:
            past = await past_session(agent, "3")
            return len(recorded_facts(past)), len(past.session.turns)

    assert await facts() == (12, 12)


async def test_ops_given_one_by_one_may_change_any_item_and_are_validated(store: Path) -> None:
    first = (await replayed(store, "1", forced="NOOP")).difference.removed[0]
    turn = "2024-02-03:1"
    given: Forced = (
        (
            Delete(id=first.id),
            Add(fact=Fact(text="Ravi keeps bees on the roof", source_turn_ids=(turn,))),
            Update(id="mem_none", text="nothing", source_turn_ids=(turn,)),
            Noop(),
        ),
    )
    report = await replayed(store, "2", forced=given, ask=("What does Ravi keep on the roof?",))
    assert [one.reason for one in report.rejected] == [RejectReason.UNKNOWN_ID]
    assert [one.text for one in report.difference.added] == ["Ravi keeps bees on the roof"]
    assert first.id in {one.id for one in report.difference.removed}
    assert (
        "bees" in report.answers[0].replayed.text and "bees" not in report.answers[0].as_it_was.text
    )
    with pytest.raises(EnvironmentFault, match="cuts the session into 2"):
        await replayed(store, "2", forced=(*given, (), ()))


async def test_another_design_hears_the_session_with_its_own_model(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    sessions = [
        Session(
            id=f"s{n}",
            turns=(
                Turn(id=f"s{n}:1", speaker="Ana", text=f"My boat number {n} is called Tern{n}."),
            ),
        )
        for n in (1, 2)
    ]

    def answered(request: ModelRequest) -> str:
        if request.role is Role.EXTRACTOR:
            return json.dumps({"facts": [{"text": "Ana owns two boats", "source": "0"}]})
        return json.dumps({"ops": [{"op": "ADD", "fact": 0}]})

    async def heard() -> ReplayReport:
        async with open_agent(path=path, design="verbatim", embedder="hashing") as agent:
            for session in sessions:
                await agent.remember(session)
        model = FunctionModel(answered)
        async with open_agent(
            path=path, design="memory_r2_brief", model=model, embedder="hashing", read_only=True
        ) as other:
            report = await replay(await past_session(other, "s2"))
            assert {request.role for request in model.requests} == {Role.EXTRACTOR, Role.MANAGER}
            return report

    report = await heard()
    assert report.design == "memory_r2_brief" and not report.forced
    assert [one.text for one in report.difference.added] == ["Ana owns two boats"]
    assert [one.text for one in report.difference.removed] == ["My boat number 2 is called Tern2."]


def test_what_happened_between_a_session_and_the_next_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def story() -> list[ReplayReport]:
        one = Session(
            id="s1", turns=(Turn(id="s1:1", speaker="Ana", text="I bought a canoe in Rome."),)
        )
        two = Session(
            id="s2", turns=(Turn(id="s2:1", speaker="Ana", text="The canoe leaks badly."),)
        )
        async with open_agent(path=path, design="verbatim", embedder="hashing") as agent:
            await agent.remember(one)
            mine = await agent.memory.add("Ana is seventy", speaker="Ana")
            await agent.remember(two)
            await agent.memory.delete(mine.id)
            await agent.memory.undo()
        async with open_agent(
            path=path, design="verbatim", embedder="hashing", read_only=True
        ) as agent:
            past = await past_session(agent, "s2")
            assert mine.id in past.before.items and len(past.after.items) == 3
            return [await replay(await past_session(agent, name)) for name in ("s1", "s2")]

    assert all(report.difference.empty for report in asyncio.run(story()))


async def test_sessions_that_cannot_be_replayed_are_named(store: Path) -> None:
    for name in ("0", "6", "nowhere"):
        with pytest.raises(EnvironmentFault, match="this memory has heard 5: 2024-01-14"):
            await replayed(store, name)


# -- the command -----------------------------------------------------------------------


def test_the_command_shows_both_sides_and_writes_nothing(store: Path, tmp_path: Path) -> None:
    before = {
        file.name: file.read_bytes() for file in store.parent.iterdir() if file.suffix == ".db"
    }
    done = run(
        "replay",
        "--db",
        store,
        "--session",
        2,
        "--as",
        "noop",
        "--ask",
        "What is Ravi's cat called?",
    )
    assert done.exit_code == 0, done.output
    for words in ("forced ops", "as it was", "replayed", "Pixel", "fewer", "2024-02-03:3"):
        assert words in done.stdout, words
    ops = tmp_path / "ops.json"
    ops.write_text(
        '[[{"op": "ADD", "fact": {"text": "Ravi keeps bees", "source_turn_ids": ["2024-02-03:2"]}}]]'
    )
    found = run("replay", "--db", store, "--session", "2024-02-03", "--as", ops, "--json")
    report = ReplayReport.model_validate_json(found.stdout)
    assert [one.text for one in report.difference.added] == ["Ravi keeps bees"]
    assert {
        file.name: file.read_bytes() for file in store.parent.iterdir() if file.suffix == ".db"
    } == before


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        ("{}", "write one list for each chunk"),
        ('[[{"op": "BURN"}]]', "holds no ops: 0.0"),
    ],
)
def test_a_bad_file_of_ops_is_told(
    content: str | None, told: str, store: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ops.json"
    if content is not None:
        path.write_text(content)
    assert told in str(run("replay", "--db", store, "--session", 1, "--as", path).exception)


def test_a_rerun_that_a_model_failed_on_exits_with_1(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMAGENT_DESIGN", "memory_r2")
    assert "needs a language model" in str(run("replay", "--db", store, "--session", 1).exception)
    assert (
        run("replay", "--db", store, "--session", 1, "--ask", " ", "--design", "verbatim").exit_code
        == 2
    )
