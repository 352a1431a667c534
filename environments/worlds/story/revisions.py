"""Revisions in a story: changes, losses, corrections, outcomes of plans, repetitions."""

from __future__ import annotations

from typing import Final

from environments.worlds.language.spec import Person
from environments.worlds.story.beats import Thread
from environments.worlds.story.draft import Draft
from environments.worlds.truth import Act

_PLAN_GROUPS: Final = {Act.DONE: "done", Act.CANCEL: "cancelled", Act.MOVE: "moved"}


class Revisions:
    """Draws what revises or repeats something told before."""

    def __init__(self, draft: Draft, spares: list[Person]) -> None:
        """Revise the draft; `spares` are new friends for bonds that change."""
        self.draft, self.rng, self.writer, self.spares = draft, draft.rng, draft.writer, spares

    def revise(self) -> bool:
        """Revise something told in an earlier session.

        A correction may be of this session or the last. Returns False when nothing
        could be revised.
        """
        threads = list(self.draft.open_threads())
        if not threads:
            return False
        due = [
            thread
            for thread in threads
            if thread.beat.relation.kind == "plan" and self._is_due(thread)
        ]
        for _ in range(8):
            thread = self.rng.choice(due if due and self.rng.random() < 0.6 else threads)
            fresh = thread.beat.session >= self.writer.session - 1
            if fresh and self.rng.random() < 0.35 and self._correct(thread):
                return True
            if thread.beat.session < self.writer.session and self._continue(thread):
                return True
        return False

    def _continue(self, thread: Thread) -> bool:
        kind = thread.beat.relation.kind
        if kind in ("state", "preference", "bond"):
            return self._change(thread)
        if kind == "set":
            return self._remove(thread)
        return kind == "plan" and self._settle(thread)

    def repeat(self) -> None:
        """Tell something once more, in other words, if there is anything to repeat."""
        threads = [
            thread
            for thread in self.draft.open_threads()
            if thread.beat.session < self.writer.session
            and thread.beat.relation.kind not in ("event", "plan")
        ]
        if not threads:
            return
        thread = self.rng.choice(threads)
        subject, relation = thread.beat.topic
        group = "first" if self.draft.speaks(subject) else "third"
        forms = [
            form
            for form in self.draft.lexicon.forms(relation.name, group)
            if "when" not in form.slots
        ]
        if not forms:
            return
        form = self.rng.choice(forms)
        beat = self.writer.new_beat(thread.beat.topic, form, Act.REPEAT, thread.value)
        beat.supersedes = thread.beat
        thread.since = self.writer.today
        self.writer.beats.append(beat)

    def _write(self, thread: Thread, group: str, act: Act, value: str) -> bool:
        """Write the revision of a thread; return False without a value or a form."""
        if not value:
            return False
        beat = self.writer.write(thread.beat.topic, group, act, value, revises=thread)
        if beat is not None:
            self.draft.revise(thread, beat)
        return beat is not None

    def _change(self, thread: Thread) -> bool:
        subject, relation = topic = thread.beat.topic
        if relation.kind == "bond":
            if not relation.change or not self.spares:
                return False
            value = self.spares.pop().name
        else:
            value = self.draft.draw_value(topic)
        group = "change" if self.draft.speaks(subject) else "change_third"
        return self._write(thread, group, Act.CHANGE, value)

    def _remove(self, thread: Thread) -> bool:
        group = "remove" if self.draft.speaks(thread.beat.subject) else "remove_third"
        thread.open = not self._write(thread, group, Act.REMOVE, thread.value)
        return not thread.open

    def _settle(self, thread: Thread) -> bool:
        """Do, move or call off a plan."""
        due = self._is_due(thread)
        act = self.rng.choice((Act.DONE if due else Act.MOVE,) * 2 + (Act.CANCEL,))
        if not self._write(thread, _PLAN_GROUPS[act], act, thread.value):
            return False
        thread.open, thread.day = act is Act.MOVE, thread.beat.day or thread.day
        return True

    def _is_due(self, thread: Thread) -> bool:
        return thread.day is not None and thread.day <= self.writer.today

    def _correct(self, thread: Thread) -> bool:
        lead = thread.lead
        if lead is None or lead.value != thread.value or not self.draft.speaks(lead.subject):
            return False
        if not lead.relation.correct:
            return False
        value = self.draft.draw_value(lead.topic, without=thread.value)
        if not self._write(thread, "correct", Act.CORRECT, value):
            return False
        thread.lead = None
        return True
