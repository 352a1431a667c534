"""Credit by segments: every response in one segment, and the gradient of one row a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from training_kit import settings, tiny_model, trainer_of

from environments.acting.task import ActingTask
from environments.acting.topics import TOPICS, TopicPlayer, short_talks
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.exchange import ModelResponse, Role, TokenTrace
from memagent.core.records import Scope
from memagent.core.trials import Edit, Outcome, Trial, TrialStep
from memagent.core.workspace import credit_segments
from memagent.designs.working.mem_act import DESIGN, EditAction
from memagent.testing import FunctionModel
from train.credit.rows import build_rows, rows_of
from train.errors import TrainFault
from train.rollouts.acting import (
    ActedRun,
    ActingExperience,
    MakePlayer,
    PolicyPlayer,
    segment_shares,
    segmented,
)
from train.rollouts.grading import CreditPlan
from train.sampling.batcher import Job, Sampled
from train.sampling.decisions import word_tokenizer, words_of
from train.sampling.policy import PolicyModel
from train.settings.parts import task_episodes
from train.techniques.credit.tree_calls import tree_calls
from train.techniques.echo import Echo

pytestmark = pytest.mark.torch
SPOKEN = """let us note that the has number and then there is the of which there is so much to
tell today back to which was its number did saw say go on you act task steps < > / ( ) [ ] : , .
short listen answer begin with"""
PIECES = tuple(f'{{"folds":[{place}]}}' for place in range(5))
WINDOW = 50


def talk_tokenizer() -> Any:
    """Words of the talks, and a token for each edit."""
    words = [*words_of([SPOKEN, *TOPICS]), *map(str, range(6))]
    return word_tokenizer(words, pieces=PIECES)


def editing_agent(budget: int = WINDOW) -> AsyncAgent:
    """An agent that asks the policy for an edit whenever its workspace is full."""
    store = open_store(path=":memory:", embedder="hashing")
    design = replace(DESIGN, compactor=EditAction(budget=budget))
    model = FunctionModel(lambda _: "{}")
    return store.agent(Scope(user_id="t"), model=model, design=design, keep_unreadable=True)


def response(name: str, tokens: int) -> ModelResponse:
    ids = tuple(range(1, tokens + 1))
    trace = TokenTrace(
        prompt_ids=(1, 2), completion_ids=ids, logprobs=(-1.0,) * tokens, policy_version=0
    )
    return ModelResponse(id=name, text=name, tokens=trace)


def trial_of(steps: int, edits: Sequence[Edit], reward: float = 1.0) -> Trial:
    return Trial(
        id=f"trl_{steps}",
        task="t",
        steps=tuple(TrialStep(action=f"a{n}") for n in range(steps)),
        edits=tuple(edits),
        outcome=Outcome(reward=reward),
    )


# -- segments --------------------------------------------------------------------------


def test_what_was_generated_is_cut_where_an_edit_held() -> None:
    edits = [Edit(at=2, folds=(0,)), Edit(at=3, refused="no"), Edit(at=4, folds=(0,), text="n")]
    trial = trial_of(5, edits)
    generated = [["a0"], ["a1", "e1"], ["a2", "e2"], ["a3", "e3"], ["a4"]]
    cut = segmented(trial, generated)
    assert cut == [("a0", "a1", "e1"), ("a2", "e2", "a3", "e3"), ("a4",)]
    actions = [tuple(word for word in part if word[0] == "a") for part in cut]
    told = [tuple(w for w in each.generated if w[0] == "a") for each in credit_segments(trial)]
    assert actions == told, "the same cuts as the workspace's own"
    assert segmented(trial, [*generated, ["gave up"]])[-1] == ("a4", "gave up")
    for wrong in (generated[:-1], [*generated, ["x"], ["y"]]):
        with pytest.raises(TrainFault, match="steps"):
            segmented(trial, wrong)
    twice = trial_of(2, [Edit(at=1, folds=(0,), text="n"), Edit(at=1, folds=(0,), text="m")])
    with pytest.raises(TrainFault, match="two edits"):
        segmented(twice, [["a"], ["b"]])


def test_shares_of_a_segment_add_up_to_one() -> None:
    shares = segment_shares([[response("a", 1), response("b", 3)], [response("c", 5)]])
    assert shares == {"a": 0.25, "b": 0.75, "c": 1.0}
    with pytest.raises(TrainFault, match="two segments"):
        segment_shares([[response("a", 1)], [response("a", 1)]])
    with pytest.raises(TrainFault, match="no tokens"):
        segment_shares([[ModelResponse(id="a", text="a")]])


def experience(policy: Any, tasks: dict[str, ActingTask] | None = None) -> ActingExperience:
    return ActingExperience(
        policy=policy, agent=editing_agent(), tasks=tasks or {}, player=lambda _: TopicPlayer()
    )


def test_the_rows_have_the_gradient_of_one_row_a_segment() -> None:
    """Two trials, of one and of three segments: each segment weighs the same."""
    lengths = {"w": ([4],), "l": ([1, 2], [3], [2, 2, 1])}
    edits = (Edit(at=1, folds=(0,)), Edit(at=2, folds=(0,)))
    runs: list[ActedRun] = []
    for name, reward in (("w", 1.0), ("l", 0.0)):
        cut = tuple(
            tuple(response(f"{name}{place}.{at}", count) for at, count in enumerate(counts))
            for place, counts in enumerate(lengths[name])
        )
        roles = {each.id: Role.MANAGER for part in cut for each in part}
        runs.append(ActedRun(trial=trial_of(3, edits, reward), segments=cut, roles=roles))
    made = experience(SimpleNamespace(version=0)).credited([runs], ["task"], step=0)
    assert made.rows == 4 == sum(len(run.segments) for run in runs)
    batch = build_rows(
        rows_of(made.traces, made.credit.advantages), size=8, pad_id=0, counted=made.rows
    )
    logps = torch.zeros_like(batch.sampled_logps, requires_grad=True)
    mask = batch.completion_mask
    by_row = (batch.advantages[:, None] * logps * mask).sum(1) / mask.sum(1).clamp(min=1)
    (-by_row.mean()).backward()
    assert logps.grad is not None
    row = 0
    for run, advantage in zip(runs, (1, -1), strict=True):
        for segment in run.segments:
            total = sum(len(each.tokens.completion_ids) for each in segment if each.tokens)
            for each in segment:
                assert each.tokens is not None
                expected = torch.zeros(logps.size(1))
                # Two rewards, unbiased: +- 1 / sqrt(2).
                expected[: len(each.tokens.completion_ids)] = -advantage * 2**-0.5 / total / 4
                assert torch.allclose(logps.grad[row], expected, atol=1e-6)
                row += 1
    assert row == len(made.credit.advantages) and not logps.grad[row:].any()


# -- plays -----------------------------------------------------------------------------


class CyclingEngine:
    """Says an edit, or an action when it is asked to act, in turn."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.said = 0

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """One reply a job."""
        return [self._reply(self.tokenizer.decode(job.prompt_ids)) for job in jobs]

    def _reply(self, prompt: str) -> Sampled:
        self.said += 1
        text = "say go on" if "act" in prompt.split("task")[0] else PIECES[self.said % 3]
        ids = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return Sampled(completion_ids=ids, logprobs=(-1.0,) * len(ids), ended=True)


@pytest.mark.parametrize("acting", [False, True], ids=["edits", "edits and actions"])
async def test_every_token_of_a_play_is_in_exactly_one_segment(*, acting: bool) -> None:
    tokenizer = talk_tokenizer()
    policy = PolicyModel(CyclingEngine(tokenizer), tokenizer, context_tokens=512)
    tasks: dict[str, ActingTask] = {task.name: task for task in short_talks(0, 2)}
    player: MakePlayer = (
        (lambda model: PolicyPlayer(model=model)) if acting else (lambda _: TopicPlayer())
    )
    made = replace(experience(policy, tasks), player=player, members=3)
    step = await made.gather(task_episodes(tasks), step=0)
    runs = await made.played(next(iter(tasks)), key="again")
    for run in runs:
        held = [edit for edit in run.trial.edits if not edit.refused]
        assert len(held) >= 2 and len(run.segments) <= len(held) + 1
        said = [each.text for segment in run.segments for each in segment]
        actions = [text for text in said if "folds" not in text]
        assert actions == ([each.action for each in run.trial.steps] if acting else [])
        assert sum("folds" in text for text in said) == len(run.trial.edits)
    assert set(step.credit.advantages) == set(step.traces)
    assert step.rows == step.metrics["segments"] > 6
    assert len(tasks) == len(step.groups) and all(len(g.members) == 3 for g in step.groups)
    assert not len(made.agent.bank.state.trials), "no run leaves anything behind"


async def test_actions_and_edits_keep_their_roles_and_calls_their_own_credit() -> None:
    """The adapter that spoke is the one that is trained, and estimators see the tokens."""
    tokenizer = talk_tokenizer()
    policy = PolicyModel(CyclingEngine(tokenizer), tokenizer, context_tokens=512)
    tasks: dict[str, ActingTask] = {task.name: task for task in short_talks(0, 2)}
    made = replace(
        experience(policy, tasks),
        player=lambda model: PolicyPlayer(model=model),
        members=4,
        plan=CreditPlan(estimator=tree_calls, objectives={"echo": Echo()}),
    )
    groups = [await made.played(name, key=name) for name in tasks]
    for place, run in enumerate(groups[0]):
        rewarded = run.trial.model_copy(update={"outcome": Outcome(reward=float(place < 2))})
        groups[0][place] = replace(run, trial=rewarded)
    groups[1] = [
        replace(run, trial=run.trial.model_copy(update={"outcome": Outcome(reward=1.0)}))
        for run in groups[1]
    ]
    step = made.credited(groups, list(tasks), step=0)
    said = {each.id: each.text for g in groups for run in g for s in run.segments for each in s}
    assert {step.roles[key] for key, text in said.items() if "folds" in text} == {Role.MANAGER}
    assert {step.roles[key] for key, text in said.items() if "folds" not in text} == {Role.ANSWERER}
    ids = [member.response_ids for member in step.groups[0].members]
    assert any(step.credit.advantages[key] for one in ids for key in one), "tree_calls credits"
    assert step.marks["echo"] in [frozenset(m.response_ids) for m in step.groups[1].members]
    drawn = replace(made, plan=replace(made.plan, control="random_reward"))
    assert drawn.credited(groups, list(tasks), step=0).groups[0].rewards_G != [1.0, 1.0, 0.0, 0.0]


async def test_a_full_context_ends_a_run_and_not_the_training() -> None:
    tokenizer = talk_tokenizer()
    policy = PolicyModel(CyclingEngine(tokenizer), tokenizer, context_tokens=96)
    tasks: dict[str, ActingTask] = {task.name: task for task in short_talks(0, 1)}
    made = replace(
        experience(policy, tasks), player=lambda model: PolicyPlayer(model=model), members=2
    )
    step = await made.gather(task_episodes(tasks), step=0)
    assert step.metrics["failed"] == 2.0 and step.credit.advantages
    (run, _) = await made.played(next(iter(tasks)), key="again")
    outcome = run.trial.outcome
    assert outcome is not None and outcome.success is False and "holds 96" in outcome.detail
    assert 1 <= len(run.trial.steps) < 10 and run.reward == 0.0


def test_a_tiny_policy_is_trained_on_segments_by_the_trainer(tmp_path: Path) -> None:
    """The trainer itself takes the rows, and the policy's edits come to be readable."""
    tokenizer = talk_tokenizer()
    tasks: dict[str, ActingTask] = {task.name: task for task in short_talks(0, 8, fillers=2)}
    made: list[ActingExperience] = []

    def source(policy: PolicyModel) -> ActingExperience:
        player: MakePlayer = lambda _: TopicPlayer(window=40)  # noqa: E731
        agent = editing_agent(budget=40)
        made.append(
            ActingExperience(policy=policy, agent=agent, tasks=tasks, player=player, members=4)
        )
        return made[0]

    args = settings(
        tmp_path, num_generations=4, per_device_train_batch_size=4, steps_per_generation=2,
        gradient_accumulation_steps=2, max_steps=2, max_completion_length=1,
    )  # fmt: skip
    model = tiny_model(tokenizer)
    trainer = trainer_of(model, tokenizer, args, source, episodes=task_episodes(tasks))
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    trainer.train()
    logged = [row for row in trainer.state.log_history if "segments" in row]
    assert len(logged) == 2
    assert all(float(row["rows/counted"]) == float(row["segments"]) for row in logged)
    after = dict(model.named_parameters())
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert trainer.last_step is not None and trainer.last_step.traces
