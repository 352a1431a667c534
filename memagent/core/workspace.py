"""The workspace of a trial: the part of its history that an agent's prompt still shows.

A `Workspace` is a pure function of a trial's steps and edits, so the journal's trial
replays every prompt. A segment is a step, or a note that stands for segments that were
folded. Edits name segments by their present place, first 0. The surprise: nothing that
was folded is gone. The steps stay in the trial, and an edit that opens a note puts its
segments back word for word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from memagent.core.errors import InputError
from memagent.core.records import Record, Text
from memagent.core.trials import Edit, Trial, TrialStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One part of a workspace."""

    text: str
    kind: Literal["step", "note"] = "step"
    folded: tuple[Segment, ...] = field(default=(), compare=False, repr=False)
    """The segments that a note stands for, in order; no part of the state that is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The goal and the segments that are shown after it."""

    goal: str
    segments: tuple[Segment, ...] = ()

    @property
    def prompt(self) -> str:
        """The text an agent acts on; equal states give equal texts."""
        lines = [f"task: {self.goal}"]
        lines += [
            f"[{place}] {'note: ' if segment.kind == 'note' else ''}{segment.text}"
            for place, segment in enumerate(self.segments)
        ]
        return "\n".join(lines)

    @property
    def words(self) -> int:
        """The length of the prompt in words."""
        return len(self.prompt.split())

    def after_step(self, step: TrialStep) -> Workspace:
        """Return the workspace with a step at its end."""
        text = f"did: {step.action}"
        text += f"\nsaw: {step.observation}" if step.observation else ""
        return replace(self, segments=(*self.segments, Segment(text=text)))

    def after_edit(self, edit: Edit) -> Workspace:
        """Return the workspace with an edit carried out; a refused one changes nothing.

        Raises `InputError` for places that do not exist or hold no note to open.
        """
        if edit.refused:
            return self
        if edit.opens is not None:
            return self._opened(edit.opens)
        if not edit.folds:
            raise InputError("an edit names at least one segment to fold, or a note to open")
        wrong = [place for place in edit.folds if place >= len(self.segments)]
        if wrong or len(set(edit.folds)) < len(edit.folds):
            raise InputError(f"there is no segment {wrong[0] if wrong else 'to fold twice'}")
        folded = tuple(self.segments[place] for place in sorted(edit.folds))
        note = (Segment(kind="note", text=edit.text, folded=folded),) if edit.text else ()
        first = min(edit.folds)
        kept = [s for place, s in enumerate(self.segments) if place not in edit.folds]
        return replace(self, segments=(*kept[:first], *note, *kept[first:]))

    def _opened(self, place: int) -> Workspace:
        if place >= len(self.segments) or not self.segments[place].folded:
            raise InputError(f"segment {place} is no note that can be opened")
        before, after = self.segments[:place], self.segments[place + 1 :]
        inside = self.segments[place].folded
        return replace(self, segments=(*before, *inside, *after))


def workspace_of(trial: Trial) -> Workspace:
    """Return the workspace after all steps and edits of a trial. Raises `InputError`."""
    workspace = Workspace(goal=trial.task)
    for event in _events(trial):
        if isinstance(event, TrialStep):
            workspace = workspace.after_step(event)
        else:
            workspace = workspace.after_edit(event)
    return workspace


class CreditSegment(Record):
    """Texts generated from one state of a workspace, up to the edit that ended it."""

    prompt: Text
    """The workspace at its beginning, fixed while the segment lasts."""
    generated: tuple[Text, ...] = ()
    """Actions in order, at last the text of the edit."""


def credit_segments(trial: Trial) -> tuple[CreditSegment, ...]:
    """Return the segments of a trial for credit: one more than it has edits that hold.

    Every action and every note is in exactly one segment (Dynamic Context Policy
    Optimization of MemAct, arXiv 2510.12635), because a gradient through a prompt that
    an edit has changed would be that of another text.
    """
    segments: list[CreditSegment] = []
    workspace = Workspace(goal=trial.task)
    prompt, generated = workspace.prompt, list[str]()
    for event in _events(trial):
        if isinstance(event, TrialStep):
            generated.append(event.action)
            workspace = workspace.after_step(event)
            continue
        workspace = workspace.after_edit(event)
        generated += [event.text] if event.text else []
        if not event.refused:
            segments.append(CreditSegment(prompt=prompt, generated=tuple(generated)))
            prompt, generated = workspace.prompt, []
    return (*segments, CreditSegment(prompt=prompt, generated=tuple(generated)))


def _events(trial: Trial) -> Iterator[TrialStep | Edit]:
    """Yield steps and edits in the order in which they came."""
    edits, place = trial.edits, 0
    for number, step in enumerate((None, *trial.steps)):
        if step is not None:
            yield step
        while place < len(edits) and edits[place].at <= number:
            yield edits[place]
            place += 1
    if place < len(edits):
        raise InputError(f"trial {trial.id} has an edit after steps that it does not have")
