"""Demonstrations of acting and of editing the workspace, for the warm start of a run.

Actions are those of each task's solution. Edits are those of the set's editor; a share
of both is drawn by chance (`guess_answers` of actions, `guess` of edits), so that
training is left to find out what is right. What is played is right but for edits that
are drawn, so that demonstrations also show other workspaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from environments.acting.play import OraclePlayer, Player, play_task
from environments.acting.task import ActingTask
from environments.demonstrations.ideal import Demonstration, demonstration_of
from memagent.core.exchange import ModelRequest, ModelResponse, Role
from memagent.core.snapshot import EMPTY
from train.rollouts.acting import PolicyPlayer
from train.settings.acting import ActingWorld
from train.settings.parts import RunSettings, WarmUpPart


@dataclass(kw_only=True)
class _Demonstrator:
    """Replies rightly in one task, and keeps what is demonstrated of each call."""

    name: str
    world: ActingWorld
    task: ActingTask
    plan: WarmUpPart
    rng: Random
    acted: int = 0
    shown: list[Demonstration] = field(default_factory=list[Demonstration])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the right reply to a request to act, or an edit to a request to edit."""
        if request.role is Role.ANSWERER:
            solution = self.task.solution()
            said = solution[self.acted] if self.acted < len(solution) else ""
            self.acted += 1
            guess = self.rng.random() < self.plan.guess_answers
            reply = self.rng.choice(self.task.actions) if guess else said
        else:
            reply = said = self._edit(request)
        self.shown.append(demonstration_of(self.name, request, reply))
        return ModelResponse(id=f"{self.name}/{len(self.shown)}", text=said)

    def _edit(self, request: ModelRequest) -> str:
        """Return the editor's edit, or one drawn by chance."""
        editor = self.world.tasks.editor
        if editor is not None and self.rng.random() >= self.plan.guess:
            return editor(request)
        places = re.findall(r"^\((\d+)\)", request.messages[-1].content, re.MULTILINE)
        return json.dumps({"folds": [self.rng.randrange(max(1, len(places)))]})


async def demonstrate_acting(settings: RunSettings) -> list[Demonstration]:
    """Play the demonstrations of the warm start."""
    world, plan = ActingWorld.of(settings), settings.warmup or WarmUpPart(episodes=20)
    shown: list[Demonstration] = []
    for name, task in world.stream("demonstrations", plan.episodes).items():
        rng = Random(f"{settings.seed}/{name}")
        model = _Demonstrator(name=name, world=world, task=task, plan=plan, rng=rng)
        player: Player = (
            PolicyPlayer(model=model) if settings.agent.acting == "policy" else OraclePlayer()
        )
        await play_task(task, player, agent=world.agent.at(EMPTY).with_model(model))
        shown += model.shown
    return shown


def words_of_tasks(settings: RunSettings, count: int) -> Sequence[str]:
    """Return texts and actions of the first tasks of training, for a tokenizer."""
    tasks = ActingWorld.of(settings).stream("train", count).values()
    return [line for task in tasks for line in (task.text, *task.actions)]
