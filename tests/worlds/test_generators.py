"""Each generator asks for what it says it asks for: readers with the memory it wants
succeed, readers without it fail.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, cast

import pytest

from environments import (
    Environment,
    EnvironmentFault,
    Episode,
    Score,
    check_environment,
    play,
    select_probes,
    truncate,
)
from environments.datasets.synthetic import Level, Part
from environments.rewards.scoring import Scoring
from environments.tasks.fact_consolidation import FactConsolidation
from environments.tasks.generated import Generated
from environments.tasks.label_learning import LabelLearning
from environments.tasks.needle import Needle
from environments.tasks.order_recall import OrderRecall
from environments.tasks.readers import (
    Guess,
    Guesser,
    by_chance,
    by_majority,
    hearing_only,
    without_days,
)
from environments.tasks.rewrite import Rewrite
from environments.tasks.sort import Sort
from environments.tasks.task_stream import TaskStream, success_slope
from environments.tasks.temporal_qa import TemporalQA
from environments.tasks.time_questions import SUBTYPES
from environments.tasks.whole_story import WholeStory
from environments.worlds.readers.players import Player, PlayerName
from environments.worlds.truth import Truth
from memagent.build import open_agent
from memagent.core.snapshot import EMPTY
from memagent.plugins import available, load

GENERATORS = (
    FactConsolidation, LabelLearning, Needle, OrderRecall, Rewrite, Sort, TaskStream, TemporalQA,
    WholeStory,
)  # fmt: skip
EASY = (
    "fact_consolidation",
    "label_learning",
    "needle",
    "order_recall",
    "rewrite",
    "sort",
    "temporal_qa",
    "whole_story",
)


def opened(name: str) -> Callable[..., Environment]:
    return cast("Callable[..., Environment]", load("environments", name))


def needs_no_file(name: str) -> bool:
    wanted = inspect.signature(opened(name)).parameters.values()
    return all(one.default is not one.empty or one.kind is one.VAR_KEYWORD for one in wanted)


GENERATED = [name for name in available("environments") if needs_no_file(name)]


def scores(
    env: Generated,
    name: PlayerName,
    *,
    split: Part = "test",
    episodes: int = 4,
    guess: Guess | None = None,
    hearing: Callable[[Truth], Truth] = lambda truth: truth,
    asked: Callable[[Episode], Episode] = lambda episode: episode,
) -> list[tuple[Episode, Score]]:
    """How a player does on the first episodes of a split."""

    async def run() -> list[tuple[Episode, Score]]:
        found: list[tuple[Episode, Score]] = []
        async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as agent:
            for index in range(episodes):
                episode = asked(env.episode(split, index))
                truth = hearing(env.truth(episode))
                player = Player(base=agent.at(EMPTY), truth=truth, calendar=env.calendar, name=name)
                trajectory = await play(
                    player if guess is None else Guesser(player=player, guess=guess), episode
                )
                assert trajectory.failure is None
                found.append((episode, Scoring().score(episode, trajectory)))
        return found

    return asyncio.run(run())


def mean(found: Sequence[tuple[Episode, Score]]) -> float:
    return fmean(cast(float, probe.reward) for _, score in found for probe in score.probes)


def test_all_generators_are_found_by_name() -> None:
    assert {one.name for one in GENERATORS} <= set(GENERATED)
    assert "synthetic" in GENERATED and "locomo" not in GENERATED
    for one in GENERATORS:
        assert opened(one.name) is one


@pytest.mark.parametrize("name", GENERATED)
def test_every_environment_without_a_file_keeps_the_promises_of_one(name: str) -> None:
    few = {
        "synthetic": {"sessions": 3},
        "needle": {"sessions": 4},
        "task_stream": {"tasks": 5},
        "whole_story": {"sessions": 6},
    }
    env = opened(name)(level="tiny", episodes=1, **few.get(name, {}))
    check_environment(env, split="test", episodes=1, sessions=8)


@pytest.mark.parametrize("make", GENERATORS)
@pytest.mark.parametrize("level", ["tiny", "standard", "rich"])
def test_episodes_have_questions_with_exact_answers_and_evidence(
    make: type[Generated], level: Level
) -> None:
    env = make(level=level, episodes=3)
    for split in ("train", "test"):
        for episode in env.episodes(split):
            told = {turn.id: turn.text for turn in episode.turns}
            truth = env.truth(episode)
            assert len(episode.probes) >= 2 and len(truth.probes) == len(episode.probes)
            for probe, how in zip(episode.probes, truth.probes, strict=True):
                assert probe.answers and not probe.unanswerable and how.probe_id == probe.id
                assert probe.evidence_turn_ids or probe.category == "new"
                if (
                    how.ask == "now"
                    and how.relation in env.lexicon(split).relations
                    and probe.evidence_turn_ids
                ):
                    texts = " ".join(told[turn] for turn in probe.evidence_turn_ids).lower()
                    assert all(value.lower() in texts for value in probe.answers[0].split(", "))
            assert env.truth(truncate(episode, 1)).session_ids == truth.session_ids[:1]


@pytest.mark.parametrize("make", GENERATORS)
def test_an_episode_depends_on_seed_split_and_index_alone(make: type[Generated]) -> None:
    env, again, other = make(episodes=3), make(episodes=3), make(episodes=3, seed=1)
    first = list(env.episodes("all"))
    assert first == list(again.episodes()) and len({one.id for one in first}) == 9
    assert env.episode("validation", 2) == first[5]
    assert [one.turns for one in other.episodes("test")] != [
        one.turns for one in env.episodes("test")
    ]
    with pytest.raises(EnvironmentFault, match="is no episode of"):
        other.truth(first[0])


def test_episodes_are_the_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib; from memagent.plugins import load\n"
        f"made = [load('environments', name)(level='tiny').episode('test', 1) for name in {sorted(EASY)}]\n"
        "print(hashlib.sha256(''.join(one.model_dump_json() for one in made).encode()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        for seed in (1, 2)
    ]
    assert len(runs[0].stdout) == 65 and runs[0].stdout == runs[1].stdout


@pytest.mark.parametrize("make", GENERATORS)
def test_the_test_split_has_names_of_its_own(make: type[Generated]) -> None:
    env = make(episodes=4)

    def names(split: Part) -> set[str]:
        return {turn.speaker for episode in env.episodes(split) for turn in episode.turns}

    def forms(split: Part) -> set[str]:
        told = [env.truth(episode) for episode in env.episodes(split)]
        return {one.form for truth in told for one in (*truth.tellings, *truth.probes) if one.form}

    assert names("train") and not names("train") & names("test")
    assert forms("train") and not forms("train") & forms("test")


@pytest.mark.parametrize("name", EASY)
@pytest.mark.parametrize("level", ["tiny", "standard"])
def test_whoever_keeps_the_state_is_always_right_and_whoever_keeps_nothing_never(
    name: str, level: Level
) -> None:
    env = cast(Generated, opened(name)(level=level))
    assert mean(scores(env, "oracle")) == 1.0
    assert mean(scores(env, "empty", episodes=2)) == 0.0


def test_needle_is_out_of_reach_for_a_reader_of_the_last_session() -> None:
    env = Needle(sessions=8)
    assert mean(scores(env, "append_first")) == 1.0
    assert mean(scores(env, "append_first", hearing=lambda truth: hearing_only(truth, 7))) == 0.0
    told = env.truth(env.episode("test", 0)).tellings
    assert sum(one.act == "bystander" for one in told) >= 3 * sum(one.true for one in told)


def test_more_needles_than_the_language_has_room_for_are_refused() -> None:
    with pytest.raises(EnvironmentFault, match="needles=50 is more than"):
        Needle(level="tiny", needles=50).episode("train", 0)
    with pytest.raises(EnvironmentFault, match="sessions must be at least 2"):
        Needle(sessions=1)


@pytest.mark.parametrize("classes", [2, 4])
def test_label_learning_cannot_be_answered_by_the_commonest_label(classes: int) -> None:
    env = LabelLearning(classes=classes)
    assert mean(scores(env, "append_all", guess=by_majority)) == 1.0 / classes
    for episode in (env.episode("test", index) for index in range(4)):
        asked = {turn for probe in episode.probes for turn in probe.evidence_turn_ids}
        assert asked == {turn.id for turn in episode.turns}
        assert not any(
            probe.question.split('"', 1)[1][:-2] in turn.text
            for probe in episode.probes
            for turn in episode.turns
        )


def test_no_single_session_suffices_for_the_whole_story() -> None:
    env = WholeStory(sessions=6)
    for session in range(6):
        found = scores(
            env,
            "append_all",
            episodes=3,
            hearing=lambda truth, session=session: hearing_only(truth, session),
        )
        assert {probe.exact for _, score in found for probe in score.probes} == {0.0}
    for episode in (env.episode("test", index) for index in range(3)):
        home = {turn.id: session.id for session in episode.sessions for turn in session.turns}
        assert all(
            len({home[turn] for turn in probe.evidence_turn_ids}) >= 3 for probe in episode.probes
        )


@pytest.mark.parametrize(
    "env", [FactConsolidation(), FactConsolidation(level="tiny"), Rewrite(), Rewrite(level="tiny")]
)
def test_conflicts_are_won_by_the_last_write_and_lost_by_the_first(env: Generated) -> None:
    assert mean(scores(env, "last_write")) == 1.0
    assert (
        max(
            probe.exact or 0.0 for _, score in scores(env, "append_first") for probe in score.probes
        )
        == 0.0
    )


def test_facts_are_numbered_and_contradicted_bonds_lead_to_multi_hop_questions() -> None:
    env = FactConsolidation(sessions=3)
    for episode in (env.episode("test", index) for index in range(3)):
        assert [turn.text.split(".")[0] for turn in episode.turns] == [
            str(one + 1) for one in range(len(episode.turns))
        ]
        truth = env.truth(episode)
        hops = {probe.id: len(probe.evidence_turn_ids) for probe in episode.probes}
        kinds = {probe.category for probe in episode.probes}
        assert kinds == {"one_hop", "multi_hop"}
        for probe, how in zip(episode.probes, truth.probes, strict=True):
            assert hops[probe.id] == (2 if probe.category == "multi_hop" else 1)
            assert (how.chain in probe.question and how.subject not in probe.question) == bool(
                how.chain
            )
            [bond] = (
                [one for one in truth.tellings if one.turn_id == probe.evidence_turn_ids[0]]
                if how.chain
                else [None]
            )
            assert bond is None or (
                bond.value == how.subject and truth.state(-1)[bond.key][-1].value == how.subject
            )


def test_rewriting_wears_out_a_memory_that_only_adds() -> None:
    def at(overwrites: int, name: PlayerName) -> float:
        return mean(scores(Rewrite(level="tiny", overwrites=overwrites, gap=1), name, episodes=3))

    adding = [at(overwrites, "append_all") for overwrites in (0, 1, 3, 7)]
    assert adding == sorted(adding, reverse=True) and adding[0] == 1.0 and adding[-1] < 0.3
    assert [at(overwrites, "last_write") for overwrites in (0, 1, 3, 7)] == [1.0] * 4


def test_the_gap_between_rewrites_is_talk() -> None:
    env = Rewrite(keys=2, overwrites=2, gap=3)
    told = env.truth(env.episode("train", 0)).sessions
    assert [sum(one.true for one in session.tellings) for session in told] == [
        2,
        0,
        0,
        2,
        0,
        0,
        2,
        0,
        0,
    ]


def test_success_rises_along_a_stream_of_tasks_only_for_those_who_remember() -> None:
    env = TaskStream()

    def slope(name: PlayerName) -> float:
        return fmean(
            success_slope(episode, score) for episode, score in scores(env, name, episodes=8)
        )

    assert slope("empty") == 0.0
    assert slope("oracle") > 0.3
    right: dict[str, list[float]] = {"new": [], "reuse": []}
    for _, score in scores(env, "oracle", episodes=8):
        for probe in score.probes:
            right[probe.category].append(cast(float, probe.reward))
    assert set(right["new"]) == {0.0} and set(right["reuse"]) == {1.0}


def test_order_cannot_be_guessed_nor_told_from_the_order_of_telling() -> None:
    env = OrderRecall(events=8)
    assert 0.4 < mean(scores(env, "append_all", episodes=12, guess=by_chance)) < 0.6
    assert mean(scores(env, "append_first", hearing=without_days)) == 0.5
    assert mean(scores(env, "append_first")) == 1.0


def test_questions_of_time_are_lost_without_days() -> None:
    env = TemporalQA()
    assert mean(scores(env, "oracle")) == 1.0
    assert mean(scores(env, "oracle", hearing=without_days)) < 0.7
    past = scores(
        TemporalQA(probes=44),
        "last_write",
        asked=lambda one: select_probes(one, lambda probe: probe.category in STATES),
    )
    assert mean(past) < 0.9


STATES = ("explicit_reasoning", "co_temporality")


@pytest.mark.parametrize("level", ["tiny", "standard"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_questions_of_time_are_of_all_eleven_kinds(level: Level, split: Part) -> None:
    """Each episode has every kind, and no kind has one answer for all its questions."""
    env = TemporalQA(level=level, probes=33)
    answers: dict[str, set[str]] = {}
    for episode in (env.episode(split, index) for index in range(4)):
        assert {probe.category for probe in episode.probes} == set(SUBTYPES)
        for probe in episode.probes:
            answers.setdefault(probe.category, set()).add(probe.answers[0])
    assert len(SUBTYPES) == 11
    assert all(len(given) > 1 for given in answers.values())
    assert answers["duration_compare"] == {"the first two", "the last two"}


def test_which_excerpt_came_first_is_lost_without_the_order_of_the_talk() -> None:
    env = Sort()
    assert mean(scores(env, "append_first")) == 1.0
    found = [
        (probe, turns, episode)
        for episode in (env.episode("train", index) for index in range(6))
        for turns in [{turn.id: turn.text for turn in episode.turns}]
        for probe in episode.probes
    ]
    first = 0
    for probe, turns, episode in found:
        one, other = (turns[turn_id] for turn_id in probe.evidence_turn_ids)
        order = [turn.text for turn in episode.turns]
        assert probe.answers == (one,) and order.index(one) < order.index(other)
        assert one in probe.question and other in probe.question
        first += probe.question.index(one) < probe.question.index(other)
    assert len(found) > 30 and abs(first / len(found) - 0.5) < 0.1


def test_no_contradicted_bond_leads_to_the_right_answer() -> None:
    """None of 200 multi-hop questions is answered by way of a stale bond."""
    env, asked = FactConsolidation(level="tiny", conflicts=12), 0
    for index in range(60):
        episode = env.episode("train", index)
        truth = env.truth(episode)
        said: dict[tuple[str, str], list[str]] = {}
        for telling in truth.tellings:
            said.setdefault(telling.key, []).append(telling.value)
        by_turn = {telling.turn_id: telling for telling in truth.tellings}
        for probe, how in zip(episode.probes, truth.probes, strict=True):
            if probe.category == "multi_hop":
                bond = by_turn[probe.evidence_turn_ids[0]]
                stale = [who for who in said[bond.key] if who != how.subject]
                asked += 1
                assert not any(
                    probe.answers[0] in said.get((who, how.relation), []) for who in stale
                )
    assert asked >= 200


@pytest.mark.parametrize("level", ["tiny", "standard"])
def test_conflicts_are_as_many_as_wanted(level: Level) -> None:
    """People with compound names join when there are more facts than people can have."""
    env = FactConsolidation(level=level, conflicts=700, sessions=10)
    episode = env.episode("train", 0)
    one_hop = [probe for probe in episode.probes if probe.category == "one_hop"]
    assert len(one_hop) == 700
    assert len({probe.question for probe in episode.probes}) == len(episode.probes)


def test_there_are_two_hundred_labels() -> None:
    episode = LabelLearning(classes=200, shots=2).episode("test", 0)
    assert len({probe.answers for probe in episode.probes}) == 200
    assert len(episode.probes) == 400 and len(episode.turns) == 400
    assert mean(scores(LabelLearning(classes=24, shots=1), "oracle", episodes=1)) == 1.0
    with pytest.raises(EnvironmentFault, match="room for"):
        LabelLearning(level="tiny", classes=200).episode("train", 0)


def test_knobs_out_of_range_are_refused() -> None:
    wrong: list[tuple[type[Generated], dict[str, Any]]] = [
        (Rewrite, {"gap": 0}), (OrderRecall, {"events": 2}), (TaskStream, {"tasks": 2}), (LabelLearning, {"classes": 1}),
        (WholeStory, {"sessions": 2}), (FactConsolidation, {"conflicts": 1}), (TemporalQA, {"probes": 0}),
        (Needle, {"episodes": 0}), (Needle, {"level": "huge"}),
    ]  # fmt: skip
    for make, knobs in wrong:
        with pytest.raises(EnvironmentFault):
            make(**knobs)
    with pytest.raises(EnvironmentFault, match="no split 'dev'"):
        Needle().episode(cast(Part, "dev"), 0)
