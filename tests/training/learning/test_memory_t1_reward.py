"""Memory-T1's reward reaches the policy that answers: the same right text earns more with
the right session than with a wrong one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from policy_kit import RuleEngine, experience_of, policy_of, policy_tokenizer

from environments.datasets.synthetic import Synthetic
from environments.play.rollout import ask_probe
from environments.records import Episode, Probe, ProbeScore
from environments.rewards.scoring import Scoring
from memagent.async_agent import AsyncAgent
from memagent.core.exchange import Role
from memagent.designs.memory_t1 import DESIGN
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.testing import FunctionModel
from train.rollouts.collect import RolloutPlan
from train.rollouts.grading import GradedRun, Grading
from train.run.config import LoGoGRPOConfig
from train.run.plans import credit_plan


def _grading(tmp_path: Any, *, worth: float, temporal: float) -> Grading:
    args = LoGoGRPOConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        report_to=[],
        roles="answerer",
        worth=worth,
        temporal=temporal,
    )
    tokenizer = policy_tokenizer()
    experience = experience_of(
        policy_of(RuleEngine(tokenizer), tokenizer),
        plan=RolloutPlan(members=1),
        credit=credit_plan(args),
    )
    return Grading(
        collector=experience.collector, plan=experience.plan, answering=None, scoring=Scoring()
    )


def _one_session(episode: Episode) -> list[tuple[Probe, str]]:
    """Return the answerable probes whose evidence lies in one session, with the session."""
    home = {turn.id: session.id for session in episode.sessions for turn in session.turns}
    named = [
        (probe, {home[turn_id] for turn_id in probe.evidence_turn_ids})
        for probe in episode.probes
        if probe.answers and not probe.unanswerable
    ]
    return [(probe, next(iter(homes))) for probe, homes in named if len(homes) == 1]


async def _answered(
    probe: Probe, session_id: str, agent: AsyncAgent, scoring: Scoring, episode: Episode
) -> ProbeScore:
    """Have the design's answerer say the gold answer and name the session."""

    def reply(request: Any) -> str:
        if request.role is Role.PLANNER:
            return '{"from": null, "to": null}'
        said = {"sessions": [session_id], "citations": [], "answer": probe.answers[0]}
        return json.dumps(said | {"abstain": False})

    asked = agent.with_model(FunctionModel(reply))
    answer = await ask_probe(
        asked, probe, memory=agent.bank.snapshot(), at=episode.sessions[-1].at, k=1000
    )
    return scoring.score_answers(episode, [answer])[0]


async def test_the_right_session_earns_more_than_a_wrong_one(tmp_path: Any) -> None:
    episode = Synthetic("tiny", seed=3).episode("train", 0)
    agent = AsyncAgent(design=VERBATIM, bank=MemoryBank(embedder=HashEmbedder(dim=64)))
    for session in episode.sessions:
        await agent.remember(session)
    agent = AsyncAgent(design=DESIGN, model=FunctionModel(lambda _: ""), bank=agent.bank)
    grading = _grading(tmp_path, worth=0.0, temporal=1.0)
    memory, gaps = agent.bank.snapshot(), []
    for probe, right in _one_session(episode)[:4]:
        for wrong in (session.id for session in episode.sessions if session.id != right):
            good, bad = [
                await _answered(probe, name, agent, grading.scoring, episode)
                for name in (right, wrong)
            ]
            if bad.evidence_sessions != (wrong,) or good.evidence_sessions != (right,):
                continue  # the session had no memory to show
            rewards = [
                grading.grade_answer(GradedRun(calls=()), episode, memory, score).reward
                for score in (good, bad)
            ]
            assert good.answer == bad.answer == probe.answers[0]
            assert rewards[0] is not None and rewards[1] is not None
            gaps.append(rewards[0] - rewards[1])
    assert len(gaps) >= 10
    assert min(gaps) >= 0.6, sorted(gaps)[:5]


async def test_a_reply_that_cannot_be_read_earns_the_least(tmp_path: Any) -> None:
    episode = Synthetic("tiny", seed=3).episode("train", 0)
    probe = _one_session(episode)[0][0]
    grading = _grading(tmp_path, worth=0.0, temporal=1.0)
    memory = MemoryBank(embedder=HashEmbedder(dim=8)).snapshot()
    score = ProbeScore(
        probe_id=probe.id, evidence=probe.evidence_turn_ids, abstained=True, unreadable=True, f1=0.0
    )
    graded = grading.grade_answer(GradedRun(calls=()), episode, memory, score)
    assert graded.reward == pytest.approx(-1.0)
