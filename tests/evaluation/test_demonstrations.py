"""Demonstrations are right replies to the prompts that are really sent, and the noise
knob spoils what is played by its share.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from environments.datasets.synthetic import Level, Part, synthetic
from environments.demonstrations.ideal import (
    Demonstration,
    demonstrations,
    lines_of,
)
from environments.demonstrations.locomo import locomo_demonstrations
from environments.demonstrations.oracle import OracleModel
from environments.demonstrations.prompts import shown_turns
from environments.errors import EnvironmentFault
from environments.evaluate import app
from environments.play.rollout import ask_probe, play
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.loading import grammar_of
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.world_reader import WorldReader
from environments.worlds.truth import HeldValue
from memagent.build import open_agent
from memagent.core.exchange import Role
from memagent.core.ops import ParseStatus, Rejected
from memagent.core.records import Session, Turn
from memagent.core.snapshot import EMPTY
from memagent.testing import FunctionModel

LEVELS: tuple[Level, ...] = ("tiny", "standard", "rich")
DESIGNS = ("memory_r2_brief", "memory_r2")


@dataclass(frozen=True)
class Played:
    """What came of some episodes played by the oracle."""

    parses: Counter[ParseStatus]
    rejected: list[Rejected]
    rewards: dict[str, list[float]]
    """Rewards of the world's reader by what was asked."""
    calls: list[tuple[str, bool]]


def played(
    level: Level,
    design: str,
    *,
    noise: float = 0.0,
    guess: float = 0.0,
    episodes: int = 3,
    ask: bool = False,
    seed: int = 0,
) -> Played:
    async def run() -> Played:
        env = synthetic(level, sessions=6, seed=seed)
        found = Played(Counter(), [], defaultdict(list), [])
        async with open_agent(
            path=":memory:",
            design=design,
            embedder="hashing",
            model=FunctionModel(str),
            keep_unreadable=True,  # what a spoiled reply leaves of the memory is played on
        ) as agent:
            for index in range(episodes):
                episode = env.episode("train", index)
                truth, lexicon = env.truth(episode), env.lexicon("train")
                model = OracleModel(
                    truth, episode.sessions, lexicon, noise=noise, guess=guess, seed=seed
                )
                trajectory = await play(agent.at(EMPTY).with_model(model), episode, ask=ask)
                assert trajectory.failure is None
                for chunk in (
                    chunk for trace in trajectory.traces for chunk in trace.report.chunks
                ):
                    found.parses.update(chunk.parse)
                    found.rejected.extend(chunk.rejected)
                found.calls.extend((right, given) for _, right, given in model.calls)
                reader = WorldReader(
                    base=agent.at(trajectory.end), language=NoteLanguage(lexicon)
                ).knowing(truth)
                for probe, wanted in zip(episode.probes, truth.probes, strict=True):
                    answer = await ask_probe(reader, probe, memory=trajectory.end, at=None)
                    (score,) = env.scoring.score_answers(episode, [answer])
                    assert score.failure is None
                    found.rewards[wanted.ask].append(score.reward or 0.0)
        return found

    return asyncio.run(run())


async def made(**changes: object) -> list[Demonstration]:
    async def run() -> list[Demonstration]:
        async with open_agent(
            path=":memory:", design="memory_r2_brief", embedder="hashing", model=FunctionModel(str)
        ) as agent:
            env = synthetic("tiny", sessions=4)
            return await demonstrations(env, agent, indexes=range(3), **changes)  # type: ignore[arg-type]

    return await run()


# -- the oracle ------------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_oracles_replies_are_read_in_full_and_nothing_is_rejected(
    level: Level, design: str
) -> None:
    found = played(level, design, ask=True)
    assert set(found.parses) == {ParseStatus.STRICT}
    assert found.rejected == []
    assert all(given for _, given in found.calls)


@pytest.mark.parametrize("design", DESIGNS)
def test_an_ideal_memory_answers_what_holds_now(design: str) -> None:
    found = played("tiny", design, episodes=8)
    asked = found.rewards["now"] + found.rewards["who"]
    assert len(asked) > 40
    assert sum(asked) / len(asked) >= 0.95


def test_a_memory_spoiled_by_noise_answers_worse() -> None:
    clean, noisy = (
        played("tiny", "memory_r2_brief", noise=noise, episodes=8).rewards["now"]
        for noise in (0.0, 0.8)
    )
    assert sum(noisy) / len(noisy) < sum(clean) / len(clean) - 0.1


def test_without_a_manager_the_same_facts_answer_worse() -> None:
    decided, kept = (
        played("tiny", design, episodes=8) for design in ("memory_r2_brief", "add_only_brief")
    )
    assert any("ops" in json.loads(reply) for reply, _ in decided.calls)
    assert all(set(json.loads(reply)) == {"facts"} for reply, _ in kept.calls), "nobody decides"
    now = [sum(found.rewards["now"]) / len(found.rewards["now"]) for found in (decided, kept)]
    assert now[1] < now[0] - 0.1


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0])
def test_noise_is_the_share_of_replies_that_are_spoiled(noise: float) -> None:
    found = played("tiny", "memory_r2_brief", noise=noise, episodes=12)
    spoiled = sum(not given for _, given in found.calls) / len(found.calls)
    assert len(found.calls) > 120
    assert spoiled == pytest.approx(noise, abs=0.1 if 0 < noise < 1 else 0.0)


def test_full_prompts_are_answered_in_the_full_form() -> None:
    found = [json.loads(right) for right, _ in played("standard", "memory_r2").calls]
    facts = [fact for reply in found for fact in reply.get("facts", ())]
    assert facts and all(
        set(fact) == {"text", "subject", "source", "when", "kind"} for fact in facts
    )
    assert all(fact["subject"] and fact["source"].startswith("D") for fact in facts)
    assert {fact["kind"] for fact in facts} > {"event", "plan"} and any(
        fact["when"] for fact in facts
    )


def _of_states(*, episodes: int = 20, **changes: object) -> list[Demonstration]:
    async def run() -> list[Demonstration]:
        env = synthetic(
            "tiny",
            sessions=8,
            only=("lives_in", "works_as", "likes", "has"),
            friends=0,
            overwrite=0.6,
        )
        async with open_agent(
            path=":memory:", design="memory_r2_brief", embedder="hashing", model=FunctionModel(str)
        ) as agent:
            return await demonstrations(env, agent, indexes=range(episodes), **changes)  # type: ignore[arg-type]

    return asyncio.run(run())


def test_every_fact_is_what_its_own_turn_says_also_where_a_later_turn_corrects_it() -> None:
    corrected = 0
    for one in _of_states(noise=0.0):
        if one.role is not Role.EXTRACTOR:
            continue
        turns = dict(line.split(" ", 1) for line in one.messages[-1]["content"].splitlines()[1:])
        for fact in json.loads(one.reply)["facts"]:
            value = fact["text"].partition(" (")[0].removesuffix(" no more").split()[-1]
            assert (
                value.lower()
                in turns[fact["source"]].lower().replace(",", " ").replace(".", " ").split()
            ), (
                fact,
                turns,
            )
            corrected += turns[fact["source"]].partition(": ")[2].startswith("Sorry")
    assert corrected > 20


def test_guessed_answers_are_read_off_any_memory_shown_and_cite_it() -> None:
    right, guessed, some = (
        {
            (one.episode_id, one.messages[-1]["content"]): json.loads(one.reply)
            for one in _of_states(
                episodes=6,
                noise=0.0,
                guess_answers=share,
                roles=frozenset((Role.ANSWERER,)),
            )
        }
        for share in (0.0, 1.0, 0.4)
    )
    assert right.keys() == guessed.keys() == some.keys()
    as_right = 0
    for (episode, prompt), answer in guessed.items():
        lines = [line for line in prompt.splitlines() if line.strip()]
        if answer["abstain"]:
            assert not any(line.split(" ", 1)[0].isdecimal() for line in lines)
            continue
        (cited,) = answer["citations"]
        (line,) = [line for line in lines if line.split(" ", 1)[0] == cited]
        assert answer["answer"].lower() in line.lower()
        as_right += answer == right[episode, prompt]
    assert as_right / len(guessed) < 0.5
    same = sum(some[key] == right[key] for key in right) / len(right)
    assert 0.6 <= same <= 0.95


def test_guesses_are_allowed_ops_and_as_many_as_asked_for() -> None:
    right, guessed, some = (
        [
            (one.episode_id, one.messages, op)
            for one in _of_states(episodes=8, noise=0.0, guess=guess)
            if one.role is Role.MANAGER
            for op in json.loads(one.reply)["ops"]
        ]
        for guess in (0.0, 1.0, 0.4)
    )
    kinds = Counter(op["op"] for _, _, op in guessed)
    assert set(kinds) == {"ADD", "UPDATE", "DELETE", "NOOP"}
    assert 0.4 < kinds["ADD"] / len(guessed) < 0.65
    for _, messages, op in guessed:
        shown = messages[-1]["content"].partition("memories")[2]
        assert "id" not in op or f"\n{op['id']} " in shown
    assert {one.reason.value for one in played("tiny", "memory_r2_brief", guess=1.0).rejected} <= {
        "duplicate_text"
    }
    # Nothing is noted at first: in the first reply of an episode only ADD and NOOP are
    # possible, and the right ones are known.
    first = [_first_replies(one) for one in (right, some)]
    pairs = [
        pair
        for episode in first[0]
        for pair in zip(first[0][episode], first[1][episode], strict=True)
    ]
    changed = sum(one != other for one, other in pairs)
    assert 0 < changed < 0.4 * len(pairs)


def _first_replies(
    ops: list[tuple[str, tuple[dict[str, str], ...], dict[str, object]]],
) -> dict[str, list[object]]:
    """By episode the ops of its first reply."""
    prompts: dict[str, object] = {}
    found: dict[str, list[object]] = defaultdict(list)
    for episode, messages, op in ops:
        if prompts.setdefault(episode, messages) == messages:
            found[episode].append(op)
    return found


def test_only_the_turns_to_take_notes_of_count_as_shown() -> None:
    turns = tuple(
        Turn(id=f"D1:{n}", speaker="Ana", text=text)
        for n, text in enumerate(("Hi.", "Hi.", "I row."))
    )
    session = Session(id="s", turns=turns)
    full = "<earlier>\n[D1:0] Ana: Hi.\n</earlier>\n<dialogue>\n[D1:1] Ana: Hi.\n[D1:2] Ana: I row.\n</dialogue>"
    assert shown_turns(full, session) == [("D1:1", "D1:1"), ("D1:2", "D1:2")]
    assert shown_turns("5 May 2024\n0 Ana: Hi.\n1 Ana: I row.", session) == [
        ("0", "D1:1"),
        ("1", "D1:2"),
    ]
    assert shown_turns("0 Ana: I sail.", session) == []


# -- notes -----------------------------------------------------------------------------


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_every_note_of_every_relation_is_read_as_it_was_written(
    level: Level, held_out: bool
) -> None:
    lexicon = Lexicon(grammar_of(level), held_out=held_out)
    language = NoteLanguage(lexicon)
    on = date(2024, 5, 9)
    subjects = [person.name for person in lexicon.people[:3]]
    details: list[dict[str, object]] = [
        {},
        {"dated": True},
        {"dated": True, "place": "the old harbour", "company": subjects[0]},
        {"cause": "the clock stood still"},
        {"dated": True, "outcome": False, "company": subjects[1]},
        {"outcome": True},
    ]
    read = 0
    for name, relation in lexicon.relations.items():
        values = lexicon.pools.get(relation.values, ()) or tuple(
            person.name for person in lexicon.people
        )
        for place, value in enumerate(values):
            value = (
                value.format_map({"he": "he", "him": "him", "his": "his"})
                if "{" in value
                else value
            )
            for detail in details:
                held = HeldValue(value=value, kind=relation.kind, start=on, **detail)  # type: ignore[arg-type]
                subject = subjects[place % 3]
                text = language.of_held(subject, name, held)
                note = language.read(text, said_on=on)
                assert note is not None, text
                assert (note.subject, note.relation, note.kind, note.value) == (
                    subject,
                    name,
                    relation.kind,
                    value,
                ), text
                assert (note.place, note.company, note.cause) == (
                    held.place,
                    held.company,
                    held.cause,
                ), text
                assert (note.outcome, note.dated, note.start) == (
                    held.outcome,
                    held.dated,
                    on.isoformat(),
                ), text
                read += 1
    assert read > 6 * len(lexicon.relations)


def test_a_text_that_is_no_note_says_nothing() -> None:
    language = NoteLanguage(Lexicon(grammar_of("tiny"), held_out=False))
    for text in (
        "",
        "hello",
        "Nobody lives in Bonn",
        "Tom Hill",
        "Tom Hill dreams of Bonn",
        "(on 5 May)",
    ):
        assert language.read(text) is None, text


# -- demonstrations --------------------------------------------------------------------


async def test_demonstrations_are_reproducible_and_right_whatever_was_played() -> None:
    assert await made(noise=0.3) == await made(noise=0.3)
    assert await made(noise=0.3, seed=1) != await made(noise=0.3)
    for one in await made(noise=1.0):
        assert one.role in (Role.EXTRACTOR, Role.MANAGER)
        reply = json.loads(one.reply)
        assert set(reply) == {"facts" if one.role is Role.EXTRACTOR else "ops"}
        chat = one.chat()["messages"]
        assert [message["role"] for message in chat] == ["system", "user", "assistant"]
        assert chat[-1]["content"] == one.reply


async def test_a_spoiled_reply_ends_no_episode() -> None:
    clean, noisy = [
        Counter(one.episode_id for one in await made(noise=noise) if one.role is Role.EXTRACTOR)
        for noise in (0.0, 1.0)
    ]
    assert noisy == clean, "every chunk is demonstrated, also after replies that were cut off"


async def test_answers_are_demonstrated_when_asked_for() -> None:
    found = await made(noise=0.0, roles=frozenset((Role.ANSWERER,)))
    assert found and {one.role for one in found} == {Role.ANSWERER}
    assert any(not json.loads(one.reply)["abstain"] for one in found)
    assert len(list(lines_of(found))) == 3 * len(found)


async def test_only_questions_of_the_kinds_asked_for_are_demonstrated() -> None:
    env, roles = synthetic("tiny", sessions=4), frozenset((Role.ANSWERER,))
    kinds = [
        probe.ask for index in range(3) for probe in env.truth(env.episode("train", index)).probes
    ]
    assert len(await made(noise=0.0, roles=roles)) == len(kinds)
    for asks in (("now",), ("now", "who")):
        assert 0 < sum(kind in asks for kind in kinds) < len(kinds)
        assert len(await made(noise=0.0, roles=roles, asks=asks)) == sum(
            kind in asks for kind in kinds
        )


async def test_in_brief_an_entry_begins_with_its_source_and_an_update_writes_its_fact() -> None:
    replies = [json.loads(one.reply) for one in await made(noise=0.0)]
    facts = [fact for reply in replies for fact in reply.get("facts", ())]
    ops = [op for reply in replies for op in reply.get("ops", ())]
    assert facts and {tuple(fact) for fact in facts} == {("source", "text")}
    assert ops and all(tuple(op)[:2] == ("fact", "op") for op in ops)
    updates = [op for op in ops if op["op"] == "UPDATE"]
    assert updates and any("text" not in op for op in updates)


def test_the_command_writes_chats_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "new" / "warm.jsonl"
    done = CliRunner().invoke(
        app,
        [
            "demonstrations",
            str(path),
            "--level",
            "tiny",
            "--episodes",
            "2",
            "--noise",
            "0.1",
            "--design",
            "memory_r2_brief",
        ],
    )
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert f"{len(lines)} demonstrations" in done.stdout and {line["role"] for line in lines} == {
        "extractor",
        "manager",
    }
    assert all(line["messages"][-1]["role"] == "assistant" for line in lines)
    wrong = CliRunner().invoke(
        app, ["demonstrations", str(path), "--episodes", "1", "--design", "verbatim"]
    )
    assert "asks no model" in str(wrong.exception)


@pytest.mark.parametrize("part", ["validation", "test"])
async def test_other_splits_are_demonstrated_in_their_own_names(part: Part) -> None:
    env = synthetic("tiny", sessions=4)
    names = {person.name for person in env.lexicon(part).people}
    found = [json.loads(one.reply) for one in await made(split=part, noise=0.0)]
    facts = [fact["text"] for reply in found for fact in reply.get("facts", ())]
    assert facts and all(any(text.startswith(name) for name in names) for text in facts)


# -- LoCoMo ----------------------------------------------------------------------------


def write_observed(path: Path) -> Path:
    """A made-up conversation with observed facts, one of which names no turn."""
    turns = [
        {"speaker": "Ana", "dia_id": f"D1:{n}", "text": f"My boat number {n} leaks."}
        for n in range(1, 13)
    ]
    observed = {
        "Ana": [
            ["Ana owns boat 2", "D1:2"],
            ["Ana owns boats 3 and 11", ["D1:3", "D1:11"]],
            ["Ana has no boat", "D9:9"],
        ]
    }
    data = {
        "sample_id": "conv-x",
        "conversation": {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"},
        "qa": [],
        "observation": {"session_1_observation": observed},
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.parametrize("design", DESIGNS)
async def test_observed_facts_become_replies_under_the_names_shown(
    design: str, tmp_path: Path
) -> None:
    found = await locomo_demonstrations(write_observed(tmp_path / "x.json"), design=design)
    assert (found.facts, found.left_out) == (2, 1)
    replies = [json.loads(one.reply)["facts"] for one in found.demonstrations]
    assert [len(facts) for facts in replies] == [1, 1]
    sources = [facts[0]["source"] for facts in replies]
    assert sources == (["D1:2", "D1:11"] if design == "memory_r2" else ["1", "4"])
    assert all(one.role is Role.EXTRACTOR for one in found.demonstrations)
    for one, source, boat in zip(found.demonstrations, sources, (2, 11), strict=True):
        shown = [
            line for line in one.messages[-1]["content"].splitlines() if f"number {boat} " in line
        ]
        assert shown and shown[-1].startswith((f"[{source}] ", f"{source} "))


async def test_designs_that_ask_no_model_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="asks no model for facts"):
        await locomo_demonstrations(write_observed(tmp_path / "x.json"), design="verbatim")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EnvironmentFault, match=r"no \.json file"):
        await locomo_demonstrations(tmp_path / "empty")


async def test_the_users_own_locomo_gives_demonstrations(locomo_dir: Path) -> None:
    path = sorted(locomo_dir.glob("conv-*.json"))[0]
    found = await locomo_demonstrations(path)
    assert found.facts > 100 and found.left_out < found.facts // 20
    assert len(found.demonstrations) > 40
