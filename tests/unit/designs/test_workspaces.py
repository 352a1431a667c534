"""Workspaces: edits that replay, designs that keep them small, and cuts that lose."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from learning_kit import NOON, agent_of, noon

from memagent.async_agent import AsyncAgent
from memagent.core.errors import InputError
from memagent.core.exchange import ModelRequest
from memagent.core.trials import Edit, Trial, TrialEnded, TrialStep
from memagent.core.workspace import (
    Segment,
    Workspace,
    credit_segments,
    workspace_of,
)
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.working import (
    delethink,
    mem1,
    mem_act,
    memo,
)
from memagent.designs.working.delethink import CarryOver
from memagent.embed.static import TABLE_FOLDER, HashEmbedder, WordPiece
from memagent.memory.bank import MemoryBank
from memagent.testing import FunctionModel

CODE = "4711"
DESIGNS = {
    design.name: design
    for design in (
        mem1.DESIGN, delethink.DESIGN, memo.DESIGN, mem_act.DESIGN,
    )
}  # fmt: skip
CONSTANT = ("mem1", "delethink", "mem_act")


def keeping(request: ModelRequest) -> str:
    """A note that keeps the numbers of four figures, and folds all but the last segment."""
    steps = request.messages[-1].content.split("<steps>")[1]
    codes = dict.fromkeys(re.findall(r"code \d{4}", steps))
    places = [int(place) for place in re.findall(r"\((\d+)\)", steps)]
    return json.dumps({"folds": places[:-1], "text": "; ".join(codes) or "nothing yet"})


def agent_with(design: MemoryDesign, model: Callable[[ModelRequest], str] = keeping) -> AsyncAgent:
    bank = MemoryBank(embedder=HashEmbedder(dim=64), clock=noon)
    return AsyncAgent(design=design, bank=bank, clock=noon, model=FunctionModel(model))


def story(turns: int) -> list[TrialStep]:
    """A code in the second step, then many rooms; a subgoal every ten steps."""
    steps = [TrialStep(action="subgoal: begin", observation="you begin")]
    steps += [TrialStep(action="read the sign", observation=f"it says code {CODE}")]
    for number in range(turns - 2):
        name = f"subgoal: part {number}" if number % 10 == 8 else f"enter room {number}"
        steps.append(TrialStep(action=name, observation="a bare room with four grey walls"))
    return steps


async def worked(agent: AsyncAgent, steps: Sequence[TrialStep]) -> tuple[Trial, list[int]]:
    """The trial after the steps, and the tokens of the workspace after each."""
    trial = (await agent.recall("open the last door")).trial
    tokens: list[int] = []
    for step in steps:
        trial = await agent.compact(trial.with_step(step))
        tokens.append(sum(map(tokens_of, workspace_of(trial).prompt.split("\n"))))
    return trial, tokens


@lru_cache
def pieces() -> WordPiece:
    """The word pieces that the package ships."""
    return WordPiece((TABLE_FOLDER / "vocab.txt").read_text("utf-8").split("\n"))


@lru_cache(maxsize=10_000)
def tokens_of(line: str) -> int:
    return sum(len(pieces().pieces(word)) or 1 for word in pieces().words(line))


def slope(values: Sequence[int]) -> float:
    """Least squares, in tokens a step."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    across = sum((at - middle) ** 2 for at in range(len(values)))
    return sum((at - middle) * (v - mean) for at, v in enumerate(values)) / across


@pytest.mark.parametrize("name", CONSTANT)
async def test_the_prompt_stays_as_long_as_it_is_over_a_hundred_steps(name: str) -> None:
    _, tokens = await worked(agent_with(DESIGNS[name]), story(200))
    assert abs(slope(tokens[100:])) <= 1.0
    assert max(tokens) <= 700


async def test_the_history_grows_without_a_compactor_and_slower_with_notes() -> None:
    _, whole = await worked(agent_with(EXP_RAG), story(120))
    assert slope(whole) > 10
    _, tokens = await worked(agent_with(memo.DESIGN), story(120))
    assert 0 < slope(tokens) < 0.25 * slope(whole)


@pytest.mark.parametrize("name", sorted(DESIGNS))
async def test_a_cut_is_no_compaction(name: str) -> None:
    """What was read early is still there late; of a design that only cuts, it is not."""
    trial, _ = await worked(agent_with(DESIGNS[name]), story(120))
    assert (CODE in workspace_of(trial).prompt) == (name != "delethink")
    assert trial.edits and not any(edit.refused for edit in trial.edits)


async def test_delethink_keeps_what_the_agent_says_again() -> None:
    steps = [
        step.model_copy(update={"action": f"{step.action} with code {CODE}"}) for step in story(120)
    ]
    trial, _ = await worked(agent_with(delethink.DESIGN), steps)
    assert CODE in workspace_of(trial).prompt
    assert (
        CODE not in workspace_of((await worked(agent_with(delethink.DESIGN), story(120)))[0]).prompt
    )


async def test_the_note_of_the_model_counts_and_nothing_else_keeps_a_fact() -> None:
    """The control: the same design with a model that forgets loses the code."""
    forgetting = agent_with(mem1.DESIGN, lambda _: '{"text": "nothing of note"}')
    trial, _ = await worked(forgetting, story(30))
    assert CODE not in workspace_of(trial).prompt


async def test_two_histories_with_one_state_give_one_prompt() -> None:
    first, _ = await worked(agent_with(mem1.DESIGN), story(30))
    second, _ = await worked(agent_with(mem1.DESIGN), [*story(12), *story(30)[12:]][-28:-1])
    one, other = workspace_of(first), workspace_of(second)
    assert one.segments[0].text != other.segments[0].text, "the second never saw the code"
    third, _ = await worked(agent_with(mem1.DESIGN), [*story(2), *story(50)[2:5], *story(30)[-3:]])
    assert len(third.steps) != len(first.steps)
    assert workspace_of(third) == one and workspace_of(third).prompt == one.prompt


async def test_opening_a_note_gives_back_what_was_folded_word_for_word() -> None:
    async def fold_or_open(workspace: Workspace, _: SlotContext, /) -> Edit | None:
        if workspace.segments[-1].text.startswith("did: open 0"):
            return Edit(at=0, opens=0)
        folded = len(workspace.segments) == 11
        return Edit(at=0, folds=tuple(range(10)), text="ten rooms") if folded else None

    agent = agent_with(replace(EXP_RAG, compactor=fold_or_open))
    steps = story(30)
    before, _ = await worked(agent_with(EXP_RAG), steps[:11])
    trial, _ = await worked(agent, steps[:11])
    folded = workspace_of(trial)
    assert [segment.kind for segment in folded.segments] == ["note", "step"]
    trial = await agent.compact(trial.with_step(TrialStep(action="open 0", observation="opened")))
    opened = workspace_of(trial)
    assert opened.segments[:-1] == workspace_of(before).segments
    trial = await agent.compact(trial.with_step(TrialStep(action="open 0", observation="opened")))
    assert trial.edits[-1].refused == "segment 0 is no note that can be opened"
    assert len(workspace_of(trial).segments) == len(opened.segments) + 1


async def test_edits_are_journalled_replayed_and_erased(tmp_path: Path) -> None:
    agent = replace(agent_of(mem1.DESIGN, tmp_path / "m.db"), model=FunctionModel(keeping))
    async with agent:
        trial, _ = await worked(agent, story(20))
        prompt = workspace_of(trial).prompt
        learned = await agent.report(trial, 1.0)
        assert learned.trial.edits == trial.edits
        digest = agent.bank.state.digest()
    async with agent_of(path=tmp_path / "m.db") as other:
        state = await other.bank.sync()
        assert state.digest() == digest
        assert workspace_of(state.trials[trial.id]).prompt == prompt
        ended = [row.entry async for row in other.bank.rows() if isinstance(row.entry, TrialEnded)]
        assert workspace_of(ended[0].trial).prompt == prompt
        assert f"code {CODE}" in ended[0].model_dump_json()
        await other.memory.reset(user_id="default")
    raw = b"".join(file.read_bytes() for file in tmp_path.glob("m.db*"))
    assert CODE.encode() not in raw


@pytest.mark.parametrize("name", sorted(DESIGNS))
async def test_every_generated_text_is_in_exactly_one_credit_segment(name: str) -> None:
    trial, _ = await worked(agent_with(DESIGNS[name]), story(60))
    segments = credit_segments(trial)
    held = [edit for edit in trial.edits if not edit.refused]
    assert len(segments) == len(held) + 1
    generated = [text for segment in segments for text in segment.generated]
    expected: list[str] = []
    for number, step in enumerate(trial.steps, start=1):
        expected.append(step.action)
        expected += [edit.text for edit in trial.edits if edit.at == number and edit.text]
    assert generated == expected
    assert segments[-1].prompt in workspace_of(trial).prompt


@pytest.mark.parametrize(
    "reply", ["", "no json", "[]", '{"text": ""}', '{"folds": "all"}', '{"folds": [99], "text": "x"}',
              '{"folds": [0, 0], "text": "x"}', '{"folds": [-1]}', '{"folds": [true]}'],
)  # fmt: skip
async def test_a_bad_reply_is_a_refused_edit_with_a_reason(reply: str) -> None:
    for design in (mem1.DESIGN, mem_act.DESIGN):
        trial, _ = await worked(agent_with(design, lambda _: reply), story(40))
        assert len(workspace_of(trial).segments) in (40, 2)
        assert all(edit.refused or edit.text for edit in trial.edits)
        if len(workspace_of(trial).segments) == 40 and trial.edits:
            assert trial.edits[-1].refused


def test_an_edit_that_does_not_fit_is_an_input_error() -> None:
    workspace = Workspace(goal="g", segments=(Segment(text="did: a"),))
    bad = (Edit(at=0), Edit(at=0, folds=(1,)), Edit(at=0, folds=(0, 0)), Edit(at=0, opens=0))
    for edit in (*bad, Edit(at=0, opens=5)):
        with pytest.raises(InputError):
            workspace.after_edit(edit)
    with pytest.raises(InputError, match="does not have"):
        workspace_of(Trial(id="trl_1", task="g", edits=(Edit(at=3, folds=(0,)),), at=NOON))


async def test_an_edit_is_a_value_of_any_compactor(  # an outside one, without a model
) -> None:
    async def cut(workspace: Workspace, _: SlotContext, /) -> Edit | None:
        return Edit(at=9, folds=(0,)) if len(workspace.segments) > 3 else None

    design = replace(EXP_RAG, compactor=cut)
    trial, _ = await worked(agent_with(design), story(10))
    assert len(workspace_of(trial).segments) == 3 and trial.edits[0].at == 4
    assert CarryOver(chunk_words=1, carried_words=1) != CarryOver()
