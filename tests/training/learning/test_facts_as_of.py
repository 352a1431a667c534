"""The share of facts right as of each session, against the truths of shorter worlds."""

from __future__ import annotations

from statistics import fmean

import pytest

from environments.datasets.synthetic import synthetic
from environments.demonstrations.ideal import OracleModel
from environments.evaluation.fact_figures import right_facts
from environments.play.rollout import play
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.records import Scope
from memagent.core.snapshot import EMPTY
from train.run.plans import evaluate_policy


async def test_facts_as_of_are_those_that_were_true_right_after_each_session() -> None:
    env = synthetic("tiny", sessions=4, turns=4, facts=3.0, overwrite=0.5, friends=0)
    [episode] = [one for one, _ in zip(env.episodes("train"), range(1), strict=False)]
    store = open_store(path=":memory:", embedder="hashing")

    def agent() -> AsyncAgent:
        told = (env.truth(episode), episode.sessions, env.lexicon("train"))
        model = OracleModel(*told, noise=0.4, seed=3)
        return store.agent(Scope(user_id="t"), model=model, design="memory_r2_brief")

    found = (await evaluate_policy(None, agent(), env, [episode], answering=agent())).figures
    played = await play(agent().at(EMPTY), episode, ask=False)
    shares = []
    for sessions, trace in enumerate(played.traces, start=1):
        _, truth = env.after(episode, sessions)
        counts = right_facts(trace.after, truth)
        right, seen = (sum(counts[n][at] for n in ("now", "removed")) for at in (0, 1))
        shares += [right / seen] if seen else []
    assert len(set(shares)) > 1
    assert found["facts_as_of"] == pytest.approx(fmean(shares))
    assert found["facts"] == pytest.approx(shares[-1])
