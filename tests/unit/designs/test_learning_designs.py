"""The claims of the designs that learn from trials, each with a control that must fail."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from random import Random

import pytest
from learning_kit import NOON, agent_of, noon

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Hit
from memagent.core.errors import InputError
from memagent.core.exchange import ModelRequest
from memagent.core.ops import Add, OpLimits, RejectReason, Update
from memagent.core.records import Fact, MemoryItem
from memagent.core.snapshot import Commit
from memagent.core.trials import SUCCEEDED, Credit, Trial, TrialEnded, TrialStep
from memagent.designs.base import Lesson, MemoryDesign, SlotContext
from memagent.designs.experience import ace, case_bank, exp_rag, mem_rl, mistake_notebook
from memagent.designs.parts.lessons import CaseScorer, ValueRetriever, no_worse
from memagent.embed.static import HashEmbedder, StaticEmbedder
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.protocols import Embedder
from memagent.state.effects import tokenize
from memagent.testing import FunctionModel


def actions_of(case: MemoryItem) -> list[str]:
    """The actions of a case, in order."""
    return case.text.split("\n")[1:]


def agent_with(design: MemoryDesign, model: FunctionModel | None = None) -> AsyncAgent:
    bank = MemoryBank(embedder=HashEmbedder(dim=64), clock=noon)
    return AsyncAgent(design=design, bank=bank, clock=noon, model=model)


# -- MemRL -----------------------------------------------------------------------------


async def doors(agent: AsyncAgent, tasks: int, *, begin: int = 0) -> list[bool]:
    """One helpful case among nine that look more alike; the best hit's action is done."""
    won: list[bool] = []
    for number in range(begin, begin + tasks):
        recall = await agent.recall(f"open the steel cabinet of room {number}", k=1)
        item = recall.hits[0].item
        assert item is not None
        won.append("brass" in actions_of(item)[-1])
        steps = (TrialStep(action=actions_of(item)[-1], used=(item.id,)),)
        await agent.report(recall, 1.0 if won[-1] else -1.0, steps=steps)
    return won


async def cabinets(design: MemoryDesign) -> AsyncAgent:
    agent = agent_with(design)
    alike = [
        " ".join(("open the steel cabinet of room now".split())[: 4 + n % 4]) for n in range(9)
    ]
    texts = [f"{task}\ntake the iron key {n}" for n, task in enumerate(alike)]
    await agent.memory.add_many([*texts, "open the cabinet\ntake the brass key"], kind="case")
    return agent


async def test_mem_rl_finds_the_helpful_case_where_similarity_does_not() -> None:
    learned = await doors(await cabinets(mem_rl.DESIGN), 60)
    assert sum(learned[-20:]) >= 18
    alone = replace(mem_rl.DESIGN, retriever=ValueRetriever(weight=0.0))
    assert sum(await doors(await cabinets(alone), 60)) <= 0.35 * 60


@dataclass(frozen=True, kw_only=True)
class Look:
    """Harmful cases that look like the task, and one helpful case that looks less so."""

    task: str
    helpful: str
    harmful: int = 9
    embedder: Embedder = field(default_factory=StaticEmbedder)
    gated: bool = True
    """Whether a question about something else finds nothing."""

    async def won(self, design: MemoryDesign, tasks: int) -> list[bool]:
        """Play tasks over new objects and return which were done rightly."""
        draws = Random(0)
        agent = AsyncAgent(design=design, bank=MemoryBank(embedder=self.embedder))
        cases = [f"{self.task.format(draws.randrange(900))}\ntake {n}" for n in range(self.harmful)]
        cases.append(f"{self.helpful}\ntake brass")
        draws.shuffle(cases)
        await agent.memory.add_many(cases, kind="case")
        won: list[bool] = []
        for _ in range(tasks):
            recall = await agent.recall(self.task.format(draws.randrange(900)), k=1)
            item = recall.hits[0].item
            assert item is not None
            action = actions_of(item)[-1]
            won.append(action == "take brass")
            reward = 1.0 if won[-1] else -1.0
            await agent.report(recall, reward, steps=(TrialStep(action=action, used=(item.id,)),))
        other = (await agent.recall("how warm will it get tomorrow", k=5)).hits
        assert bool(other) != self.gated
        return won


LOOKS = {
    "few": Look(
        task="put the mug {} on the shelf",
        helpful="put a clean mug away on a shelf",
        harmful=4,
        embedder=HashEmbedder(dim=256),
    ),
    "nine": Look(
        task="open the steel cabinet of room {}",
        helpful="open the cabinet",
        embedder=HashEmbedder(dim=256),
    ),
    "thirty": Look(
        task="open the steel cabinet of room {}",
        helpful="open some old cabinet",
        harmful=30,
        embedder=HashEmbedder(dim=256),
    ),
    "other words": Look(
        task="open the steel cabinet of room {}", helpful="unlock a metal cupboard"
    ),
    "shorter": Look(
        task="order red running shoes number {} for ana", helpful="buy shoes", harmful=15
    ),
    "longer": Look(
        task="restart the billing service on host {} after the nightly deploy fails",
        helpful="restart a service whose deploy failed",
    ),
}


@pytest.mark.parametrize("name", LOOKS)
async def test_mem_rl_finds_what_helps_in_six_conditions(name: str) -> None:
    look = LOOKS[name]
    assert sum((await look.won(mem_rl.DESIGN, 80))[-20:]) >= 18
    alone = replace(mem_rl.DESIGN, retriever=ValueRetriever(weight=0.0))
    assert sum(await look.won(alone, 20)) == 0, "the control"


@pytest.mark.parametrize("name", ["nine", "thirty"])
async def test_the_case_bank_does_not_bury_the_helpful_case_under_failures(name: str) -> None:
    """Its pool holds all cases of a long use, so what helps stays among the candidates."""
    look = replace(LOOKS[name], gated=False)
    assert sum((await look.won(case_bank.DESIGN, 160))[-40:]) >= 32
    narrow = replace(case_bank.DESIGN, retriever=case_bank.CaseRetriever(pool=10))
    assert sum((await look.won(narrow, 160))[-40:]) <= 8, "the control"


async def test_mem_rl_keeps_nothing_outside_the_journal(tmp_path: Path) -> None:
    """A fork, a replay and an import rank as the memory itself; a new design object too."""
    agent = await cabinets(mem_rl.DESIGN)
    await doors(agent, 20)
    fresh = replace(mem_rl.DESIGN, retriever=ValueRetriever())
    await agent.memory.export(tmp_path / "x.jsonl")
    imported = agent_with(fresh)
    await imported.memory.import_(tmp_path / "x.jsonl")
    rankings = [
        [hit.id for hit in (await other.recall("open the steel cabinet of room 99", k=5)).hits]
        for other in (agent.at(agent.snapshot()), replace(agent, design=fresh), imported)
    ]
    assert rankings[0] == rankings[1] == rankings[2]
    untaught = await cabinets(fresh)
    assert "iron" in (await untaught.recall("open the steel cabinet of room 98", k=1)).hits[0].text
    assert "brass" in (await agent.recall("open the steel cabinet of room 98", k=1)).hits[0].text


async def test_mem_rl_keeps_a_failure_and_ranks_it_below_a_success_that_looks_alike() -> None:
    agent = agent_with(replace(mem_rl.DESIGN, retriever=ValueRetriever(weight=0.9)))
    for number, reward in enumerate((0.0, 1.0)):
        steps = (TrialStep(action=f"push {number}"),)
        recall = await agent.recall(f"open the wooden gate of the garden {number}", k=1)
        await agent.report(recall, reward, steps=steps, credit={})
    alone = replace(mem_rl.DESIGN, retriever=ValueRetriever(weight=0.0))
    task = "open the wooden gate of the garden 0"
    hits = (await agent.recall(task)).hits
    assert [hit.text.split()[-1] for hit in hits] == ["1", "0"]
    plain = (await replace(agent, design=alone).recall(task)).hits
    assert [hit.text.split()[-1] for hit in plain] == ["0", "1"], "the control"


# -- ExpRAG and ReMem ------------------------------------------------------------------

VERBS = ("polish", "seal", "mend", "wrap")
MOVES = ("rub", "rinse", "heat", "press")


@dataclass
class Stream:
    """Tasks that share a hidden procedure for each verb, over objects that are always new."""

    seed: int

    def __post_init__(self) -> None:
        rng = Random(self.seed)
        orders = list(permutations(MOVES, 3))
        self.procedures = {verb: rng.choice(orders) for verb in VERBS}
        self.rng = rng

    def task(self, number: int) -> tuple[str, str, str]:
        """Return the task's text, its verb and its object."""
        verb = VERBS[number % len(VERBS)]
        thing = f"thing{self.seed}x{number}"
        return f"{verb} the {thing}", verb, thing

    def plan(self, verb: str, thing: str, hits: Sequence[Hit]) -> list[str]:
        """Do again what worked for the verb, else something that was not tried yet."""
        cases = [hit.item for hit in hits if hit.item and hit.item.text.startswith(f"{verb} ")]
        tried = [tuple(action.split()[0] for action in actions_of(case)) for case in cases]
        for case, moves in zip(cases, tried, strict=True):
            if SUCCEEDED in case.tags:
                return [f"{move} {thing}" for move in moves]
        fresh = [moves for moves in permutations(MOVES, 3) if moves not in tried]
        return [f"{move} {thing}" for move in self.rng.choice(fresh)]

    def good(self, verb: str, actions: Sequence[str]) -> bool:
        return tuple(action.split()[0] for action in actions) == self.procedures[verb]


async def played(stream: Stream, agent: AsyncAgent, tasks: int, *, k: int) -> list[bool]:
    won: list[bool] = []
    for number in range(tasks):
        task, verb, thing = stream.task(number)
        recall = await agent.recall(task, k=k)
        actions = stream.plan(verb, thing, recall.hits)
        said = {turn.said for s in agent.bank.state.sessions.values() for turn in s.turns}
        assert not said & set(actions), "the answer stands verbatim in no past text"
        won.append(stream.good(verb, actions))
        steps = tuple(TrialStep(action=action, observation="done") for action in actions)
        await agent.report(recall, float(won[-1]), steps=steps)
    return won


def rise(won: Sequence[bool]) -> float:
    """Success in the last third less success in the first."""
    third = len(won) // 3
    return (sum(won[-third:]) - sum(won[:third])) / third


async def test_exp_rag_rises_over_a_stream_and_no_memory_does_not() -> None:
    won = await played(Stream(1), agent_with(exp_rag.DESIGN), 120, k=40)
    assert rise(won) >= 0.4
    forgetful = replace(exp_rag.DESIGN, learner=None)
    assert abs(rise(await played(Stream(1), agent_with(forgetful), 120, k=40))) <= 0.2


async def misled(design: MemoryDesign, model: FunctionModel | None) -> list[bool]:
    """A stream of one verb whose first case claims success for the wrong actions."""
    stream, agent = Stream(2), agent_with(design, model)
    wrong = next(moves for moves in permutations(MOVES, 3) if moves != stream.procedures["seal"])
    steps = tuple(TrialStep(action=f"{move} planted", observation="done") for move in wrong)
    planted = replace(agent, design=exp_rag.DESIGN)
    await planted.report(await planted.recall("seal the planted"), 1.0, steps=steps)
    won: list[bool] = []
    for number in range(30):
        recall = await agent.recall(f"seal the jar{number}", k=40)
        actions = stream.plan("seal", f"jar{number}", recall.hits)
        won.append(stream.good("seal", actions))
        did = tuple(TrialStep(action=action, observation="done") for action in actions)
        await agent.report(recall, float(won[-1]), steps=did)
    return won


def pruning(request: ModelRequest) -> str:
    """Delete, after a failure, the shown cases with exactly the moves that failed."""
    prompt = request.messages[-1].content
    moves = re.findall(r"did: (\w+)", prompt)
    shown = re.findall(r"\[(mem_\w+)\] (.+)", prompt)
    pattern = r"\b" + r" \w+ ".join(moves) + r" \w+"
    ops = [{"op": "DELETE", "id": id} for id, text in shown if re.search(pattern, text)]
    return json.dumps({"operations": ops if "outcome: failed" in prompt else []})


async def test_re_mem_prunes_a_planted_wrong_case_and_exp_rag_follows_it() -> None:
    assert sum(await misled(exp_rag.DESIGN, None)) == 0
    won = await misled(exp_rag.RE_MEM, FunctionModel(pruning))
    assert sum(won[-3:]) == 3


# -- ACE -------------------------------------------------------------------------------


def reflecting(request: ModelRequest) -> str:
    """One new rule for each task, and tags on the first two rules shown."""
    prompt = request.messages[-1].content
    number = re.findall(r"task: job (\d+)", prompt)[0]
    shown = re.findall(r"\[(mem_\w+)\]", prompt)
    tags = [{"id": id, "tag": tag} for id, tag in zip(shown, ("helpful", "harmful"), strict=False)]
    return json.dumps({"notes": [{"text": f"rule {number}: check the valve {number}"}, *tags]})


@dataclass(frozen=True)
class Rewriter:
    """The control: one text that is written anew each time and loses a fifth of its rules."""

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:
        number = trial.task.split()[1]
        old = next((item for item in ctx.bank.state.active() if item.kind == "bullet"), None)
        if old is None:
            fact = Fact(text=f"rule {number}", kind="bullet", source_turn_ids=trial.turn_ids)
            return Lesson(ops=(Add(fact=fact),))
        rng = Random(number)
        kept = [rule for rule in old.text.split("; ") if rng.random() > 0.2]
        text = "; ".join([*kept, f"rule {number}"])
        return Lesson(ops=(Update(id=old.id, text=text, source_turn_ids=trial.turn_ids),))


async def jobs(agent: AsyncAgent, count: int) -> None:
    for number in range(count):
        await agent.report(await agent.recall(f"job {number}", k=3), 1.0)


async def test_ace_loses_no_rule_in_two_hundred_deltas_and_counting_writes_no_version() -> None:
    agent = agent_with(ace.DESIGN, FunctionModel(reflecting))
    await jobs(agent, 200)
    items = await agent.memory.get_all()
    rules = {item.text.split(":")[0] for item in items}
    assert rules == {f"rule {number}" for number in range(200)}
    assert {item.version for item in items} == {1}
    counted: dict[tuple[str, str], float] = {}
    async for row in agent.bank.rows():
        if isinstance(row.entry, TrialEnded):
            for share in row.entry.trial.credit:
                counted[share.id, "helpful"] = counted.get((share.id, "helpful"), 0) + 1
    stats = agent.bank.state.stats
    assert {id: each.counters.get("helpful", 0) for id, each in stats.items()} == {
        id: count for (id, _), count in counted.items()
    }
    tagged = sum(each.counters.get("tagged_helpful", 0) for each in stats.values())
    assert tagged == 199
    harmful = [id for id, s in stats.items() if s.counters.get("tagged_harmful", 0) > s.counters.get("tagged_helpful", 0)]  # fmt: skip
    commit = await agent.tidy()
    assert commit is not None and {change.id for change in commit.changes} == set(harmful)


async def test_a_rewriter_that_loses_a_fifth_keeps_less_than_half() -> None:
    design = replace(ace.DESIGN, learner=Rewriter(), limits=OpLimits(max_text_chars=9_000))
    agent = agent_with(design)
    await jobs(agent, 60)
    (item,) = await agent.memory.get_all()
    assert len(item.text.split("; ")) < 30


async def test_ace_keeps_a_malformed_reflection_as_data() -> None:
    agent = agent_with(ace.DESIGN, FunctionModel(lambda _: '{"notes": [{"id": "x", "tag": "?"}]}'))
    learned = await agent.report(await agent.recall("job 1"), 1.0)
    assert learned.lesson is not None and learned.lesson.rejected
    assert learned.lesson.rejected[0].reason is RejectReason.INVALID_FIELDS


# -- Mistake Notebook ------------------------------------------------------------------

HELD_OUT = ("convert 5 m to km", "convert 9 m to km")
EVALUATED = ("convert 7 m to km", "convert 3 m to km")


async def solved(memory: Memory, task: str) -> float:
    notes = [item.text for item in await memory.get_all() if item.kind == "note"]
    return float(any("divide" in note for note in notes) and not any("ten" in n for n in notes))


def noting(text: str) -> FunctionModel:
    reply = json.dumps({"notes": [{"subject": "units", "text": text}]})
    return FunctionModel(lambda _: reply)


async def test_a_note_from_failures_is_kept_only_if_held_out_tasks_get_no_worse() -> None:
    good, bad = "To get km from m, divide by 1000.", "Always multiply by ten."
    agent = agent_with(mistake_notebook.DESIGN, noting(good))
    accept = no_worse(HELD_OUT, solved, evaluation=EVALUATED)

    async def score() -> float:
        return sum([await solved(agent.memory, task) for task in EVALUATED]) / len(EVALUATED)

    async def fail(number: int) -> Commit | None:
        recall = await agent.recall(f"convert {number} mm to m")
        return (await agent.report(recall, 0.0, accept=accept)).lesson

    scores = [await score()]
    for number in range(3):
        await fail(number)
        scores.append(await score())
    assert scores == [0.0, 0.0, 0.0, 1.0], "a batch of three failures makes one note"
    agent = agent.with_model(noting(bad))
    digest_of_items = sorted((item.id, item.version) for item in await agent.memory.get_all())
    for number in range(3, 6):
        lesson = await fail(number)
        scores.append(await score())
    assert lesson is not None and not lesson.changes
    assert [bad_op.reason for bad_op in lesson.rejected] == [RejectReason.NOT_ACCEPTED]
    before = await agent.bank.log.state_at(agent.bank.state.seq - 1)
    assert before.digest() == agent.bank.state.digest()
    assert digest_of_items == sorted((i.id, i.version) for i in await agent.memory.get_all())
    assert scores == sorted(scores), "no batch lowers the score"
    ungated = agent.with_model(noting(bad))
    for number in range(6, 9):
        await ungated.report(await ungated.recall(f"convert {number} mm to m"), 0.0)
    assert await score() == 0.0, "the control: without the gate the poison is taken"


@pytest.mark.parametrize("ties", [True, False])
async def test_a_note_that_changes_no_score_is_kept_only_where_ties_are(ties: bool) -> None:
    agent = agent_with(mistake_notebook.DESIGN, noting("Units are written in small letters."))
    accept = no_worse(HELD_OUT, solved, evaluation=EVALUATED, ties=ties)
    for number in range(3):
        await agent.report(await agent.recall(f"convert {number} mm to m"), 0.0, accept=accept)
    assert len([item for item in await agent.memory.get_all() if item.kind == "note"]) == ties


def test_lessons_are_never_accepted_on_tasks_of_the_evaluation() -> None:
    with pytest.raises(InputError, match="evaluated on"):
        no_worse([*HELD_OUT, EVALUATED[0]], solved, evaluation=EVALUATED)


# -- the case bank ---------------------------------------------------------------------

OPPOSITE = {"red": "green", "green": "blue", "blue": "amber", "amber": "red"}


def auc(scores: Sequence[float], good: Sequence[bool]) -> float:
    """The chance that a good pair scores higher than a bad one."""
    wins = [
        (a > b) + 0.5 * (a == b)
        for a, x in zip(scores, good, strict=True)
        if x
        for b, y in zip(scores, good, strict=True)
        if not y
    ]
    return sum(wins) / len(wins)


async def scored(seed: int, *, honest: bool = True) -> tuple[float, float]:
    """AUC of the learned scorer and of word overlap, on tasks with unseen objects."""
    rng, agent = Random(seed), agent_of()
    texts = {tone: f"fix the {tone} lamp\ntreat it with {tone} oil" for tone in OPPOSITE}
    items = {tone: await agent.memory.add(text, kind="case") for tone, text in texts.items()}
    trials: list[Trial] = []
    for number in range(200):
        tone, used = rng.choice(list(OPPOSITE)), rng.choice(list(OPPOSITE))
        good = OPPOSITE[tone] == used if honest else rng.random() < 0.25
        share = Credit(id=items[used].id, reward=1.0 if good else -1.0)
        trials.append(
            Trial(
                id=f"trl_{number}", task=f"fix the {tone} thing{number}", credit=(share,), at=NOON
            )
        )
    scorer = CaseScorer(trials, agent.bank.state.items)
    pairs = [(tone, used, f"fix the {tone} new{n}") for n, tone in enumerate(OPPOSITE) for used in OPPOSITE]  # fmt: skip
    good = [OPPOSITE[tone] == used for tone, used, _ in pairs]
    learned = [(await scorer.score(task, [texts[used]]))[0] for _, used, task in pairs]
    overlap = [
        float(len(set(tokenize(task)) & set(tokenize(texts[used])))) for _, used, task in pairs
    ]
    return auc(learned, good), auc(overlap, good)


async def test_the_case_scorer_learns_where_word_overlap_points_the_wrong_way() -> None:
    for seed in range(3):
        learned, overlap = await scored(seed)
        assert learned >= 0.9 and overlap < 0.5
    chance = [(await scored(seed, honest=False))[0] for seed in range(3)]
    assert sum(chance) / 3 < 0.8, "the control: random rewards teach nothing"


async def test_the_case_bank_ranks_by_what_earned() -> None:
    agent = agent_with(case_bank.DESIGN)
    right = await agent.memory.add("mend the pipe\nuse tape", kind="case")
    wrong = await agent.memory.add("mend the pipe in the cellar\nuse glue", kind="case")
    task = "mend the pipe in the cellar"
    assert (await agent.recall(task, k=1)).hits[0].id == wrong.id
    for number in range(8):
        recall = await agent.recall(f"mend the pipe in room {number}", k=5)
        await agent.report(recall, 0.0, credit={right.id: 1.0, wrong.id: -1.0}, success=False)
    assert (await agent.recall(task, k=1)).hits[0].id == right.id
