"""Credit right after a session: what the memory is worth then, and what the session added."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import pytest
from policy_kit import RuleEngine, policy_of, policy_tokenizer

from environments.demonstrations.oracle import OracleModel
from environments.play.group_scoring import score_group
from environments.play.rollout import ask_probe, play
from environments.records import Episode
from environments.views import linked_turns
from memagent.core.errors import ConfigError
from memagent.core.snapshot import EMPTY
from train.credit.advantages import logo_advantages
from train.rollouts.anchors import as_played
from train.rollouts.collect import Collector, RolloutGroup, RolloutPlan
from train.rollouts.grading import Comparison, CreditPlan, Grading
from train.rollouts.scoring import global_comparisons, local_comparisons
from train.run.plans import credit_plan, facts_right, rollout_plan
from train.run.runs import stage_config
from train.run.task import TrainingTask
from train.settings.options import MANAGER_ROLES
from train.settings.run import checked_run

SESSIONS = 3
BATCH = {"steps_per_generation": 4, "gradient_accumulation_steps": 4, "num_iterations": 1}


def _task(*, answering: Any = "facts", **trainer: Any) -> TrainingTask:
    settings = checked_run(
        {
            "environment": {"level": "tiny", "friends": 0, "turns": 4, "facts": 3.0},
            "agent": {"answering": answering},
            "trainer": {"num_generations": 4, **BATCH, **trainer},
        }
    )
    return TrainingTask.of(settings, sessions=SESSIONS)


async def _compared(
    tmp_path: Any, task: TrainingTask, **changes: Any
) -> tuple[RolloutGroup, list[Comparison], CreditPlan]:
    """Global comparisons of one episode, played by an oracle whose notes are spoilt often."""
    env: Any = task.env
    (episode,) = task.episodes("train", 1)
    truth, tokenizer = env.truth(episode), policy_tokenizer()

    def clumsy(played: Episode, policy: Any) -> OracleModel:
        seed = zlib.crc32(policy._key.encode())
        return OracleModel(truth, played.sessions, env.lexicon("train"), noise=0.5, seed=seed)

    collector = Collector(
        agent=task.agent,
        policy=policy_of(RuleEngine(tokenizer), tokenizer),
        plan=RolloutPlan(members=4, local_probability=0.0, seed=3),
        episode_model=clumsy,
        asked_after=task.asked_after(split="train"),
    )
    args = stage_config(task.settings, task.settings.stage[0], tmp_path)
    plan = replace(credit_plan(args, task.truth_of), **changes)
    grading = Grading(
        collector=collector,
        plan=plan,
        answering=task.answering([episode], split="train"),
        scoring=env.scoring,
    )
    (group,) = await collector.collect([episode], step=0)
    return group, await global_comparisons(grading, group), plan


COSTLESS = {"answers": 0.0, "facts": 1.0, "compression": 0.0, "unreadable": 0.0}


async def test_asof_is_the_measure_and_gain_is_its_growth(tmp_path: Any) -> None:
    task = _task(credit={"asof": 1.0, "gain": 0.5}, **COSTLESS)
    group, compared, _ = await _compared(tmp_path, task)
    truth = task.env.truth(group.episode)  # type: ignore[attr-defined]
    found = {(each.branch, each.session): each.rewards_G for each in compared}
    assert set(found) == {(name, at) for name in ("asof", "gain") for at in range(SESSIONS)}
    differing = 0
    for place in range(SESSIONS):
        held = truth.upto(place + 1)
        traces = [rollout.trajectory.traces[place] for rollout in group.rollouts]
        after = [facts_right(trace.after, held) or 0.0 for trace in traces]
        before = [facts_right(trace.before, held) or 0.0 for trace in traces]
        assert found["asof", place] == pytest.approx(after)
        assert found["gain", place] == pytest.approx(
            [late - early for late, early in zip(after, before, strict=True)]
        )
        differing += len(set(before)) > 1
    assert differing, "the memories before a session differ, so gain is not asof moved"


async def test_answers_right_after_a_session_are_credited_by_their_gain(tmp_path: Any) -> None:
    task = _task(credit={"asof": 1.0, "gain": 1.0}, compression=0.0, unreadable=0.0)
    _, compared, _ = await _compared(tmp_path, task)
    rewards = {(each.branch, each.session): each.rewards_G for each in compared}
    for place in range(SESSIONS):
        after, gained = rewards["asof", place], rewards["gain", place]
        assert all(0 <= reward <= 1 for reward in after)
        assert all(gain <= reward for gain, reward in zip(gained, after, strict=True))
    assert any(len(set(some)) > 1 for some in rewards.values())


async def test_mixed_credits_add_up_by_their_weights(tmp_path: Any) -> None:
    task = _task(credit={"gain": 1.0, "terminal": 0.3}, **COSTLESS)
    _, compared, plan = await _compared(tmp_path, task)
    calls = 0
    groups = [group for each in compared for group in each.groups(MANAGER_ROLES)]
    credit = logo_advantages(groups, weights=plan.branches)
    for response_id, advantage in credit.advantages.items():
        gain, terminal = (credit.by_branch[name][response_id] for name in ("gain", "terminal"))
        assert advantage == pytest.approx(gain + 0.3 * terminal)
        calls += 1
    assert dict(plan.branches) == {"gain": 1.0, "terminal": 0.3}
    assert (
        calls == sum(len(member.response_ids) for group in groups for member in group.members) / 2
    )


async def test_a_drawn_share_of_sessions_and_rollouts_is_asked(tmp_path: Any) -> None:
    task = _task(credit="asof", asked_share=0.5, **COSTLESS)
    _, compared, _ = await _compared(tmp_path, task)
    again = await _compared(tmp_path, task)
    assert [(each.session, each.rewards_G) for each in compared] == [
        (each.session, each.rewards_G) for each in again[1]
    ]
    assert len(compared) < SESSIONS
    assert all(len(each.rewards_G) == 2 and each.branch == "global" for each in compared)


@pytest.mark.parametrize(
    ("trainer", "said"),
    [
        ({"credit": "gains"}, "credit must be terminal, session, asof or gain"),
        ({"credit": {"local": 1.0}}, "credit must be"),
        ({"credit": {"gain": -1.0}}, "credit must be"),
        ({"asked_share": 0.0}, "asked_share must be above 0"),
        ({"answers": 0.0}, "answers must be above 0 unless facts is"),
    ],
)
def test_credits_that_cannot_be_are_refused(
    trainer: dict[str, Any], said: str, tmp_path: Any
) -> None:
    task = _task(**trainer)
    with pytest.raises(ConfigError, match=said):
        stage_config(task.settings, task.settings.stage[0], tmp_path)


@pytest.mark.parametrize("answering", ["facts", "reader"])
async def test_one_search_answers_as_one_for_each_question(answering: str) -> None:
    settings = checked_run(
        {
            "environment": {"level": "tiny", "friends": 0, "turns": 4, "facts": 3.0},
            "agent": {"answering": answering},
        }
    )
    task = TrainingTask.of(settings, sessions=SESSIONS)
    env: Any = task.env
    (episode,) = task.episodes("train", 1)
    model = OracleModel(env.truth(episode), episode.sessions, env.lexicon("train"))
    played = await play(task.agent.with_model(model).at(EMPTY), episode, ask=False)
    reader: Any = task.answering([episode], split="train")
    fork = reader.at(played.end)
    questions = [probe.as_question(at=None, k=5) for probe in episode.probes]
    together = await fork.ask_many(questions)
    assert [answer.text for answer in together] == [
        (await fork.ask(question)).text for question in questions
    ]
    assert any(answer.text for answer in together)
    bank, searches = type(fork.base.memory.bank), 0
    search_many = bank.search_many

    async def counted(self: Any, *values: Any, **options: Any) -> Any:
        nonlocal searches
        searches += 1
        return await search_many(self, *values, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bank, "search_many", counted)
        scored = await score_group(reader, episode, [played.end, EMPTY], episode.probes)
    assert searches == 2, "one search a memory"
    direct = [await ask_probe(fork, p, memory=played.end, at=None) for p in episode.probes]
    assert [score.f1 for score in scored.members[0]] == [
        score.f1 for score in env.scoring.score_answers(episode, direct)
    ]


async def test_memory_r1_credits_what_was_done_with_the_turn_by_exact_match(tmp_path: Any) -> None:
    """An episode is a bank and a turn; the turn's session alone has a reward, of 0 or 1."""
    task = _task(
        answering="reader",
        credit="asof",
        measure="exact",
        compression=0.0,
        unreadable=0.0,
        local_probability=1.0,
    )
    env: Any = task.env
    (whole,) = task.episodes("train", 1)
    truth, tokenizer = env.truth(whole), policy_tokenizer()

    def clumsy(played: Episode, policy: Any) -> OracleModel:
        seed = zlib.crc32(policy._key.encode())
        return OracleModel(truth, played.sessions, env.lexicon("train"), noise=0.5, seed=seed)

    args = stage_config(task.settings, task.settings.stage[0], tmp_path)
    collector = Collector(
        agent=task.agent,
        policy=policy_of(RuleEngine(tokenizer), tokenizer),
        plan=replace(rollout_plan(args), members=4, reruns=4, seed=3),
        episode_model=clumsy,
        asked_after=as_played,
    )
    grading = Grading(
        collector=collector,
        plan=credit_plan(args, task.truth_of),
        answering=task.answering([whole], split="train"),
        scoring=env.scoring,
    )
    earned: list[float] = []
    for episode in linked_turns(whole, 50):
        last = len(episode.sessions) - 1
        (group,) = await collector.collect([episode], step=0)
        compared = await global_comparisons(grading, group)
        compared += await local_comparisons(grading, group)
        assert {each.session for each in compared if each.rewards_G} == {last}
        assert [runs.session for runs in group.locals] == [last]
        earned += [reward for each in compared for reward in each.rewards_G]
    assert set(earned) == {0.0, 1.0}
