"""A worker that plays and credits a step: no learning library, a tokenizer of characters,
and an engine that notes and adds by the job's seed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from environments.records import Episode, Probe
from memagent.build import open_store
from memagent.core.records import Scope, Session, Turn
from memagent.testing import FunctionModel
from train.rollouts.collect import Collector, RolloutPlan
from train.rollouts.experience import CreditPlan, Experience, Step
from train.sampling.batcher import Job, Sampled
from train.sampling.policy import PolicyModel


class Characters:
    """A tokenizer whose ids are code points."""

    chat_template = "as it is"

    def apply_chat_template(self, chat: Sequence[Mapping[str, str]], **_: Any) -> list[int]:
        return [ord(sign) for message in chat for sign in f"{message['content']}\n"]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(map(chr, ids))


class Noting:
    """Notes or adds some of what it is shown, drawn from the job's seed."""

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        return [self._reply(job) for job in jobs]

    def _reply(self, job: Job) -> Sampled:
        prompt, draws = Characters().decode(job.prompt_ids), random.Random(job.seed)
        shown = prompt.partition("memories")[0]
        places = [
            place
            for place in re.findall(r"^(\d) ?", shown.rpartition("2024")[2], re.MULTILINE)
            if draws.random() < 0.6
        ]
        if prompt.startswith("Note"):
            facts = [{"source": place, "text": "ana lives in rome"} for place in places]
            said: Any = {"facts": facts}
        else:
            said = {"ops": [{"fact": int(place), "op": "add"} for place in places]}
        ids = tuple(map(ord, json.dumps(said)))
        return Sampled(completion_ids=ids, logprobs=tuple(-1 / n for n in ids), ended=True)


def _answer(request: Any) -> str:
    held = "ana lives in rome" in request.messages[-1].content
    return json.dumps({"citations": [], "answer": "rome" if held else "", "abstain": not held})


def _episode(place: int) -> Episode:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    sessions = tuple(
        Session(
            id=f"s{place}.{number}",
            at=at + timedelta(days=number),
            turns=(Turn(id=f"t{place}.{number}", speaker="ana", text="ana lives in rome"),),
        )
        for number in range(2)
    )
    probes = tuple(
        Probe(
            id=f"p{session.id}",
            question="where does ana live ?",
            answers=("rome",),
            evidence_turn_ids=(session.turns[0].id,),
        )
        for session in sessions
    )
    return Episode(id=f"e{place}", sessions=sessions, probes=probes)


async def worked_step() -> Step:
    """Play and credit two episodes."""
    store = open_store(path=":memory:", embedder="hashing")
    agent = store.agent(
        Scope(user_id="worker"), model=FunctionModel(_answer), design="memory_r2_brief"
    )
    policy = PolicyModel(Noting(), Characters())
    plan = RolloutPlan(members=4, local_probability=1.0, reruns=3)
    experience = Experience(
        collector=Collector(agent=agent, policy=policy, plan=plan),
        plan=CreditPlan(),
        answering=agent,
    )
    return await experience.gather([_episode(0), _episode(1)], step=3)
