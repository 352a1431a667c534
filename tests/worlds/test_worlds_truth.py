"""The truth of a world against an interpreter of its own, and the readers whose
failures show that the questions need memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest

from environments import play, replay_session, truncate
from environments.datasets.synthetic import LEVELS, Level, Synthetic, synthetic
from environments.worlds.language.days import day_answers
from environments.worlds.language.loading import grammar_of
from environments.worlds.questions.candidates import CATEGORIES
from environments.worlds.readers.players import PLAYERS, Player, PlayerName
from environments.worlds.truth import Act, ProbeTruth, Telling, Truth
from memagent.build import open_agent
from memagent.core.snapshot import EMPTY


class Lives:
    """The tellings of a truth sorted into lives of values, without the package's own fold."""

    def __init__(self, truth: Truth) -> None:
        self.life: dict[str, list[Telling]] = {}
        self.ended: dict[int, Telling] = {}
        self.all: list[list[Telling]] = []
        for telling in truth.tellings:
            if telling.act in (Act.JOKE, Act.RUMOUR, Act.BYSTANDER, Act.REPEAT):
                continue
            if telling.act in (Act.CHANGE, Act.REMOVE):
                self.ended[id(self.life[telling.supersedes])] = telling
            if telling.act in (Act.ADD, Act.CHANGE):
                self.all.append([])
                self.life[telling.id] = self.all[-1]
            else:
                self.life[telling.id] = self.life[telling.supersedes]
            self.life[telling.id].append(telling)

    def of(self, subject: str, relation: str) -> list[list[Telling]]:
        return [
            life for life in self.all if life[0].subject == subject and life[0].relation == relation
        ]

    def over(self, life: list[Telling]) -> bool:
        return id(life) in self.ended


def value(life: list[Telling]) -> str:
    return [one.value for one in life if one.act in (Act.ADD, Act.CHANGE, Act.CORRECT)][-1]


def began(life: list[Telling]) -> object:
    moved = [one.day for one in life if one.act is Act.MOVE]
    return moved[-1] if moved else (life[0].day or life[0].said_on)


def interpret(truth: Truth, how: ProbeTruth, calendar: str) -> set[str]:
    """Every answer that is right, recomputed from the tellings."""
    lives = Lives(truth)
    mine = lives.of(how.subject, how.relation)
    named = [life for life in mine if value(life) == how.value]
    if how.ask == "who":
        return {
            one[0].subject
            for one in lives.all
            if one[0].relation == how.relation and value(one) == how.value
        }
    if how.ask == "count":
        return {str(sum(not lives.over(life) for life in mine))}
    if how.ask == "now":
        return {", ".join(value(life) for life in mine if not lives.over(life))} - {""}
    if how.ask == "then":
        assert how.day is not None
        if mine[0][0].kind == "event":
            return {value(life) for life in mine if life[0].day == how.day}
        ends = [lives.ended.get(id(life)) for life in mine]
        return {
            value(life)
            for life, end in zip(mine, ends, strict=True)
            if began(life) <= how.day and (end is None or how.day < (end.day or end.said_on))  # type: ignore[operator]
        }
    if how.ask == "order":
        both = [life for life in mine if value(life) in (how.value, how.other)]
        return {value(min(both, key=lambda life: str(began(life))))}
    if how.ask == "when":
        return {day_answers(calendar, began(life))[0] for life in named}  # type: ignore[arg-type]
    if how.ask == "outcome":
        acts = {one.act for life in named for one in life}
        return {"yes"} if Act.DONE in acts else {"no"} if Act.CANCEL in acts else set()
    told = {"where": "place", "with": "company", "why": "cause"}[how.ask]
    return {text for life in named for one in life if (text := getattr(one, told))}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_agree_with_an_independent_reading_of_the_tellings(
    level: Level, split: str
) -> None:
    env = synthetic(level, sessions=10)
    for index in range(5):
        episode = env.episode(split, index)  # type: ignore[arg-type]
        truth = env.truth(episode)
        by_id = {how.probe_id: how for how in truth.probes}
        for sessions in (10, 6, 3):
            part = truncate(episode, sessions)
            told = truth.upto(sessions)
            for probe in part.probes:
                found = interpret(told, by_id[probe.id], env.calendar)
                assert found == ({probe.answers[0]} if probe.answers else set()), (probe, found)
        asked, behind = env.after(episode, 4)
        for probe, how in zip(asked.probes, behind.probes, strict=True):
            found = interpret(behind, how, env.calendar)
            assert found == ({probe.answers[0]} if probe.answers else set()), (probe, found)


@pytest.mark.parametrize("level", LEVELS)
def test_evidence_turns_tell_the_answer(level: Level) -> None:
    env = synthetic(level, sessions=8)
    for index in range(6):
        episode = env.episode("train", index)
        truth = env.truth(episode)
        told: dict[str, list[Telling]] = defaultdict(list)
        for telling in truth.tellings:
            told[telling.turn_id].append(telling)
        said = {turn.id: turn for turn in episode.turns}
        for telling in truth.tellings:
            turn = said[telling.turn_id]
            assert turn.speaker == telling.speaker
            assert (
                telling.kind == "cause"
                or telling.value in turn.text
                or telling.value.capitalize() in turn.text
            )
            assert telling.day_text.lower() in turn.text.lower()
        for probe, how in zip(episode.probes, truth.probes, strict=True):
            assert bool(probe.evidence_turn_ids) == bool(probe.answers) == (not probe.unanswerable)
            assert list(probe.evidence_turn_ids) == sorted(
                probe.evidence_turn_ids, key=[turn.id for turn in episode.turns].index
            )
            for turn_id in probe.evidence_turn_ids:
                assert any(
                    telling.true and (telling.relation == how.relation or telling.kind == "bond")
                    for telling in told[turn_id]
                )


def test_nobody_is_asked_about_events_shared_in_company() -> None:
    env = synthetic("standard", sessions=16, facts=6, probes=200)
    shared = 0
    for index in range(5):
        truth = env.truth(env.episode("train", index))
        with_whom = {(one.company, one.relation) for one in truth.tellings if one.company}
        companions = {(one.value, one.relation) for one in truth.tellings if one.company}
        shared += len(with_whom & set(truth.state(-1)))
        for how in truth.probes:
            assert (how.subject, how.relation) not in with_whom
            assert how.ask != "who" or (how.value, how.relation) not in companions
    assert shared, "the case must occur for the test to mean anything"


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_unanswerable_was_never_told_of_that_person(level: Level) -> None:
    env = synthetic(level, sessions=12, probes=200)
    pools = {relation.name: relation.values for relation in grammar_of(level).relations}
    asked = 0
    for index in range(4):
        episode = env.episode("train", index)
        truth = env.truth(episode)
        true = [telling for telling in truth.tellings if telling.true]
        for probe, how in zip(episode.probes, truth.probes, strict=True):
            if not probe.unanswerable:
                continue
            asked += 1
            assert probe.adversarial_answer and not probe.answers
            mine = [one for one in true if how.subject in (one.subject, one.company)]
            assert not any(one.relation == how.relation for one in mine) or how.value
            close = [one for one in mine if pools[one.relation] == pools[how.relation]]
            assert how.value not in {one.value for one in close if one.relation != how.relation}
            assert how.value not in {
                value(life) for life in Lives(truth).of(how.subject, how.relation)
            } - {""}
    assert asked > 20


def test_states_never_change_behind_ones_back() -> None:
    env = synthetic("standard", sessions=8)
    truth = env.truth(env.episode("train", 0))
    sizes = [sum(map(len, session.state.values())) for session in truth.sessions]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    assert truth.states[2] == truth.upto(3).state(-1)
    for state in truth.states:
        for values in state.values():
            if values[0].kind in ("state", "preference", "bond"):
                assert [held.current for held in values] == [False] * (len(values) - 1) + [True]


Table = Mapping[PlayerName, Mapping[str, float]]


async def _table(env: Synthetic, episodes: int) -> Table:
    """Mean reward by player and by category, and of overwritten facts by what was asked."""
    table: dict[PlayerName, dict[str, float]] = {}
    async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as base:
        for name in PLAYERS:
            rewards: dict[str, list[float]] = defaultdict(list)
            for index in range(episodes):
                episode = env.episode("test" if index % 2 else "train", index)
                truth = env.truth(episode)
                player = Player(base=base.at(EMPTY), truth=truth, calendar=env.calendar, name=name)
                score = await env.score(episode, await play(player, episode))
                for probe, how in zip(score.probes, truth.probes, strict=True):
                    assert probe.reward is not None, probe.failure
                    values = truth.state(-1).get((how.subject, how.relation), ())
                    overwritten = len(values) > 1 and values[0].kind in (
                        "state",
                        "preference",
                        "bond",
                    )
                    for key in (
                        probe.category,
                        f"overwritten/{how.ask}" if overwritten else "other",
                    ):
                        rewards[key].append(probe.reward)
                    if name == "oracle" and probe.recall is not None:
                        rewards["recall"].append(probe.recall[30])
                        rewards["lost"].append(probe.lost)
            table[name] = {key: sum(some) / len(some) for key, some in rewards.items()}
    return table


@pytest.mark.parametrize("level", LEVELS)
async def test_the_readers_fail_where_they_should(level: Level) -> None:
    table = await _table(synthetic(level, sessions=6), 6)
    answerable = [name for name in CATEGORIES if name != "unanswerable"]
    assert {table["oracle"][name] for name in CATEGORIES} == {1.0}
    assert table["oracle"]["recall"] == 1.0 and table["oracle"]["lost"] == 0.0
    assert {table["empty"][name] for name in answerable} == {0.0} and table["empty"][
        "unanswerable"
    ] == 1.0
    assert table["append_first"]["overwritten/now"] < 0.25
    assert table["append_all"]["overwritten/now"] < 0.8
    assert table["last_write"]["overwritten/now"] == 1.0 == table["last_write"]["preference"]
    assert table["last_write"]["overwritten/then"] < 0.9
    for name in answerable:
        assert table["random"][name] < 0.4, table["random"]


async def test_a_player_is_replayed_from_a_snapshot_like_any_agent() -> None:
    env = synthetic("tiny", sessions=4)
    episode = env.episode("train", 0)
    async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as base:
        player = Player(
            base=base.at(EMPTY), truth=env.truth(episode), calendar=env.calendar, name="oracle"
        )
        trajectory = await play(player, episode)
        trace = trajectory.traces[2]
        again = await replay_session(player, episode, session=2, anchor=trace.before)
        assert again.after.digest == trace.after.digest
        wrong = await play(
            player.at(EMPTY),
            synthetic("tiny", sessions=4, seed=9).episode("train", 0),
            ask=True,
        )
        assert all(answer.failure for answer in wrong.answers) or wrong.failure
