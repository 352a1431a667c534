"""The story of an episode: which true things are told in which session, by whom, in
which form, and what each does to what was told before.

The story is drawn before a word is written. It keeps a `Thread` for every value that
can be revised: one for the place where Ana lives, one for each of her pets, one for
each plan. A thread knows its tellings, so every revision names the telling that it
supersedes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final

from environments.worlds.cast import Cast, Tie
from environments.worlds.knobs import Knobs
from environments.worlds.lexicon import PRONOUNS, Lexicon
from environments.worlds.pen import Pen
from environments.worlds.spec import Person, Relation
from environments.worlds.story import Beat, Story, Thread, session_dates
from environments.worlds.truth import Act

_FRIEND_SHARE: Final = 0.4
"""How often something new is about a friend rather than a speaker."""
_MANY: Final = frozenset(("event", "set"))
"""Kinds of which one person is told several."""
_SEVERAL: Final = frozenset(("event", "set", "plan"))
_MOST_MEMBERS: Final = 4
"""Members of a set, and open plans of a kind, at one time."""


def tell_story(rng: random.Random, lexicon: Lexicon, knobs: Knobs, cast: Cast) -> Story:
    """The story of an episode."""
    return _Author(rng, lexicon, knobs, cast).story()


class _Author:
    """Draws the story, session by session."""

    def __init__(self, rng: random.Random, lexicon: Lexicon, knobs: Knobs, cast: Cast) -> None:
        self.rng, self.lexicon, self.knobs, self.cast = rng, lexicon, knobs, cast
        self.pen = Pen(rng, lexicon, cast)
        self.threads: dict[tuple[str, str], list[Thread]] = {}
        self.known: list[Person] = list(cast.speakers)
        self.ties: list[Tie] = list(cast.ties)
        rng.shuffle(self.ties)
        self.spares = list(cast.spares)
        self.result = Story(
            dates=session_dates(rng, lexicon, knobs),
            used=self.pen.used,
            relations=tuple(self._drawn_relations()),
        )
        kinds = dict.fromkeys(relation.kind for relation in self.result.relations)
        self.kinds = [[one for one in self.result.relations if one.kind == kind] for kind in kinds]

    def _drawn_relations(self) -> Iterable[Relation]:
        """A share of every kind, in the grammar's order."""
        kinds: dict[str, list[Relation]] = {}
        for relation in self.lexicon.relations.values():
            if relation.kind != "bond" and relation.name in (
                self.knobs.only or self.lexicon.relations
            ):
                kinds.setdefault(relation.kind, []).append(relation)
        whole = sum(map(len, kinds.values()))
        share = min(1.0, self.knobs.relations / whole)
        kept = [
            one
            for some in kinds.values()
            for one in self.rng.sample(some, max(1, round(share * len(some))))
        ]
        names = {one.name for one in kept}
        return (one for one in self.lexicon.relations.values() if one.name in names)

    def story(self) -> Story:
        """All sessions."""
        knobs, rng = self.knobs, self.rng
        for number, today in enumerate(self.result.dates):
            self.pen.begin(number, today)
            late = self.pen.session / max(1, knobs.sessions - 1)
            pressure = knobs.interference * late
            for _ in range(_drawn_count(rng, knobs.facts)):
                revising = rng.random() < knobs.overwrite + (1.0 - knobs.overwrite) * pressure / 2.0
                first, second = (self._revise, self._add) if revising else (self._add, self._revise)
                if not first():
                    second()
            for act in (self._repeat, self._revise):
                if self.pen.session and rng.random() < pressure + knobs.interference / 2.0:
                    act()
            self.result.beats.append(self.pen.now)
        return self.result

    # -- something new -----------------------------------------------------------------

    def _add(self) -> bool:
        """Tell something that nobody told before."""
        if self.ties and self.rng.random() < (0.5 if self.pen.session == 0 else 0.3):
            return self._bond(self.ties.pop())
        last = self.pen.now[-1].subject if self.pen.now else None
        for _ in range(12):
            # Staying with a friend just spoken of is what makes pronouns possible.
            stay = last is not None and last.name not in self._speakers and self.rng.random() < 0.5
            friends = self.known[len(self.cast.speakers) :]
            about = friends if friends and self.rng.random() < _FRIEND_SHARE else self.cast.speakers
            subject = last if stay and last is not None else self.rng.choice(about)
            relation = self.rng.choice(self.rng.choice(self.kinds))
            told = [
                name
                for who, name in self.threads
                if who == subject.name and self.lexicon.relations[name].kind in _MANY
            ]
            if (
                told and self.rng.random() < 0.5
            ):  # a second trip, a second pet: what can be counted and put in order
                relation = self.lexicon.relations[self.rng.choice(told)]
            if self._new(subject, relation):
                return True
        return bool(self.ties) and self._bond(self.ties.pop())

    @property
    def _speakers(self) -> frozenset[str]:
        return frozenset(one.name for one in self.cast.speakers)

    def _bond(self, tie: Tie) -> bool:
        beat = self.pen.write(tie.owner, tie.relation, "first", Act.ADD, tie.friend.name)
        if beat is None:
            return False
        self._open(beat)
        lasting = not tie.relation.change
        self.known.append(tie.friend)
        self.pen.tellers[tie.friend.name] = tie.owner, tie.relation.role if lasting else ""
        return True

    def _new(self, subject: Person, relation: Relation) -> bool:
        threads = self.threads.get((subject.name, relation.name), [])
        own = subject.name in self._speakers
        if relation.kind in ("state", "preference") and threads:
            return False
        if relation.kind == "bond" or (relation.kind in ("plan", "cause") and not own):
            return False
        most = 2 + self.knobs.sessions // 4 if relation.kind == "event" else _MOST_MEMBERS
        if relation.kind in _SEVERAL and sum(thread.open for thread in threads) >= most:
            return False
        group = "first" if own else self.rng.choice(("third", "third", "third", "hearsay"))
        if relation.kind == "cause":
            return self._effect(subject, relation, threads)
        value = self._value(subject, relation)
        beat = value and self.pen.write(subject, relation, group, Act.ADD, value)
        if not beat:
            return False
        self._open(beat)
        return True

    def _effect(self, subject: Person, relation: Relation, threads: list[Thread]) -> bool:
        told = {thread.value for thread in threads}
        pronouns = PRONOUNS[subject.he]
        pairs = [pair for pair in relation.pairs if pair[0].format_map(pronouns) not in told]
        if not pairs:
            return False
        effect, cause = self.rng.choice(pairs)
        beat = self.pen.write(subject, relation, "first", Act.ADD, effect)
        if beat is None:
            return False
        thread = self._open(beat)
        reason = self.pen.write(
            subject, relation, "reason", Act.REASON, effect, supersedes=beat, cause=cause
        )
        thread.beat, thread.open = reason or beat, False
        return True

    def _value(self, subject: Person, relation: Relation, *, but: str = "") -> str:
        """A value the person never had; mostly one that nobody had.

        Empty when there is none.
        """
        threads = self.threads.get((subject.name, relation.name), ())
        had = {beat.value for thread in threads for beat in _history(thread)} | {but}
        free = [value for value in self.lexicon.pools[relation.values] if value not in had]
        used = self.pen.used.get(relation.name, set())
        fresh = [value for value in free if value not in used]
        if fresh and self.rng.random() < 0.85:
            return self.rng.choice(fresh)
        return self.rng.choice(free) if free else ""

    # -- something revised -------------------------------------------------------------

    def _revise(self) -> bool:
        """Revise something told in an earlier session (a correction: in this one or the last)."""
        open_threads = [thread for some in self.threads.values() for thread in some if thread.open]
        if not open_threads:
            return False
        due = [
            thread
            for thread in open_threads
            if thread.beat.relation.kind == "plan" and self._due(thread)
        ]
        for _ in range(8):
            thread = self.rng.choice(due if due and self.rng.random() < 0.6 else open_threads)
            fresh = thread.beat.session >= self.pen.session - 1
            if fresh and self.rng.random() < 0.35 and self._correct(thread):
                return True
            if thread.beat.session < self.pen.session and self._REVISIONS[
                thread.beat.relation.kind
            ](self, thread):
                return True
        return False

    def _change(self, thread: Thread) -> bool:
        subject, relation = thread.beat.subject, thread.beat.relation
        own = subject.name in self._speakers
        if relation.kind == "bond":
            if not relation.change or not self.spares:
                return False
            value = self.spares.pop().name
        else:
            value = self._value(subject, relation)
        group = "change" if own else "change_third"
        beat = value and self.pen.write(subject, relation, group, Act.CHANGE, value, revises=thread)
        if not beat:
            return False
        self._revised(thread, beat, value)
        return True

    def _remove(self, thread: Thread) -> bool:
        own = thread.beat.subject.name in self._speakers
        group = "remove" if own else "remove_third"
        beat = self.pen.write(
            thread.beat.subject,
            thread.beat.relation,
            group,
            Act.REMOVE,
            thread.value,
            revises=thread,
        )
        if beat is None:
            return False
        self._revised(thread, beat, thread.value)
        thread.open = False
        return True

    def _settle(self, thread: Thread) -> bool:
        """Do, move or call off a plan."""
        subject, relation, value = thread.beat.subject, thread.beat.relation, thread.value
        act = self.rng.choice(
            (Act.DONE, Act.DONE, Act.CANCEL)
            if self._due(thread)
            else (Act.MOVE, Act.MOVE, Act.CANCEL)
        )
        group = {Act.DONE: "done", Act.CANCEL: "cancelled", Act.MOVE: "moved"}[act]
        beat = self.pen.write(subject, relation, group, act, value, revises=thread)
        if beat is None:
            return False
        self._revised(thread, beat, value)
        thread.open, thread.day = act is Act.MOVE, beat.day or thread.day
        return True

    def _due(self, thread: Thread) -> bool:
        return thread.day is not None and thread.day <= self.pen.today

    def _correct(self, thread: Thread) -> bool:
        lead = thread.lead
        if lead is None or lead.value != thread.value or lead.subject.name not in self._speakers:
            return False
        if not lead.relation.correct:
            return False
        value = self._value(lead.subject, lead.relation, but=thread.value)
        beat = value and self.pen.write(
            lead.subject, lead.relation, "correct", Act.CORRECT, value, revises=thread
        )
        if not beat:
            return False
        self._revised(thread, beat, value)
        thread.lead = None
        return True

    def _keep(self, thread: Thread) -> bool:
        return False

    _REVISIONS: Final[dict[str, Callable[[_Author, Thread], bool]]] = {
        "state": _change,
        "preference": _change,
        "bond": _change,
        "set": _remove,
        "plan": _settle,
        "event": _keep,
        "cause": _keep,
    }

    def _repeat(self) -> bool:
        """Tell something once more, in other words."""
        threads = [
            thread
            for some in self.threads.values()
            for thread in some
            if thread.open
            and thread.beat.session < self.pen.session
            and thread.beat.relation.kind not in ("event", "plan")
        ]
        if not threads:
            return False
        thread = self.rng.choice(threads)
        subject, relation = thread.beat.subject, thread.beat.relation
        group = "first" if subject.name in self._speakers else "third"
        forms = [
            form for form in self.lexicon.forms(relation.name, group) if "when" not in form.slots
        ]
        if not forms:
            return False
        beat = self.pen.made(subject, relation, self.rng.choice(forms), Act.REPEAT, thread.value)
        beat.supersedes = thread.beat
        thread.since = self.pen.today
        self.pen.now.append(beat)
        return True

    # -- threads -----------------------------------------------------------------------

    def _open(self, beat: Beat) -> Thread:
        thread = Thread(beat=beat, value=beat.value, since=self.pen.today, day=beat.day, lead=beat)
        thread.open = beat.relation.kind not in ("cause",)
        self.threads.setdefault((beat.subject.name, beat.relation.name), []).append(thread)
        return thread

    def _revised(self, thread: Thread, beat: Beat, value: str) -> None:
        thread.beat, thread.value, thread.since = beat, value, self.pen.today
        if beat.act is Act.CHANGE:
            thread.lead = beat


def _history(thread: Thread) -> Iterable[Beat]:
    beat: Beat | None = thread.beat
    while beat is not None:
        yield beat
        beat = beat.supersedes


def _drawn_count(rng: random.Random, mean: float) -> int:
    """A whole number around the mean."""
    spread = mean + rng.uniform(-1.0, 1.0) if mean >= 1.0 else mean
    whole = int(spread)
    return whole + (rng.random() < spread - whole)
