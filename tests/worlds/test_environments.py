"""Episodes are plain data that survive JSON, the two players record what they do,
failures stay where they happen, and the checker sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmark_files import TYPES, write_locomo, write_longmemeval
from pydantic import ValidationError

from environments import (
    Environment,
    EnvironmentFault,
    Episode,
    LoCoMo,
    LongMemEval,
    Probe,
    check_environment,
    play,
    replay_session,
    select_probes,
    select_sessions,
    truncate,
)
from environments.base import Split
from environments.views import LinkedTurns
from memagent.build import open_agent
from memagent.core.answers import Question
from memagent.core.errors import ModelUnavailable
from memagent.core.records import Session, Turn
from memagent.core.snapshot import EMPTY
from memagent.plugins import available, load
from memagent.testing import FunctionModel


@pytest.fixture
def episode(tmp_path: Path) -> Episode:
    return next(iter(LoCoMo(write_locomo(tmp_path)).episodes()))


def test_locomo_keeps_category_numbers_and_asks_at_the_end(episode: Episode) -> None:
    assert [probe.category for probe in episode.probes] == ["1", "2", "3", "4", "5"]
    assert all(probe.after_session is None for probe in episode.probes)
    last = episode.probes[-1]
    assert last.unanswerable and last.answers == () and last.adversarial_answer == "something"
    assert episode.probes[0].evidence_turn_ids == ("D1:1", "D1:3")


def test_locomo_splits_by_conversation(tmp_path: Path) -> None:
    folder = write_locomo(tmp_path)

    def ids(split: Split, **options: str) -> list[str]:
        return [one.id for one in LoCoMo(folder, **options).episodes(split)]  # type: ignore[arg-type]

    assert ids("all") == ids("test") == ["conv-26", "conv-30"]
    assert ids("train", split_by="memory_r1") == ["conv-26"]
    assert ids("validation", split_by="memory_r1") == ["conv-30"]
    with pytest.raises(EnvironmentFault, match="memory_r2, memory_r1"):
        LoCoMo(folder, split_by="nonsense")  # type: ignore[arg-type]


def test_longmemeval_has_six_types_and_abstention(tmp_path: Path) -> None:
    episodes = list(LongMemEval(write_longmemeval(tmp_path)).episodes())
    assert [one.probes[0].category for one in episodes] == [*TYPES, "multi-session_abs"]
    assert episodes[0].probes[0].answers == ("101",)
    assert episodes[0].probes[0].evidence_turn_ids == ("s1a:1",)
    absent = episodes[-1].probes[0]
    assert absent.unanswerable and absent.answers == () and absent.evidence_turn_ids == ()
    with pytest.raises(EnvironmentFault, match="no train split"):
        list(LongMemEval(tmp_path / "longmemeval_tiny.json").episodes("train"))


def test_missing_or_wrong_data_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"is not there.*snap-research/locomo"):
        list(LoCoMo(tmp_path / "absent.json").episodes())
    with pytest.raises(EnvironmentFault, match=r"holds no \.json file.*snap-research/locomo"):
        list(LoCoMo(tmp_path).episodes())
    (tmp_path / "other.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(EnvironmentFault, match=r"no 'conversation'.*snap-research/locomo"):
        list(LoCoMo(tmp_path).episodes())
    with pytest.raises(EnvironmentFault, match=r"xiaowu0162/LongMemEval"):
        list(LongMemEval(tmp_path / "other.json").episodes())


def test_a_conversation_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = write_locomo(tmp_path)
    (folder / "copy.json").write_bytes((folder / "conv-26.json").read_bytes())
    with pytest.raises(EnvironmentFault, match="conv-26"):
        list(LoCoMo(folder).episodes())


def test_the_built_in_environments_are_plug_ins() -> None:
    assert {"locomo", "longmemeval"} <= set(available("environments"))
    assert load("environments", "locomo") is LoCoMo


@pytest.mark.parametrize("name", ["locomo", "longmemeval"])
def test_the_built_in_environments_pass_the_checker(name: str, tmp_path: Path) -> None:
    check_environment(
        LoCoMo(write_locomo(tmp_path))
        if name == "locomo"
        else LongMemEval(write_longmemeval(tmp_path))
    )


@pytest.mark.parametrize("before", [3, 50])
def test_an_episode_a_turn_has_the_turns_before_it_and_one_question(before: int) -> None:
    """Memory-R1's episodes: nothing later is heard, and the question needs the last turn."""
    options = {"level": "tiny", "sessions": 6, "turns": 12, "episodes": 3}
    env = LinkedTurns("synthetic", before=before, options=options)
    check_environment(env, episodes=3)
    whole = {one.id: one for one in env.env.episodes("train")}
    linked = list(env.episodes("train"))
    assert len(linked) > 20
    for episode in linked:
        *_, now = episode.sessions
        (probe,), (turn,) = episode.probes, now.turns
        assert turn.id in probe.evidence_turn_ids and probe.after_session == now.id
        every = whole[episode.id.partition("/")[0]].turns
        at = every.index(turn)
        assert episode.turns == every[max(0, at - before) : at + 1]
    assert max(len(episode.turns) for episode in linked) == before + 1


def test_a_question_of_a_far_turn_or_without_an_answer_has_no_episode(tmp_path: Path) -> None:
    """The first question rests on turns 1 and 3; the last of each talk has no answer."""
    options = {"path": str(write_locomo(tmp_path))}

    def asked(before: int) -> set[str]:
        env = LinkedTurns("locomo", before=before, options=options)
        return {one.probes[0].id for one in env.episodes()}

    near = {"conv-26:q2", "conv-26:q3", "conv-26:q4", "conv-30:q1", "conv-30:q2"}
    assert asked(1) == near
    assert asked(2) == asked(50) == near | {"conv-26:q1"}


class Shuffled(Environment):
    """Gives its episodes in another order every time."""

    name = "shuffled"

    def __init__(self, episodes: list[Episode]) -> None:
        super().__init__()
        self._episodes = episodes

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        self._episodes.reverse()
        yield from self._episodes


def test_the_checker_sees_an_environment_that_is_not_deterministic(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="equal ones in the same order"):
        check_environment(Shuffled(list(LoCoMo(write_locomo(tmp_path)).episodes())))


def test_an_episode_refuses_references_that_lead_nowhere() -> None:
    session = Session(id="s", turns=(Turn(id="t", speaker="Ana", text="Hi"),))
    with pytest.raises(ValidationError, match="evidence of probe 'p'"):
        Episode(
            id="e",
            sessions=(session,),
            probes=(Probe(id="p", question="?", evidence_turn_ids=("u",)),),
        )
    with pytest.raises(ValidationError, match="asked after session 'x'"):
        Episode(
            id="e", sessions=(session,), probes=(Probe(id="p", question="?", after_session="x"),)
        )
    with pytest.raises(ValidationError, match="session ids occur twice: s"):
        Episode(id="e", sessions=(session, session))


def test_views_leave_the_episode_alone_and_drop_what_they_cannot_answer(episode: Episode) -> None:
    before = episode.model_dump_json()
    assert [probe.category for probe in truncate(episode, 1).probes] == ["1", "2", "5"]
    assert [one.id for one in select_sessions(episode, {"session_3", "session_2"}).sessions] == [
        "session_2",
        "session_3",
    ]
    assert [probe.category for probe in select_sessions(episode, ["session_3"]).probes] == ["4"]
    assert select_probes(episode, lambda probe: probe.unanswerable).probes == episode.probes[-1:]
    assert truncate(episode, 9) is episode
    assert episode.model_dump_json() == before
    with pytest.raises(EnvironmentFault, match="no session session_9"):
        select_sessions(episode, ["session_9"])
    with pytest.raises(EnvironmentFault, match="at least 1"):
        truncate(episode, 0)


async def test_play_records_the_memory_before_and_after_each_session(episode: Episode) -> None:
    async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as agent:
        trajectory = await play(agent.at(EMPTY), episode)
        assert [trace.session_id for trace in trajectory.traces] == [
            one.id for one in episode.sessions
        ]
        assert trajectory.start == EMPTY == trajectory.traces[0].before
        for earlier, later in zip(trajectory.traces, trajectory.traces[1:], strict=False):
            assert earlier.after == later.before != later.after
        assert [one.probe_id for one in trajectory.answers] == [
            probe.id for probe in episode.probes
        ]
        assert all(one.memory == trajectory.end for one in trajectory.answers)
        assert agent.snapshot() == EMPTY


async def test_a_probe_is_asked_right_after_its_session(episode: Episode) -> None:
    early = episode.probes[1].model_copy(update={"after_session": "session_1"})
    one = episode.model_copy(update={"probes": (early, episode.probes[3])})

    async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as agent:
        trajectory = await play(agent.at(EMPTY), one)
        first, second = trajectory.answers
        assert (first.memory, second.memory) == (trajectory.traces[0].after, trajectory.end)
        assert first.answer is not None and first.answer.question is not None
        assert first.answer.question.asked_at == episode.sessions[0].at


async def test_a_replay_starts_from_its_anchor_and_ends_where_the_rollout_did(
    episode: Episode,
) -> None:
    async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as agent:
        trajectory = await play(agent.at(EMPTY), episode, ask=False)
        trace = trajectory.traces[1]
        first, second = [
            await replay_session(agent, episode, session=1, anchor=trace.before) for _ in range(2)
        ]
        assert first.before == second.before == trace.before
        assert first.after == second.after == trace.after
        with pytest.raises(EnvironmentFault, match="has heard session 'session_2' already"):
            await replay_session(agent, episode, session=1, anchor=trace.after)
        with pytest.raises(EnvironmentFault, match="has not heard session_1"):
            await replay_session(agent, episode, session=1, anchor=EMPTY)
        with pytest.raises(EnvironmentFault, match="sessions 0 to 2, not 3"):
            await replay_session(agent, episode, session=3, anchor=trajectory.end)


async def test_a_failed_rollout_is_recorded_and_its_siblings_go_on(episode: Episode) -> None:
    def broken(_: object) -> str:
        raise ModelUnavailable("the server is down")

    async with (
        open_agent(
            path=":memory:", design="memory_r1", model=FunctionModel(broken), embedder="hashing"
        ) as bad,
        open_agent(path=":memory:", design="verbatim", embedder="hashing") as good,
    ):
        failed, fine = await asyncio.gather(
            play(bad.at(EMPTY), episode), play(good.at(EMPTY), episode)
        )
    assert failed.failure is not None and "the server is down" in failed.failure
    assert len(failed.traces) == 1 and not failed.answers
    assert fine.failure is None and len(fine.answers) == len(episode.probes)


async def test_a_failed_answer_is_one_failed_probe(tmp_path: Path, episode: Episode) -> None:
    class Moody:
        """Fails at questions about instruments."""

        def __init__(self, inner) -> None:
            self.inner = inner
            self.remember, self.snapshot, self.at = inner.remember, inner.snapshot, inner.at

        async def ask(self, question: Question):
            if "instrument" in question.text:
                raise RuntimeError("no music")
            return await self.inner.ask(question)

    env = LoCoMo(tmp_path)
    async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as agent:
        score = await env.score(episode, await play(Moody(agent.at(EMPTY)), episode))
    failed = [probe for probe in score.probes if probe.failure]
    assert [probe.category for probe in failed] == ["4"]
    assert failed[0].reward is None and "no music" in (failed[0].failure or "")
    assert score.reward is not None


async def test_an_answering_agent_scores_what_was_played_without_asking(
    tmp_path: Path, episode: Episode
) -> None:
    async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as agent:
        silent = await play(agent.at(EMPTY), episode, ask=False)
        asked = await play(agent.at(EMPTY), episode)
        with pytest.raises(EnvironmentFault, match="has no answers"):
            await LoCoMo(tmp_path).score(episode, silent)
        env = LoCoMo(tmp_path, answering=agent)
        scores = [await env.score(episode, one) for one in (silent, asked)]
        told = [
            [(one.probe_id, one.answer, one.recall, one.reward) for one in score.probes]
            for score in scores
        ]
        assert told[0] == told[1]
        with pytest.raises(EnvironmentFault, match="is not one of"):
            await env.score(episode.model_copy(update={"id": "other"}), asked)


def test_real_locomo_conversations_pass_the_checker(locomo_dir: Path) -> None:
    env = LoCoMo(locomo_dir)
    check_environment(env, episodes=1, sessions=2)
    for one in env.episodes():
        assert 19 <= len(one.sessions) <= 32
        assert {probe.category for probe in one.probes} <= {"1", "2", "3", "4", "5"}
        assert all(probe.answers for probe in one.probes if not probe.unanswerable)
