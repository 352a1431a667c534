"""Parts of designs that keep a workspace small: which segments to fold, and into what.

A design of this sort is a chooser and a prompt. The note that stands for the segments is
the model's; a reply that cannot be read is an edit that was refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memagent.core.exchange import Role
from memagent.core.trials import Edit
from memagent.core.workspace import Workspace
from memagent.designs.base import SlotContext
from memagent.designs.prompting import OnePrompt, fence, load_prompt, quoted
from memagent.replies.entries import MAX_FACT_CHARS, string_at
from memagent.replies.json_answer import extract_json
from memagent.replies.tolerant_json import JsonValue

Choose = Callable[[Workspace], tuple[int, ...]]
"""Returns the places of the segments to fold now; () for none."""


@dataclass(frozen=True, kw_only=True)
class Fold(OnePrompt):
    """Folds the chosen segments into one note that the model writes."""

    choose: Choose

    async def __call__(self, workspace: Workspace, ctx: SlotContext, /) -> Edit | None:
        """Return the edit, or None when nothing is to be folded."""
        places = self.choose(workspace)
        if not places:
            return None
        reply = await ask_about_workspace(self.prompt, workspace, places, ctx)
        text = (string_at(reply, "text") or "").strip()[:MAX_FACT_CHARS]
        refused = "" if text else "the reply holds no text for the note"
        return Edit(at=0, folds=places, text=text, refused=refused)


@dataclass(frozen=True, kw_only=True)
class StageFold(OnePrompt):
    """Asks after each step whether a stage of the task is over, and folds it if so."""

    over: str
    """The key of the reply that says so."""
    parts: tuple[str, ...]
    """Keys of the reply that make up the note, in order."""
    budget: int = 400
    """Words of the workspace above which a stage is over, whatever the model says."""

    async def __call__(self, workspace: Workspace, ctx: SlotContext, /) -> Edit | None:
        """Return the fold of everything before the last step, or None within a stage."""
        if len(workspace.segments) < 2:
            return None
        everything = tuple(range(len(workspace.segments)))
        reply = await ask_about_workspace(self.prompt, workspace, everything, ctx)
        over = reply.get(self.over)
        if over is not True and workspace.words <= self.budget:
            wrong = f"{self.over} is neither true nor false"
            return None if over is False else Edit(at=0, folds=everything[:-1], refused=wrong)
        named = ((part, _joined(reply.get(part))) for part in self.parts)
        text = "\n".join(f"{part}: {value}" for part, value in named if value)[:MAX_FACT_CHARS]
        refused = "" if text else "the reply holds no text for the note"
        return Edit(at=0, folds=everything[:-1], text=text, refused=refused)


def _joined(value: JsonValue) -> str:
    """Return a text, or a list of texts in one line; "" for anything else."""
    texts = value if isinstance(value, list) else [value]
    return "; ".join(text.strip() for text in texts if isinstance(text, str) and text.strip())


async def ask_about_workspace(
    prompt: str, workspace: Workspace, places: tuple[int, ...], ctx: SlotContext
) -> dict[str, JsonValue]:
    """Show the model some segments with their places; return its object, {} if unreadable."""
    loaded = load_prompt(prompt)
    lines = (f"({place}) {quoted(workspace.segments[place].text)}" for place in places)
    values = {"task": fence("task", [quoted(workspace.goal)]), "steps": fence("steps", lines)}
    reply = await ctx.call(Role.MANAGER, loaded.messages(**values), prompt_digest=loaded.digest)
    value = extract_json(reply.text).value
    return value if isinstance(value, dict) else {}


def all_but_last(workspace: Workspace, keep: int = 1) -> tuple[int, ...]:
    """Choose everything before the last `keep` segments."""
    return tuple(range(len(workspace.segments) - keep))


def trailing_steps(workspace: Workspace, least: int) -> tuple[int, ...]:
    """Choose the steps since the last note, once there are at least `least`."""
    begin = len(workspace.segments)
    while begin and workspace.segments[begin - 1].kind == "step":
        begin -= 1
    places = tuple(range(begin, len(workspace.segments)))
    return places if len(places) >= least else ()
