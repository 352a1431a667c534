"""`observational`: the log is short, stands whole in the prompt, and grows at its end."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from environments.datasets.synthetic import synthetic
from memagent.async_agent import AsyncAgent
from memagent.core.answers import Question, Verdict
from memagent.core.exchange import ModelRequest, Role
from memagent.core.records import Session
from memagent.designs.base import MemoryDesign
from memagent.designs.memory_r1 import DESIGN as MEMORY_R1
from memagent.designs.observational import DESIGN
from memagent.designs.parts.lessons import condensed, words
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.plugins import load
from memagent.testing import FunctionModel

QUESTIONS = ("Where does {} live now?", "What did {} buy last?", "Which music does {} like?")


class Observer:
    """Write the first words of the longest turn of each part; join pairs of old entries."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, request: ModelRequest) -> str:
        said = request.messages[-1].content
        if request.role is Role.ANSWERER:
            self.prompts.append("\n".join(message.content for message in request.messages))
            cited = re.findall(r"^\[(mem_\S+)\] ", said, re.M)[-1:]
            return json.dumps({"citations": cited, "answer": "so it is", "abstain": False})
        if "<log>" in said:
            ids = re.findall(r"^\[(mem_\S+)\] ", said, re.M)
            texts = re.findall(r"\) (.+)$", said, re.M)
            pairs = zip(zip(ids[::2], ids[1::2], strict=False), texts[::2], strict=False)
            return json.dumps({"log": [{"text": text[:60], "from": two} for two, text in pairs]})
        if request.role is Role.MANAGER:
            return '{"ops": [{"op": "ADD", "fact": 0}]}'
        turns = re.findall(r"^\[?(D\d+:\d+)\]? [^:]*: (.+)$", said.partition("<dialogue>")[2], re.M)
        source, text = max(turns, key=lambda turn: len(turn[1]))
        note = " ".join(text.split()[:9])
        return json.dumps(
            {
                "facts": [
                    {"text": note, "subject": None, "source": source, "when": None, "kind": "fact"}
                ]
            }
        )


def agent_of(model: Observer, design: MemoryDesign = DESIGN) -> AsyncAgent:
    bank = MemoryBank(embedder=HashEmbedder(dim=64))
    return AsyncAgent(design=design, model=FunctionModel(model), bank=bank)


def sessions_of(count: int) -> tuple[Session, ...]:
    return synthetic("standard", sessions=count, seed=4).episode("train", 0).sessions


def unchanged(prompts: list[str]) -> float:
    """Mean share of a prompt's words that the prompt before begins with too."""
    shares: list[float] = []
    for before, after in pairwise(prompt.split() for prompt in prompts):
        same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
        shares.append(same / len(after))
    return sum(shares) / len(shares)


async def talked(design: MemoryDesign) -> tuple[AsyncAgent, Observer]:
    """Remember eleven sessions, then go on turn by turn, with a question after each."""
    model = Observer()
    agent = agent_of(model, design)
    *earlier, last = sessions_of(12)
    for session in earlier:
        await agent.remember(session)
    for size in range(2, len(last.turns) + 1, 2):
        await agent.remember(last.model_copy(update={"turns": last.turns[:size]}))
        text = QUESTIONS[size // 2 % 3].format(last.turns[0].speaker)
        await agent.ask(Question(text=text, asked_at=last.at))
    return agent, model


async def test_the_prompt_stays_the_same_from_turn_to_turn() -> None:
    (agent, model), (_, searched) = await talked(DESIGN), await talked(MEMORY_R1)
    assert len(model.prompts) >= 4
    assert unchanged(model.prompts) >= 0.95
    assert unchanged(searched.prompts) < 0.9, "what is retrieved changes with the question"
    log = [item.text for item in agent.bank.state.active()]
    assert all(text in model.prompts[-1] for text in log), "the log stands whole in the prompt"


async def test_the_log_is_at_most_a_fifth_of_the_dialogue_and_cites_its_turns() -> None:
    model = Observer()
    agent = agent_of(model)
    sessions = sessions_of(6)
    for session in sessions:
        await agent.remember(session)
    log = list(agent.bank.state.active())
    heard = words(turn.said for session in sessions for turn in session.turns)
    assert len(log) >= 6 and words(item.text for item in log) <= 0.2 * heard
    assert all(item.source_turn_ids for item in log)
    answer = await agent.ask("What was said?")
    assert answer.verdict is Verdict.SUPPORTED and answer.citations[0].turn_id
    assert len(answer.hits) == len(log)
    assert await agent.tidy() is None, "a log that fits is left alone"


async def test_the_reflector_keeps_every_turn_cited_and_can_be_undone() -> None:
    agent = agent_of(Observer())
    for session in sessions_of(6):
        await agent.remember(session)
    before, digest = list(agent.bank.state.active()), agent.snapshot().digest
    cited = {turn for item in before for turn in item.source_turn_ids}
    assert await agent.tidy(budget=len(before) - 1) is not None
    after = list(agent.bank.state.active())
    assert len(after) < len(before)
    assert {turn for item in after for turn in item.source_turn_ids} == cited
    newest = sorted(before, key=lambda item: item.said_at.timestamp() if item.said_at else 0)[-1]
    assert newest in after, "the newer half is left alone"
    await agent.memory.undo()
    assert agent.snapshot().digest == digest


def test_replies_of_the_reflector_are_read_tolerantly() -> None:
    assert condensed("no json") == [] and condensed('{"log": [3, {"text": ""}]}') == []
    assert condensed('[{"text": "x", "from": ["mem_1"]}]') == [("x", ("mem_1",))]
    assert load("designs", "observational") is DESIGN
    names = ["answer", "condense", "observe"]
    assert sorted(DESIGN.prompt_digests) == names
