"""Learn what to write down after a task, by reruns from one memory: chains of tasks.

    python examples/experiments/chains.py --seeds 3 --into chains.json   # trains and compares
    python examples/experiments/chains.py --signs 6                      # whose sign is right

A chain is eight tasks of one procedure over new objects. Its procedure is hidden, and it
changes once, somewhere in the middle. A scripted player does again what a case says has
worked, else what no case shows as tried. After each task the policy of decisions (as many
weights as that of conversations, drawn by chance) is told the outcome and says one word:
keep the trial as a case, leave it out, write it over an older case, or drop one. The
memory goes on to the next task; every trial is journalled as in an app.

Three credits of a lesson, mixed by weights as in `[trainer] credit`:

    terminal   success over the whole chain, against the other chains of the group
    gain       success in the later tasks on forks with the lesson, less that without it
    local      the same task again from the memory that one chain had, several times;
               success in the later tasks on forks of what each rerun left

Forks say nothing, so `gain` and `local` cost no token beyond the reruns. The controls are
random rewards from the same weights, every trial kept (ExpRAG), cases by their value
(MemRL), and no memory. Tests are chains of other seeds, policies sample in them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any, Final

from environments.acting.play import CasePlayer, play_task
from environments.acting.procedures import MOVES, VERBS, ProcedureTask
from environments.acting.task import Observation
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.exchange import Message, ModelResponse, Role, Sampling
from memagent.core.ops import Delete, MemoryOp, Update
from memagent.core.records import MemoryItem, Scope, Session, Turn
from memagent.core.snapshot import EMPTY, MemorySnapshot
from memagent.core.trials import SUCCEEDED, Trial
from memagent.designs.base import Lesson, MemoryDesign, SlotContext
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.experience.mem_rl import DESIGN as MEM_RL
from memagent.designs.learned_policy import LEVELS, MEMORIES, PAIR, STATEMENT, read_reply
from memagent.designs.parts.lessons import case_of
from memagent.testing import FunctionModel
from train.credit.advantages import logo_advantages
from train.credit.groups import CreditGroup, GroupKey, Member
from train.rollouts.acting import ActingExperience
from train.rollouts.experience import Step
from train.sampling.policy import PolicyModel

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
TASKS: Final = 8
CHOICES: Final = 3
"""Moves that a procedure is made of; it takes two of them, in order."""
FORKS: Final = 8
"""Times that the later tasks are played on a fork, each with other draws."""
EXACT: Final = 200
"""Forks that tell the true effect of a lesson."""
CREDITS: Final[Mapping[str, Mapping[str, float]]] = {
    "terminal": {"terminal": 1.0},
    "gain": {"gain": 1.0, "terminal": 0.3},
    "local": {"terminal": 1.0, "local": 1.0},
}


# -- the world -------------------------------------------------------------------------


@dataclass
class ShortProcedure(ProcedureTask):
    """A procedure of two moves out of three."""

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that are possible."""
        return tuple(f"{move} {self.thing}" for move in MOVES[:CHOICES])

    def step(self, action: str) -> Observation:
        """Carry out an action; a wrong one ends the task."""
        self.taken.append(action)
        right = self.taken == list(self.solution()[: len(self.taken)])
        if right and len(self.taken) < len(self.moves):
            return Observation(text="It seems to work.")
        text = "It is done." if right else "It is spoilt."
        return Observation(text=text, reward=float(right), done=True, success=right)


def chain_of(seed: str) -> tuple[ShortProcedure, ...]:
    """Return a chain whose procedure changes once; equal seeds give equal chains."""
    draws = random.Random(f"chain {seed}")
    verb, first = draws.choice(VERBS), tuple(draws.sample(MOVES[:CHOICES], 2))
    second = first
    while second == first:
        second = tuple(draws.sample(MOVES[:CHOICES], 2))
    change = draws.choice((3, 4, 5))
    return tuple(
        ShortProcedure(verb, f"thing{seed}x{place}", first if place < change else second)
        for place in range(TASKS)
    )


# -- the lesson ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DecidingLearner:
    """Asks a model for one word about a trial that has ended: what becomes of it."""

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:
        """Return the op that the word means."""
        cases = sorted(
            (item for item in ctx.bank.state.active() if item.kind == "case"),
            key=lambda item: item.id,
        )[:MEMORIES]
        text = described(trial, cases)
        response = await ctx.call(Role.MANAGER, [Message(role="user", content=text)], call=0)
        decision, fresh = read_reply(response.text, range(len(cases))), case_of(trial)
        case = cases[decision.target] if decision.target is not None else None
        ops: list[MemoryOp] = [fresh]
        if decision.op in ("skip", "same"):
            ops = []
        elif decision.op == "update" and case is not None:
            ops = [
                Update(
                    id=case.id,
                    text=fresh.fact.text,
                    tags=fresh.tags,
                    source_turn_ids=trial.turn_ids,
                )
            ]
        elif decision.op == "delete" and case is not None:
            ops = [Delete(id=case.id, source_turn_ids=trial.turn_ids)]
        return Lesson(ops=tuple(ops))


def described(trial: Trial, cases: Sequence[MemoryItem]) -> str:
    """Return what is known of a trial and of each case, as the words of a decision."""
    good = trial.outcome is not None and trial.outcome.good
    moves = _moves(case_of(trial).fact.text)
    rows = [[float(good), len(moves) / 2]]
    for place, case in enumerate(cases):
        worked, own = SUCCEEDED in case.tags, _moves(case.text)
        rows.append(
            [
                float(worked),
                float(worked == good),
                float(own == moves),
                float(own[: len(moves)] == moves),
                float(moves[: len(own)] == own),
                float(case.text.split()[:1] == trial.task.split()[:1]),
                float(worked and not good and own == moves),
                place / MEMORIES,
                1.0,
            ]
        )
    assert all(len(row) == (PAIR if place else STATEMENT) for place, row in enumerate(rows))
    return " ".join(f"f{round(value * (LEVELS - 1))}" for row in rows for value in row)


def _moves(text: str) -> list[str]:
    return [line.split()[0] for line in text.split("\n")[1:]]


DESIGN: Final[MemoryDesign] = replace(EXP_RAG, name="deciding", learner=DecidingLearner())
NO_LEARNER: Final[MemoryDesign] = replace(EXP_RAG, name="no_learner", learner=None)
DESIGNS: Final[Mapping[str, MemoryDesign]] = {
    "no memory": NO_LEARNER,
    "exp_rag": EXP_RAG,
    "mem_rl": MEM_RL,
}
"""What a trained policy is compared with."""


def agent_of(design: MemoryDesign, *, path: str = ":memory:") -> AsyncAgent:
    """Return an agent whose own model is never asked; its clock stands still.

    A rerun then leaves the same memory to the bit, and memories that are alike have the
    same digest.
    """
    store = open_store(path=path, embedder="hashing", clock=lambda: NOON)
    return store.agent(Scope(user_id="chain"), model=FunctionModel(str), design=design)


# -- playing ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Link:
    """One task of a chain as it was played."""

    trial: Trial
    before: MemorySnapshot
    after: MemorySnapshot
    responses: tuple[ModelResponse, ...] = ()
    """What the policy said about it."""

    @property
    def success(self) -> float:
        """Whether the task was solved."""
        return float(self.trial.outcome is not None and self.trial.outcome.good)


async def linked(
    agent: AsyncAgent, chain: Sequence[ShortProcedure], place: int, memory: MemorySnapshot,
    *, model: Any = None, draw: str = "",
) -> Link:  # fmt: skip
    """Play one task from a memory, which stays as it is.

    The player's draws depend on the task and `draw` alone, so that a rerun from the same
    memory differs in what the policy says and in nothing else.
    """
    own = agent.at(memory) if model is None else agent.at(memory).with_model(model)
    task, said = deepcopy(chain[place]), len(getattr(model, "calls", ()))
    trial = await play_task(task, player_of(task, draw), agent=own)
    calls = getattr(model, "calls", ())[said:]
    return Link(
        trial=trial,
        before=memory,
        after=own.snapshot(),
        responses=tuple(call.response for call in calls),
    )


def player_of(task: ShortProcedure, draw: str) -> CasePlayer:
    """Return the scripted player, with draws of its own for each task."""
    player = CasePlayer(length=2)
    player.rng = random.Random(f"player {task.text} {draw}")
    return player


async def played_chain(
    agent: AsyncAgent, chain: Sequence[ShortProcedure], *, model: Any = None, draw: str = ""
) -> list[Link]:
    """Play a chain; the memory that a task leaves is where the next begins."""
    links: list[Link] = []
    memory = EMPTY
    for place in range(len(chain)):
        links.append(await linked(agent, chain, place, memory, model=model, draw=draw))
        memory = links[-1].after
    return links


@dataclass(kw_only=True)
class Worth:
    """What a memory is worth for the tasks to come: their success on forks, no lesson taken."""

    agent: AsyncAgent
    """Of a design without a learner."""
    forks: int = FORKS
    draws: str = "fork"
    """Names the player's draws on forks; worths of other names share none."""
    known: dict[tuple[str, int, str], float] = field(default_factory=dict)

    async def of(
        self, chain: Sequence[ShortProcedure], place: int, memory: MemorySnapshot
    ) -> float:
        """Return the mean success in the tasks from `place` on; 0 when there are none."""
        key = (chain[0].thing, place, memory.digest)
        if key not in self.known:
            played: list[float] = []
            own = self.agent.at(memory)
            for task in chain[place:]:
                recall = await own.recall(task.text, k=40)
                cases = [hit.item for hit in recall.hits if hit.item is not None]
                for fork in range(self.forks):
                    plan = player_of(task, f"{self.draws} {fork}").plan(task, cases)
                    played.append(float(tuple(plan) == task.solution()))
            self.known[key] = fmean(played) if played else 0.0
        return self.known[key]


# -- credit ----------------------------------------------------------------------------


@dataclass(kw_only=True)
class ChainExperience(ActingExperience):
    """Gathers steps from chains: groups of chains, and reruns of single tasks."""

    weights: Mapping[str, float]
    """Of the credits by name."""
    worth: Worth = field(default_factory=lambda: Worth(agent=agent_of(NO_LEARNER)))
    local_probability: float = 0.5
    reruns: int = 4
    control: str = ""

    async def gather(self, episodes: Sequence[Any], *, step: int) -> Step:
        """Play and credit the chains of one step."""
        self.worth.known.clear()
        groups: list[CreditGroup] = []
        links: list[Link] = []
        with self.policy.faults_raised():
            for episode in episodes:
                credited, played = await self._group(episode.id, step)
                groups += credited
                links += played
        credit = logo_advantages(groups, weights=dict(self.weights), tolerance=1e-6)  # type: ignore[arg-type]
        said = {each.id: each for link in links for each in link.responses}
        kept = {key: value for key, value in credit.advantages.items() if key in said}
        return Step(
            credit=replace(credit, advantages=kept),
            traces={key: said[key].tokens for key in kept},  # type: ignore[misc]
            roles=dict.fromkeys(kept, Role.MANAGER),
            groups=tuple(groups),
            rollouts=(),
            metrics={
                "reward/mean": fmean(link.success for link in links),
                "tokens/completion": float(len(said)),
            },
            seconds={"rollout": 0.0, "score": 0.0, "credit": 0.0},
        )

    async def _group(self, name: str, step: int) -> tuple[list[CreditGroup], list[Link]]:
        """Return the groups of one chain, and all that was played for them."""
        chain, key = chain_of(name), f"{self.seed}/{step}/{name}"
        draws = random.Random(key)
        members = range(self.members)
        chains = await asyncio.gather(
            *(self.chain(chain, f"{key}/{m}", str(step)) for m in members)
        )
        groups: list[CreditGroup] = []
        every = [link for links in chains for link in links]
        for place in range(len(chain)):
            here = [links[place] for links in chains]
            if "terminal" in self.weights:
                totals = [fmean(link.success for link in links) for links in chains]
                groups.append(self._compared("terminal", key, place, here, totals))
            if "gain" in self.weights:
                with_it = await self._worths(chain, place, [link.after for link in here])
                without = await self._worths(chain, place, [link.before for link in here])
                gains = [one - other for one, other in zip(with_it, without, strict=True)]
                groups.append(self._compared("gain", key, place, here, gains))
            if "local" in self.weights and draws.random() < self.local_probability:
                anchor = draws.choice(here)
                rerun = await self.rerun(chain, place, anchor.before, f"{key}/s{place}", str(step))
                every += rerun
                memories = [link.after for link in (*rerun, anchor)]
                values = await self._worths(chain, place, memories)
                groups.append(self._compared("local", key, place, [*rerun, anchor], values))
        return groups, every

    async def _worths(
        self, chain: Sequence[ShortProcedure], place: int, memories: Sequence[MemorySnapshot]
    ) -> list[float]:
        """Return what memories are worth after a task; zeros where rewards are random."""
        if self.control:
            return [0.0] * len(memories)
        return [await self.worth.of(chain, place + 1, memory) for memory in memories]

    async def chain(self, chain: Sequence[ShortProcedure], key: str, draw: str) -> list[Link]:
        """Play one chain with the draws of a key."""
        with self.policy.participant():
            return await played_chain(self.agent, chain, model=self.policy.bound(key), draw=draw)

    async def rerun(
        self, chain: Sequence[ShortProcedure], place: int, memory: MemorySnapshot, key: str,
        draw: str,
    ) -> list[Link]:  # fmt: skip
        """Play one task several times from one memory."""

        async def again(number: int) -> Link:
            with self.policy.participant():
                view = self.policy.bound(f"{key}/{number}")
                return await linked(self.agent, chain, place, memory, model=view, draw=draw)

        links = list(await asyncio.gather(*map(again, range(self.reruns))))
        assert {link.before.digest for link in links} == {memory.digest}
        return links

    def _compared(
        self, branch: Any, key: str, place: int, links: Sequence[Link], rewards: Sequence[float]
    ) -> CreditGroup:
        if self.control == "random_reward":
            draws = random.Random(f"{key}/{branch}/{place}")
            rewards = [draws.random() for _ in links]
        start = links[0].before.digest if branch == "local" else None
        members = tuple(
            Member(
                reward=reward,
                response_ids=tuple(each.id for each in link.responses),
                start=start,
                version=self.policy.version,
            )
            for link, reward in zip(links, rewards, strict=True)
        )
        group = GroupKey(
            branch=branch, role=Role.MANAGER, episode_id=key, session=place, start=start
        )
        return CreditGroup(key=group, members=members)


# -- training and tests ----------------------------------------------------------------


def trained(credit: str, seed: int, *, steps: int, control: str = "") -> tuple[PolicyModel, float]:
    """Return a policy trained from random weights, and its processor seconds."""
    from environments.records import Episode
    from train.run.config import LoGoGRPOConfig
    from train.run.trainer import LoGoGRPOTrainer
    from train.sampling.decisions import first_decisions

    model, tokenizer = first_decisions(0, seed=seed)
    began = process_time()
    episodes = [
        Episode(
            id=name,
            sessions=(Session(id=name, turns=(Turn(id=name, speaker="task", text="a chain"),)),),
        )
        for name in (f"train{number}" for number in range(400))
    ]
    with tempfile.TemporaryDirectory() as folder:
        args = LoGoGRPOConfig(
            output_dir=folder, num_generations=8, per_device_train_batch_size=4,
            steps_per_generation=4, gradient_accumulation_steps=4, num_iterations=1,
            max_steps=max(1, steps), max_completion_length=1, beta=0.0, entropy_coef=0.0,
            learning_rate=1e-2, report_to=[], logging_steps=50, disable_tqdm=True, bf16=False,
            use_cpu=True, save_strategy="no", gradient_checkpointing=False, seed=seed,
            trace=False, batch_width=256,
        )  # fmt: skip
        trainer = LoGoGRPOTrainer(
            model,
            args=args,
            episodes=episodes,
            experience=lambda policy: ChainExperience(
                policy=policy,
                agent=agent_of(DESIGN),
                tasks={},
                player=CasePlayer,  # type: ignore[arg-type]
                members=8,
                seed=seed,
                weights=CREDITS[credit],
                control=control,
            ),
            processing_class=tokenizer,
        )
        if steps:
            trainer.train()
    trainer.model.eval()  # type: ignore[union-attr]
    return trainer.policy, process_time() - began


async def successes_of(
    agent: AsyncAgent, *, seed: int, chains: int, policy: PolicyModel | None = None
) -> list[list[float]]:
    """Return the success by task over a seed's own test chains (chains, tasks)."""

    async def one(number: int) -> list[float]:
        chain = chain_of(f"test{seed}x{number}")
        if policy is None:
            links = await played_chain(agent, chain, draw="test")
        else:
            with policy.participant():
                view = policy.bound(f"test/{number}")
                links = await played_chain(agent, chain, model=view, draw="test")
        return [link.success for link in links]

    return await asyncio.gather(*map(one, range(chains)))


def figures(successes: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the mean success of whole chains and of their last third."""
    late = -(-TASKS // 3)
    return {
        "success": round(fmean(map(fmean, successes)), 3),
        "last third": round(fmean(fmean(each[-late:]) for each in successes), 3),
    }


def random_policy(seed: int) -> PolicyModel:
    """Return a policy of decisions with random weights."""
    from train.sampling.decisions import first_decisions
    from train.sampling.generation import TransformersEngine

    model, tokenizer = first_decisions(0, seed=seed)
    eos = [tokenizer.eos_token_id]
    engine = TransformersEngine(model, eos_ids=eos, pad_id=tokenizer.pad_token_id)
    sampling = Sampling(temperature=1.0, max_tokens=1)
    return PolicyModel(engine, tokenizer, width=256, sampling=sampling)


async def signs(chains: int, *, seed: int = 0) -> dict[str, float]:
    """Return how often the sign of a credit is that of the lesson's true effect.

    The policy has random weights. The true effect of a rerun's lesson is what it leaves for
    the later tasks over many forks, less the mean of the reruns. These forks have draws of
    their own.
    """
    policy = random_policy(seed)
    experience = ChainExperience(
        policy=policy, agent=agent_of(DESIGN), tasks={}, player=CasePlayer,  # type: ignore[arg-type]
        weights={}, reruns=8, seed=seed,
    )  # fmt: skip
    exact = Worth(agent=experience.worth.agent, forks=EXACT, draws="truth")
    hits: dict[str, list[bool]] = {"local": [], "global": []}
    for number in range(chains):
        chain = chain_of(f"sign{number}")
        whole = await asyncio.gather(
            *(experience.chain(chain, f"sign/{number}/{m}", "0") for m in range(8))
        )
        totals = [fmean(link.success for link in links) for links in whole]
        for place in range(TASKS - 1):
            links = [links[place] for links in whole]
            for member, link in enumerate(links):
                rerun = await experience.rerun(
                    chain, place, link.before, f"sign/{number}/{member}/{place}", "0"
                )
                every = [link, *rerun]
                true = [await exact.of(chain, place + 1, each.after) for each in every]
                local = [await experience.worth.of(chain, place + 1, each.after) for each in every]
                effect = true[0] - fmean(true)
                if abs(effect) < 0.02:
                    continue
                hits["local"].append((local[0] > fmean(local)) == (effect > 0))
                hits["global"].append((totals[member] > fmean(totals)) == (effect > 0))
    return {name: round(fmean(told), 3) for name, told in hits.items()} | {
        "lessons": float(len(hits["local"]))
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Train, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--test", type=int, default=60)
    parser.add_argument("--credits", default=",".join(CREDITS))
    parser.add_argument("--signs", type=int, default=0, help="chains; nothing is trained then")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args(argv)
    if options.signs:
        told: Any = asyncio.run(signs(options.signs))
    else:
        told = compared(options)
    print(json.dumps(told, indent=1))
    if options.into is not None:
        options.into.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all arms by seed, and their differences.

    Goes on where an earlier call with the same `--into` stopped. Raises `ValueError` when
    that file has other settings.
    """
    kept = options.into is not None and options.into.is_file()
    settings = {"steps": options.steps, "test": options.test}
    told: dict[str, Any] = json.loads(options.into.read_text("utf-8")) if kept else {}
    if told.setdefault("settings", settings) != settings:
        raise ValueError(f"{options.into} has other settings: {told['settings']}")
    arms: dict[str, list[Any]] = told.setdefault("arms", {})
    policies = ["untrained", *options.credits.split(","), "random_reward"]
    for seed in range(options.seeds):
        for name in (*DESIGNS, *policies):
            lines = arms.setdefault(name, [])
            if len(lines) > seed:
                continue
            lines.append(tested(name, seed, options))
            print(name, seed, lines[-1], file=sys.stderr, flush=True)
            if options.into is not None:
                options.into.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told | {"summary": summary_of(arms)}


def tested(name: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the figures of one arm with one seed."""
    if name in DESIGNS:
        agent = agent_of(DESIGNS[name])
        return figures(asyncio.run(successes_of(agent, seed=seed, chains=options.test)))
    credit, steps = (name, options.steps) if name in CREDITS else ("gain", options.steps)
    control = name if name == "random_reward" else ""
    policy, seconds = trained(
        credit, seed, steps=0 if name == "untrained" else steps, control=control
    )
    successes = asyncio.run(
        successes_of(agent_of(DESIGN), seed=seed, chains=options.test, policy=policy)
    )
    return figures(successes) | {"seconds": round(seconds)}


def summary_of(arms: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return the means by arm and paired differences over seeds, with 95 % intervals."""
    from train.run.plans import bootstrap

    def interval(values: Sequence[float]) -> dict[str, Any]:
        edges = [round(edge, 3) for edge in bootstrap(values)]
        return {"mean": round(fmean(values), 3), "interval": edges}

    measures = ("success", "last third")
    trained_by = [name for name in CREDITS if name in arms]
    apart = [(one, other) for one in trained_by for other in arms if other not in trained_by]
    apart += [(one, other) for one in trained_by for other in trained_by if one > other]
    apart.append(("random_reward", "untrained"))
    return {
        "seeds": min(map(len, arms.values())),
        "arms": {
            name: {each: interval([line[each] for line in lines]) for each in measures}
            for name, lines in arms.items()
        },
        "last third": {
            f"{one} - {other}": interval(
                [
                    a["last third"] - b["last third"]
                    for a, b in zip(arms[one], arms[other], strict=True)
                ]
            )
            for one, other in apart
        },
    }


if __name__ == "__main__":
    sys.exit(main())
