"""Demonstrations for a warm start: the prompts of an agent with right replies.

`demonstrations` plays episodes with an `OracleModel` and returns each call as one chat
with the right reply, whatever was played: a student sees right replies to imperfect
states.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from environments.datasets.synthetic import Part, Synthetic
from environments.demonstrations.oracle import Mistakes, OracleModel
from environments.play.rollout import play
from environments.views import select_asks
from memagent.async_agent import AsyncAgent
from memagent.core.exchange import ModelRequest, Role
from memagent.core.records import Record
from memagent.core.snapshot import EMPTY

_ROLES = frozenset((Role.EXTRACTOR, Role.MANAGER))


class Demonstration(Record):
    """One call: the messages sent and the right reply."""

    episode_id: str
    role: Role
    messages: tuple[dict[str, str], ...]
    reply: str

    def chat(self) -> dict[str, Any]:
        """Return the call as one conversation, the form that fine-tuning takes."""
        return {"messages": [*self.messages, {"role": "assistant", "content": self.reply}]}


class DemonstrationOptions(Mistakes, total=False):
    """The episodes and the calls to demonstrate; `noise` is 0.1 by default."""

    split: Part
    """`train` by default."""
    indexes: Iterable[int]
    """Episodes of the split; the first ten by default."""
    roles: frozenset[Role]
    """Extractor and manager by default; answers are asked for with the answerer only."""
    asks: Sequence[str]
    """Kinds of questions asked; all by default."""


async def demonstrations(
    env: Synthetic, agent: AsyncAgent, **options: Unpack[DemonstrationOptions]
) -> list[Demonstration]:
    """Return right replies to the prompts that the agent's design sends over episodes.

    `noise` spoils the memory on the way, not what is demonstrated. `guess` is the share
    of the manager's ops that are demonstrated at random, for a policy that has yet to
    learn when to do what; `guess_answers` is the share of answers read off any memory
    shown, for one that has yet to learn which to believe.
    """
    split, roles = options.get("split", "train"), options.get("roles", _ROLES)
    student = replace(agent, keep_unreadable=True)  # a spoiled reply must not end an episode
    chats: list[Demonstration] = []
    for index in options.get("indexes", range(10)):
        episode = env.episode(split, index)
        truth = env.truth(episode)
        episode = select_asks(episode, truth, options.get("asks", ()))
        model = OracleModel(
            truth,
            episode.sessions,
            env.lexicon(split),
            noise=options.get("noise", 0.1),
            guess=options.get("guess", 0.0),
            guess_answers=options.get("guess_answers", 0.0),
            seed=options.get("seed", 0),
        )
        await play(student.at(EMPTY).with_model(model), episode, ask=Role.ANSWERER in roles)
        chats += [
            demonstration_of(episode.id, request, right)
            for request, right, _ in model.calls
            if request.role in roles
        ]
    return chats


def demonstration_of(episode_id: str, request: ModelRequest, reply: str) -> Demonstration:
    """Return the demonstration of a request with the right reply."""
    return Demonstration(
        episode_id=episode_id,
        role=request.role,
        messages=tuple(
            {"role": message.role, "content": message.content} for message in request.messages
        ),
        reply=reply,
    )


def write_demonstrations(path: Path, chats: Iterable[Demonstration]) -> int:
    """Write demonstrations as JSON Lines in chat form; return how many."""
    lines = [
        json.dumps(chat.chat() | {"role": chat.role.value}, ensure_ascii=False) for chat in chats
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def lines_of(chats: Iterable[Demonstration]) -> Iterator[str]:
    """Return all text of the demonstrations, for a tokenizer to be made from."""
    for chat in chats:
        yield from (message["content"] for message in chat.messages)
        yield chat.reply
