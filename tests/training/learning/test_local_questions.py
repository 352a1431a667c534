"""Local groups are asked about what held right after their session, and no tokens go to
reruns that nothing can be asked about.
"""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from policy_kit import RuleEngine, experience_of, policy_of, policy_tokenizer
from training_kit import small_episode

from environments.demonstrations.oracle import OracleModel
from environments.records import Episode
from environments.rewards.questions import evidence_places, questions_for
from environments.rewards.terms import AnswerTerm, Weighted
from memagent.core.exchange import Role
from train.credit.groups import CreditGroup, GroupKey, Member, is_flat
from train.rollouts.collect import Collector, RolloutPlan
from train.rollouts.grading import CreditPlan, Grading
from train.rollouts.scoring import local_comparisons
from train.run.task import TrainingTask
from train.settings.run import checked_run

TOLERANCE = 0.01


def _task(sessions: int, **world: Any) -> TrainingTask:
    settings = checked_run(
        {
            "environment": {
                "level": "tiny",
                "friends": 0,
                "turns": 4,
                "facts": 2.0,
                "overwrite": 0.4,
                "interference": 0.3,
                "asks": ["now", "who"],
                **world,
            }
        }
    )
    return TrainingTask.of(settings, sessions=sessions)


@pytest.mark.parametrize("sessions", [8, 32])
def test_a_world_asks_about_most_sessions_as_of_their_end(sessions: int) -> None:
    """With the questions of the end alone, less than half of the sessions have one due."""
    task = _task(sessions)
    asked_after = task.asked_after(split="train")
    due = at_end = overwritten = 0
    for episode in task.episodes("train", 2):
        truth = task.env.truth(episode)  # type: ignore[attr-defined]
        places = evidence_places(episode)
        for place in range(sessions):
            asked = asked_after(episode, place).episode
            assert [each.id for each in asked.sessions] == [
                each.id for each in episode.sessions[: place + 1]
            ]
            questions = questions_for(("any",), asked, place, rehearsal=8)
            held = truth.state(place)
            for probe in questions.due:
                assert max(evidence_places(asked)[probe.id]) == place
                known = {value.value for values in held.values() for value in values}
                known |= {subject for subject, _ in held}
                assert probe.unanswerable or any(
                    each in answer for each in known for answer in probe.answers
                )
            assert len(questions.rehearsal) <= 8
            due += bool(questions.due)
            ended = questions_for(("any",), episode, place).due
            at_end += bool(ended)
            overwritten += bool(questions.due) and not any(
                place in places[probe.id] for probe in episode.probes
            )
    assert due >= 0.75 * 2 * sessions
    assert at_end <= 0.6 * 2 * sessions
    assert overwritten > 0


async def _local(task: TrainingTask, episode: Episode, *, asked: bool) -> list[Any]:
    """Local comparisons of one episode, played by an oracle whose notes are spoilt often."""
    env: Any = task.env
    truth, tokenizer = env.truth(episode), policy_tokenizer()

    def clumsy(played: Episode, policy: Any) -> OracleModel:
        seed = zlib.crc32(policy._key.encode())
        return OracleModel(truth, played.sessions, env.lexicon("train"), noise=0.5, seed=seed)

    options: dict[str, Any] = {"asked_after": task.asked_after(split="train")} if asked else {}
    collector = Collector(
        agent=task.agent,
        policy=policy_of(RuleEngine(tokenizer), tokenizer),
        plan=RolloutPlan(members=2, local_probability=0.8, reruns=7, seed=3),
        episode_model=clumsy,
        **options,
    )
    plan = CreditPlan(reward=Weighted((AnswerTerm(), 1.0)), flat_tolerance=TOLERANCE)
    grading = Grading(
        collector=collector,
        plan=plan,
        answering=task.answering([episode], split="train"),
        scoring=task.env.scoring,
    )
    (group,) = await collector.collect([episode], step=0)
    return await local_comparisons(grading, group)


def _dead(rewards: list[float]) -> bool:
    members = tuple(Member(reward=each, response_ids=()) for each in rewards)
    key = GroupKey(branch="local", role=Role.MANAGER, episode_id="e")
    return is_flat(CreditGroup(key=key, members=members), tolerance=TOLERANCE)


@pytest.mark.parametrize("sessions", [8, 32])
async def test_few_local_groups_are_dead_and_none_earns_nothing(sessions: int) -> None:
    task = _task(sessions)
    dead: dict[bool, list[bool]] = {False: [], True: []}
    for asked, episodes in ((True, 16 // sessions + 1), (False, 1)):
        for episode in task.episodes("train", episodes):
            comparisons = await _local(task, episode, asked=asked)
            dead[asked] += [_dead(each.rewards_G) for each in comparisons]
            assert all(each.rewards_G for each in comparisons)
    assert len(dead[True]) >= 10
    assert sum(dead[True]) / len(dead[True]) <= 0.2, dead


async def test_a_session_without_questions_is_never_rerun() -> None:
    """Reruns of a session that nothing is asked about would be tokens for nothing."""
    tokenizer = policy_tokenizer()
    experience = experience_of(
        policy_of(RuleEngine(tokenizer), tokenizer),
        plan=RolloutPlan(members=2, local_probability=1.0, reruns=3, seed=1),
        credit=CreditPlan(reward=Weighted((AnswerTerm(), 1.0))),
    )
    whole = small_episode(0, sessions=4)
    episode = whole.model_copy(
        update={"probes": tuple(each for each in whole.probes if each.id not in ("p0.0", "p0.2"))}
    )
    step = await experience.gather([episode], step=0)
    (group,) = step.rollouts
    assert [local.session for local in group.locals] == [1, 3]
    assert step.metrics["tokens/reruns_unscored"] == 0
    assert step.metrics["rollouts/reruns"] == 6
