"""Fit the heads of the design `learned` to the decisions of a larger model.

The model reads each statement of generated dialogues, with the memories that may be
about it, and replies with one op. What it decided is the right decision, whether the
truth agrees or not; the report tells both. A statement that it replies to in no
readable way is left out and counted.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from memagent.build import AgentSettings, build_model
from memagent.core.errors import ConfigError
from memagent.core.exchange import Message, ModelRequest, Role, Sampling, StepRef
from memagent.designs.parts.learned.pairs import Side
from memagent.designs.parts.learned.reading import shipped_reader
from memagent.protocols import ChatModel
from train.learned.adapt.heads import (
    ADD,
    SKIP,
    DecisionCase,
    Heads,
    agreement,
    decision_case,
    fit_heads,
    save_heads,
    split_held_out,
)
from train.learned.dialogues import labelled_episodes
from train.learned.pairs import StatementCase, heard_statements

MEMORIES: Final = 6
"""Most memories that the model reads beside a statement."""
LEAST: Final = 12
"""Fewest readable decisions that heads are fitted to."""
_FAR: Final = 5_000_000
_REPLY: Final = re.compile(r"\b(ADD|SKIP|SAME|UPDATE|DELETE)\b[\s:#\[(]*(\d+)?", re.IGNORECASE)
_PROMPT: Final = """You keep a memory of what people say. Decide what to do with a new statement.
Reply with one line and nothing else:
ADD - it is new and worth keeping
SKIP - it is not meant, not known to be true, or not worth keeping
SAME n - memory n says it already
UPDATE n - memory n is no longer right; the statement takes its place
DELETE n - the statement says that memory n is over or was never so

Memories:
{memories}

New statement by {speaker}: {text}
Op:"""


@dataclass(frozen=True, slots=True)
class _Decided:
    case: DecisionCase
    truth: int
    """The answer that the dialogue's labels give."""


def distilled(
    model: str, out: Path, *, base_url: str | None, episodes: int, seed: int
) -> dict[str, Any]:
    """Fit heads to the decisions of a model that is named. Raises `ConfigError`."""
    teacher = build_model(model, AgentSettings(), base_url=base_url)
    if teacher is None:
        raise ConfigError("name the model to learn from, such as --model openai/gpt-4o-mini")
    return asyncio.run(distil(teacher, out, episodes=episodes, seed=seed))


async def distil(model: ChatModel, out: Path, *, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Ask the model about the statements of so many dialogues, fit heads and write them.

    Every third decision is held out. Raises `ConfigError` where too few replies could be
    read.
    """
    decided, replies = await _asked(model, episodes, seed=seed)
    if len(decided) < LEAST:
        raise ConfigError(
            f"{len(decided)} of {replies.total()} replies could be read "
            f"(ops: {dict(replies)}); at least {LEAST} are needed"
        )
    kept, held = split_held_out(decided)
    heads = fit_heads([one.case for one in kept], seed=seed)
    save_heads(out, heads)
    return {
        "decisions": len(decided),
        "unreadable": replies["unreadable"],
        "ops": dict(sorted(replies.items())),
        "held_out": {
            "decisions": len(held),
            "teacher_right": _share([one.case.answer == one.truth for one in held]),
            "agrees_before": round(agreement(Heads(), [one.case for one in held]), 3),
            "agrees_after": round(agreement(heads, [one.case for one in held]), 3),
            "right_before": round(agreement(Heads(), _by_truth(held)), 3),
            "right_after": round(agreement(heads, _by_truth(held)), 3),
        },
        "heads": str(out),
    }


async def _asked(
    model: ChatModel, episodes: int, *, seed: int
) -> tuple[list[_Decided], Counter[str]]:
    reader, rng = shipped_reader(), random.Random(seed)
    decided: list[_Decided] = []
    replies: Counter[str] = Counter()
    for episode in labelled_episodes(episodes, seed=seed + _FAR):
        for heard in heard_statements(reader, episode, rng):
            shown = _nearest(heard)
            response = await model.complete(_request(heard.side, shown, len(decided)))
            answer, op = read_op(response.text, len(shown))
            replies[op] += 1
            if answer is not None:
                case = decision_case(heard.side, shown, answer)
                decided.append(_Decided(case, _truth(heard, shown)))
    return decided, replies


def read_op(text: str, memories: int) -> tuple[int | None, str]:
    """Return the answer in a model's reply and the name of its op; None for no answer."""
    match = _REPLY.search(text)
    if match is None:
        return None, "unreadable"
    op, number = match[1].upper(), int(match[2] or 0)
    if op in ("ADD", "SKIP"):
        return (ADD if op == "ADD" else SKIP), op
    if not 1 <= number <= memories:
        return None, "unreadable"
    return 2 * number + int(op != "SAME"), op


def _nearest(heard: StatementCase) -> list[Side]:
    """Return the memories that are shown to the model, in the order of saying."""
    about = heard.side.clause.vector
    places = sorted(
        range(len(heard.shown)), key=lambda at: -float(heard.shown[at].clause.vector @ about)
    )[:MEMORIES]
    return [heard.shown[place] for place in sorted(places)]


def _truth(heard: StatementCase, shown: Sequence[Side]) -> int:
    if heard.about is None:
        return SKIP if heard.label.act in ("joke", "hearsay") else ADD
    target = heard.shown[heard.about]
    place = next((at for at, side in enumerate(shown) if side is target), None)
    return ADD if place is None else 2 + 2 * place + int(not heard.label.repeats)


def _request(new: Side, shown: Sequence[Side], number: int) -> ModelRequest:
    lines = [f"{at}. {side.speaker}: {side.clause.text}" for at, side in enumerate(shown, start=1)]
    text = _PROMPT.format(
        memories="\n".join(lines) or "(none)", speaker=new.speaker, text=new.clause.text
    )
    return ModelRequest(
        role=Role.MANAGER,
        messages=(Message(role="user", content=text),),
        sampling=Sampling(temperature=0.0, max_tokens=8),
        step=StepRef(call=number),
    )


def _by_truth(decided: Sequence[_Decided]) -> list[DecisionCase]:
    return [replace(one.case, answer=one.truth) for one in decided]


def _share(right: Sequence[bool]) -> float:
    return round(sum(right) / max(1, len(right)), 3)
