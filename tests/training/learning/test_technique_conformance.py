"""Every registered technique, with default arguments, in the real trainer on a tiny policy.

A step holds groups made by hand whose replies the policy could say. The trainer credits
them through the run's own slots and makes one update; what became likelier is measured.
A technique does what its page claims or is refused in plain words, in talks and in tasks
that are acted in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from places import ROOT
from training_kit import (
    GivenSteps,
    made_step,
    saved_model,
    settings,
    tiny_tokenizer,
    trainer_of,
)

from environments.records import Episode
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelResponse, Role, StepRef, TokenTrace
from memagent.core.snapshot import EMPTY
from memagent.core.trials import Trial
from memagent.plugins import available
from train.credit.groups import CreditGroup, GroupKey, Member, ScoredGroup
from train.rollouts.experience import Step, credit_groups, sampled_of
from train.rollouts.slots import Replay
from train.run.config import LoGoGRPOConfig
from train.run.plans import credit_plan
from train.sampling.policy import Call
from train.settings.parts import MEANINGLESS, _estimator
from train.settings.run import checked_run
from train.techniques.credit.skill1 import Skill1

pytestmark = pytest.mark.torch
TOKEN = {"importance_sampling_level": "token"}
PASSES = {"num_iterations": 2, "max_steps": 2}
WEIGHTS = {"answer": 1.0, "cost": -0.3, "noted": 0.0}


def skill(outcome: float, best: float, trend: float = 0.0) -> dict[str, float]:
    """What a task tells of the skills it was shown and followed."""
    return {"outcome": float(outcome), "best": best, "trend": trend}


@dataclass(kw_only=True)
class HandMade(GivenSteps):
    """Groups with known replies, credited by the slots of a run.

    Group `mixed`: a short cheap success `a` of one call, a success `b` of two calls and a
    cost, a short failure `c` and a long, costly failure `d`. Group `won`: two successes. The
    groups tell what came of skills too: `mixed` writes them down, `won` chooses among them.
    """

    args: LoGoGRPOConfig
    model: Any
    tokenizer: Any
    steps: list[Step] = field(default_factory=list[Step])
    groups: Sequence[CreditGroup] = ()
    """In the place of those two."""

    def __post_init__(self) -> None:
        super().__init__([])
        words = {"a": "rome", "b": "ana lives", "b2": "ana in rome", "c": "oslo"}
        words |= {"d": "ben lives in oslo ben lives", "e": "where ?", "f": "memories none"}
        self.traces = {key: self._trace(text) for key, text in words.items()}

    def _trace(self, text: str) -> TokenTrace:
        ids = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        prompt = tuple(self.tokenizer("where does ana live ?")["input_ids"])
        bare = TokenTrace(
            prompt_ids=prompt, completion_ids=ids, logprobs=(0.0,) * len(ids), policy_version=0
        )
        return bare.model_copy(update={"logprobs": tuple(self.logps(bare))})

    def logps(self, trace: TokenTrace) -> list[float]:
        """What the model thinks of a reply now."""
        ids = torch.tensor([[*trace.prompt_ids, *trace.completion_ids]])
        with torch.no_grad():
            logps = self.model(input_ids=ids).logits[0].log_softmax(-1)
        begin = len(trace.prompt_ids)
        return [
            float(logps[begin + at - 1, ids[0, begin + at]]) for at in range(ids.size(1) - begin)
        ]

    def told(self) -> dict[str, float]:
        """Mean log-probability of each reply now."""
        return {
            key: sum(v) / len(v) for key, v in ((k, self.logps(t)) for k, t in self.traces.items())
        }

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """Credit the groups as the conversations' own source does."""
        roles = dict.fromkeys(self.traces, Role.MANAGER)
        sampled = sampled_of(self.traces, roles, entropies=self.read_entropies)
        liked = {
            key: [own + (1.0 if key in "ae" else -9.0) for own in trace.logprobs]
            for key, trace in self.traces.items()
        }
        sampled = replace(sampled, taught=lambda: liked)
        mixed = [
            (1.0, ("a",), {"answer": 1.0, "cost": 0.0, "noted": 0.0} | skill(1, 0.5)),
            (1.0 - 0.15, ("b", "b2"), {"answer": 1.0, "cost": 0.5, "noted": 0.0} | skill(1, 0.25)),
            (0.0, ("c",), {"answer": 0.0, "cost": 0.0, "noted": 1.0} | skill(0, 0.0)),
            (0.0 - 0.3, ("d",), {"answer": 0.0, "cost": 1.0, "noted": 9.0} | skill(0, 0.25)),
        ]
        won = [
            (1.0, (key,), {"answer": 1.0, "cost": 0.0, "noted": 0.0} | skill(1, 1.0, trend))
            for key, trend in (("e", 0.8), ("f", 0.1))
        ]
        spoke = {"mixed": Role.MANAGER, "won": Role.PLANNER}
        groups = self.groups or [
            CreditGroup(
                key=GroupKey(branch="global", role=spoke[name], episode_id=f"{step}/{name}"),
                members=tuple(
                    Member(reward=reward, response_ids=ids, parts=parts, weights=WEIGHTS)
                    for reward, ids, parts in runs
                ),
                sampled=sampled,
            )
            for name, runs in (("mixed", mixed), ("won", won))
        ]
        plan = credit_plan(self.args)
        credit, marks = credit_groups(groups, plan, seed=str(step))
        fresh = Replay(
            advantages=credit.advantages,
            traces={key: self.traces[key] for key in credit.advantages},
            roles={key: roles[key] for key in credit.advantages},
        )
        plan.source.draw(fresh, groups, random.Random(step))
        bare = made_step(fresh.traces, credit.advantages)
        made = replace(bare, credit=credit, marks=marks, groups=tuple(groups))
        self.steps.append(made)
        return made


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one update did."""

    advantages: dict[str, float]
    moved: dict[str, float]
    """Change of the mean log-probability of each reply."""
    figures: dict[str, float]


def update(
    folder: Path, groups: Callable[[HandMade], Sequence[CreditGroup]] | None = None, **values: Any
) -> Seen:
    """Make one update and return what it did; `groups` makes other ones than the usual."""
    tokenizer = tiny_tokenizer()
    model = saved_model(folder / "model", tokenizer)
    args = settings(folder / "run", learning_rate=1e-2, optim="sgd", **values)
    source = HandMade(args=args, model=model, tokenizer=tokenizer)
    source.groups = () if groups is None else groups(source)
    trainer = trainer_of(model, tokenizer, args, source)
    before = source.told()
    trainer.train()
    after = source.told()
    figures: dict[str, float] = {}
    for row in trainer.state.log_history:
        figures |= row
    return Seen(
        advantages=dict(source.steps[0].credit.advantages),
        moved={key: after[key] - before[key] for key in before},
        figures=figures,
    )


def right_over_wrong(seen: Seen) -> bool:
    """Successes gained on failures, by credit and by what the policy says now."""
    gains = seen.moved["a"] > seen.moved["c"] and seen.moved["b2"] > seen.moved["d"]
    return gains and seen.advantages["a"] > 0 > seen.advantages["d"]


Claim = Callable[[Seen], bool]
ESTIMATORS: dict[str, Claim] = {
    "zscore": lambda seen: abs(sum(seen.advantages[key] for key in "abcd")) < 1e-4,
    "mean": lambda seen: seen.advantages["a"] == pytest.approx(1.0 - 1.55 / 4),
    "leave_one_out": lambda seen: seen.advantages["a"] == pytest.approx(1.0 - 0.55 / 3),
    "tree": lambda seen: seen.advantages["a"] == pytest.approx(1.0 - 1.55 / 4),
    "tree_calls": lambda seen: (
        seen.advantages["b"] + seen.advantages["b2"] == pytest.approx(0.85 - 1.55 / 4)
    ),
    "gdpo": lambda seen: (
        seen.advantages["a"] > seen.advantages["b"] and seen.advantages["c"] > seen.advantages["d"]
    ),
    "rdpo": lambda seen: (
        seen.advantages["a"] > seen.advantages["b"] and seen.advantages["c"] > seen.advantages["d"]
    ),
    "eapo": lambda seen: seen.advantages["b2"] > seen.advantages["b"],
    "xrpo": lambda seen: (
        sum(seen.advantages[key] for key in "abcd") > 1e-3
        and abs(seen.advantages["c"] + seen.advantages["d"] + 1.691) < 0.01
    ),
    "skill1": lambda seen: (
        [round(seen.advantages[key], 4) for key in ("a", "b", "b2", "c", "d")]
        == [0.5477, 1.0954, 1.0954, -0.5477, -1.0954]  # 1 - .5, 1 - .25, 0 - 0, 0 - .25
        and [round(seen.advantages[key], 4) for key in "ef"] == [0.7071, -0.7071]  # by trend
        and seen.moved["e"] > seen.moved["f"]
    ),
    "sdar": lambda seen: seen.advantages["e"] > 0.009 and 0 <= seen.advantages["f"] < 1e-6,
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_has_the_sign_and_size_of_its_page(tmp_path: Path, name: str) -> None:
    seen = update(tmp_path, estimator=name)
    if name != "tree_calls":
        assert right_over_wrong(seen), seen
    assert ESTIMATORS[name](seen), seen
    if name in ("gdpo", "rdpo", "zscore", "mean", "leave_one_out", "tree", "xrpo", "eapo"):
        assert seen.advantages["e"] == seen.advantages["f"] == 0.0, "alike rewards teach nothing"


def differs(seen: Seen, plain: Seen) -> bool:
    """Whether the policy went elsewhere than without the technique."""
    return any(abs(seen.moved[key] - plain.moved[key]) > 1e-6 for key in plain.moved)


OBJECTIVES: dict[str, tuple[dict[str, Any], Callable[[Seen, Seen], bool]]] = {
    "echo": ({}, lambda seen, plain: max(seen.moved[k] - plain.moved[k] for k in "ef") > 1e-6),
    "bapo": (TOKEN, lambda seen, plain: right_over_wrong(seen)),
    "lp_reg": ({}, lambda seen, plain: "lp_reg" in seen.figures),
    "d3s_tokens": ({}, differs),
    "gradient_gate": (PASSES, lambda seen, plain: any("gate" in name for name in seen.figures)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_acts_in_the_loss(tmp_path: Path, name: str) -> None:
    values, claim = OBJECTIVES[name]
    plain = update(tmp_path / "plain", **values)
    seen = update(tmp_path / "with", objectives=[name], **values)
    assert claim(seen, plain), (seen, plain)


SELECTORS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "dynamic_sampling": ({}, {"a", "b", "b2", "c", "d"}),
    "rorecomp": ({}, {"a", "d", "e"}),
    "d3s": ({"keep": 2}, {"a", "d", "e", "f"}),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_a_selector_learns_from_what_its_page_says(tmp_path: Path, name: str) -> None:
    arguments, kept = SELECTORS[name]
    seen = update(tmp_path, selectors=[name], arguments={name: arguments})
    assert set(seen.advantages) == kept
    assert right_over_wrong(replace(seen, moved=seen.moved | {"b2": 9.0, "c": -9.0}))


SLOTS = {
    "allocation": (
        *("dars", "dars_hardness", "dars_standardised", "even", "gdro_runs", "knapsack", "vade"),
        "xrpo_runs",
    ),
    "anchor_selector": ("by_variance", "uniform"),
    "episode_sampler": ("gdro", "shuffled"),
    "group_source": ("replay",),
    "hinter": ("seele",),
}


@pytest.mark.parametrize(("slot", "name"), [(slot, name) for slot in SLOTS for name in SLOTS[slot]])
def test_a_run_opens_what_chooses_its_rollouts(tmp_path: Path, slot: str, name: str) -> None:
    """Formulas and claims of these stand beside them; here their slot takes them and trains."""
    chosen: dict[str, Any] = {slot: name}
    seen = update(tmp_path, **chosen)
    assert right_over_wrong(seen)


def test_every_registered_technique_is_in_the_kit() -> None:
    kit = {
        *ESTIMATORS,
        *OBJECTIVES,
        *SELECTORS,
        *(name for names in SLOTS.values() for name in names),
    }
    assert kit == set(available("techniques"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"objectives": ["bapo"]}, "bapo needs importance_sampling_level = 'token'"),
        ({"objectives": ["gradient_gate"]}, "gradient_gate must be off, or num_iterations"),
        ({"selectors": ["d3s"]}, "trainer.arguments.d3s: .*keep"),
        ({"estimator": "gdpo", "credit_unit": "chunk"}, "gdpo needs credit_unit = 'session'"),
        ({"estimator": "rdpo", "credit_unit": "call"}, "rdpo needs credit_unit = 'session'"),
        ({"estimator": "skill1", "credit_unit": "call"}, "skill1 needs credit_unit = 'session'"),
    ],
)
def test_what_would_not_act_is_refused(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(tmp_path, **values)


def test_skill1_is_refused_where_the_policy_chooses_nothing() -> None:
    """In talks, in chains that are only written about, and for rewards that tell no skill."""
    trainer = {"trainer": {"estimator": "skill1"}}
    with pytest.raises(ConfigError, match=r"trainer\.estimator: skill1 needs tasks in which"):
        checked_run(trainer)
    world = {"kind": f"{__name__}:Choosing", "options": {"selects": True}}
    answering = {"agent": {"answering": "policy"}}
    assert checked_run(trainer | answering | {"environment": world})
    with pytest.raises(ConfigError, match=r"skill1 needs tasks .* options\.selects"):
        checked_run(trainer | answering | {"environment": world | {"options": {}}})
    key = GroupKey(branch="global", role=Role.MANAGER, episode_id="0/a")
    bare = CreditGroup(key=key, members=(Member(reward=1.0, response_ids=("a",)),) * 2)
    with pytest.raises(ConfigError, match="outcome, trend and best"):
        Skill1()(ScoredGroup(bare))


class Choosing:
    """An environment whose option `selects` lets the policy choose."""

    skills_by = "selects"


BONUS = 0.25


@pytest.mark.parametrize("name", ["zscore", "mean", "leave_one_out", "gdpo", "rdpo", "xrpo"])
def test_a_bonus_for_lessons_that_were_used_acts_and_turns_no_failure_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """SAGE's bonus in the groups that chains of tasks make: `a` and `b` solved as much, the
    lessons of `a` and `c` were used later, and `d` did nothing well.
    """
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "experiments"))
    from chain_credit import ChainExperience
    from chain_world import Link

    def groups(source: HandMade, *, bonus: float) -> Sequence[CreditGroup]:
        def link(*keys: str) -> Link:
            said = (ModelResponse(id=key, text=key, tokens=source.traces[key]) for key in keys)
            calls = tuple(Call(role=Role.MANAGER, step=StepRef(), response=each) for each in said)
            return Link(trial=Trial(id="trl_a", task="a"), before=EMPTY, after=EMPTY, calls=calls)

        links = [link("a"), link("b", "b2"), link("c"), link("d")]
        policy: Any = SimpleNamespace(version=0)
        chains = ChainExperience(policy=policy, agent=None, bonus=bonus)  # type: ignore[arg-type]
        used = [1.0, 0.0, 1.0, 0.0] if bonus else ()
        return [chains._compared("terminal", "0/a", 0, links, [1.0, 1.0, 0.5, 0.0], used)]

    paid = update(tmp_path / "paid", lambda source: groups(source, bonus=BONUS), estimator=name)
    plain = update(tmp_path / "plain", lambda source: groups(source, bonus=0.0), estimator=name)
    assert right_over_wrong(paid), paid
    assert paid.advantages["a"] > paid.advantages["b"] > paid.advantages["d"]
    assert plain.advantages["a"] == pytest.approx(plain.advantages["b"], abs=0.2)
    assert paid.advantages["a"] - paid.advantages["b"] > (
        plain.advantages["a"] - plain.advantages["b"] + 0.05
    )
    assert paid.advantages["c"] - paid.advantages["d"] > 0.05
    if name in ("zscore", "mean", "leave_one_out"):
        rewards = [1.0 + BONUS, 1.0, 0.5 + BONUS, 0.0]
        mean = sum(rewards) / 4
        told = {"mean": 1.0, "leave_one_out": 4 / 3}
        told["zscore"] = 1 / (sum((reward - mean) ** 2 for reward in rewards) / 3) ** 0.5
        found = [paid.advantages[key] for key in ("a", "b", "c", "d")]
        by_hand = [told[name] * (reward - mean) for reward in rewards]
        assert found == pytest.approx(by_hand, abs=1e-4)


def test_tasks_that_are_acted_in_honour_or_refuse_each_technique() -> None:
    """Slots of sessions and questions are refused by name, estimators by what they need."""
    refused = {name for name in ESTIMATORS if list(_estimator(name))}
    assert refused == {"gdpo", "rdpo", "sdar", "skill1"}
    assert {"allocation", "anchor_selector", "selectors", "group_source", "hinter"} <= MEANINGLESS


def test_the_kit_sees_a_technique_that_pulls_the_wrong_way(tmp_path: Path) -> None:
    """A fault put in on purpose: rewards counted as costs."""
    seen = update(tmp_path, estimator=f"{__name__}:backwards")
    assert not right_over_wrong(seen)


def backwards(rewards: Sequence[float]) -> list[float]:
    """The mean less the reward."""
    return [sum(rewards) / len(rewards) - reward for reward in rewards]
