"""The state of a story while it is drawn: threads by topic, and the values still free.

New things in a story: first states, members of sets, events, plans, effects, bonds.

Revisions in a story: changes, losses, corrections, outcomes of plans, repetitions.

The story of an episode, drawn before a word is written.

A story says which true things are told in which session, by whom, in which form, and
what each does to what was told before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import PRONOUNS, Lexicon
from environments.worlds.language.spec import Person, Relation
from environments.worlds.story.beats import Beat, Cast, Story, Thread, Tie, Topic, session_dates
from environments.worlds.story.writer import BeatWriter
from environments.worlds.truth import Act


class Draft:
    """A story in the making: a `Thread` for every value that can be revised.

    A thread knows its tellings, so every revision names the telling that it supersedes.
    """

    def __init__(
        self, rng: random.Random, lexicon: Lexicon, config: WorldConfig, cast: Cast
    ) -> None:
        self.rng, self.lexicon, self.config, self.cast = rng, lexicon, config, cast
        self.writer = BeatWriter(rng, lexicon, cast)
        self.topics: dict[tuple[str, str], list[Thread]] = {}
        """Threads by the names of the person and the relation."""

    @cached_property
    def _speakers(self) -> frozenset[str]:
        return frozenset(person.name for person in self.cast.speakers)

    def speaks(self, person: Person) -> bool:
        """Whether the person takes part in the conversation."""
        return person.name in self._speakers

    def threads_of(self, topic: Topic) -> list[Thread]:
        """Return the threads of a topic; empty when nothing was told."""
        subject, relation = topic
        return self.topics.get((subject.name, relation.name), [])

    def open_threads(self) -> Iterator[Thread]:
        """Return the threads that can be revised, in the order of their topics."""
        return (thread for threads in self.topics.values() for thread in threads if thread.open)

    def start(self, beat: Beat) -> Thread:
        """Start a thread with its first beat."""
        thread = Thread(
            beat=beat, value=beat.value, since=self.writer.today, day=beat.day, lead=beat
        )
        self.topics.setdefault((beat.subject.name, beat.relation.name), []).append(thread)
        return thread

    def revise(self, thread: Thread, beat: Beat) -> None:
        """Continue a thread with a beat that revises it."""
        thread.beat, thread.value, thread.since = beat, beat.value, self.writer.today
        if beat.act is Act.CHANGE:
            thread.lead = beat

    def draw_value(self, topic: Topic, *, without: str = "") -> str:
        """Draw a value that the person never had, mostly one that nobody had.

        Empty when there is none.
        """
        relation = topic[1]
        had = {beat.value for thread in self.threads_of(topic) for beat in thread.beat.history()}
        had.add(without)
        free = [value for value in self.lexicon.pools[relation.values] if value not in had]
        used = self.writer.used.get(relation.name, set())
        fresh = [value for value in free if value not in used]
        if fresh and self.rng.random() < 0.85:
            return self.rng.choice(fresh)
        return self.rng.choice(free) if free else ""


_FRIEND_SHARE: Final = 0.4
"""Share of new things that are about a friend rather than a speaker."""
_COUNTABLE: Final = frozenset(("event", "set"))
"""Kinds of which one person is told several."""
_LIMITED: Final = frozenset(("event", "set", "plan"))
_MOST_MEMBERS: Final = 4
"""Members of a set, and open plans of a kind, at one time."""


class Additions:
    """Draws what nobody told before."""

    def __init__(self, draft: Draft, ties: list[Tie], relations: Sequence[Relation]) -> None:
        """Draw from the relations; `ties` are the bonds to tell, the last one first."""
        self.draft, self.rng, self.ties = draft, draft.rng, ties
        self.friends: list[Person] = []
        kinds = dict.fromkeys(relation.kind for relation in relations)
        self.by_kind = [
            [relation for relation in relations if relation.kind == kind] for kind in kinds
        ]

    def add(self) -> bool:
        """Tell something new; return False when nothing could be drawn."""
        beats = self.draft.writer.beats
        if self.ties and self.rng.random() < (0.5 if self.draft.writer.session == 0 else 0.3):
            return self._add_bond(self.ties.pop())
        latest = beats[-1].subject if beats else None
        for _ in range(12):
            if self._add_value(self._draw_topic(latest)):
                return True
        return bool(self.ties) and self._add_bond(self.ties.pop())

    def _draw_topic(self, latest: Person | None) -> Topic:
        """Draw a person and a relation; `latest` is the person spoken of last."""
        draft, rng = self.draft, self.rng
        # Staying with a friend just spoken of is what makes pronouns possible.
        stay = latest is not None and not draft.speaks(latest) and rng.random() < 0.5
        about_friend = self.friends and rng.random() < _FRIEND_SHARE
        if stay and latest is not None:
            subject = latest
        else:
            subject = rng.choice(self.friends if about_friend else draft.cast.speakers)
        relation = rng.choice(rng.choice(self.by_kind))
        countable = [
            name
            for person, name in draft.topics
            if person == subject.name and draft.lexicon.relations[name].kind in _COUNTABLE
        ]
        # A second trip or a second pet can be counted and put in order.
        if countable and rng.random() < 0.5:
            relation = draft.lexicon.relations[rng.choice(countable)]
        return subject, relation

    def _add_bond(self, tie: Tie) -> bool:
        writer = self.draft.writer
        beat = writer.write((tie.owner, tie.relation), "first", Act.ADD, tie.friend.name)
        if beat is None:
            return False
        self.draft.start(beat)
        lasting = not tie.relation.change
        self.friends.append(tie.friend)
        writer.tellers[tie.friend.name] = tie.owner, tie.relation.role if lasting else ""
        return True

    def _add_value(self, topic: Topic) -> bool:
        subject, relation = topic
        threads = self.draft.threads_of(topic)
        speaks = self.draft.speaks(subject)
        if relation.kind in ("state", "preference") and threads:
            return False
        if relation.kind == "bond" or (relation.kind in ("plan", "cause") and not speaks):
            return False
        most = 2 + self.draft.config.sessions // 4 if relation.kind == "event" else _MOST_MEMBERS
        if relation.kind in _LIMITED and sum(thread.open for thread in threads) >= most:
            return False
        group = "first" if speaks else self.rng.choice(("third", "third", "third", "hearsay"))
        if relation.kind == "cause":
            return self._add_effect(topic)
        value = self.draft.draw_value(topic)
        beat = self.draft.writer.write(topic, group, Act.ADD, value) if value else None
        if beat is not None:
            self.draft.start(beat)
        return beat is not None

    def _add_effect(self, topic: Topic) -> bool:
        """Tell an effect, then its cause."""
        subject, relation = topic
        effects = {thread.value for thread in self.draft.threads_of(topic)}
        pronouns = PRONOUNS[subject.he]
        pairs = [pair for pair in relation.pairs if pair[0].format_map(pronouns) not in effects]
        if not pairs:
            return False
        effect, cause = self.rng.choice(pairs)
        beat = self.draft.writer.write(topic, "first", Act.ADD, effect)
        if beat is None:
            return False
        thread = self.draft.start(beat)
        thread.open = False
        reason = self.draft.writer.write(topic, "reason", Act.REASON, effect)
        if reason is not None:
            reason.supersedes, reason.cause = beat, cause
            thread.beat = reason
        return True


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


def draw_story(rng: random.Random, lexicon: Lexicon, config: WorldConfig, cast: Cast) -> Story:
    """Draw the story of an episode, session by session."""
    draft = Draft(rng, lexicon, config, cast)
    writer = draft.writer
    ties = list(cast.ties)
    rng.shuffle(ties)
    dates = session_dates(rng, lexicon, config)
    relations = tuple(_draw_relations(rng, lexicon, config))
    additions = Additions(draft, ties, relations)
    revisions = Revisions(draft, list(cast.spares))
    story = Story(dates=dates, used=writer.used, relations=relations)
    for number, today in enumerate(dates):
        writer.begin(number, today)
        late = number / max(1, config.sessions - 1)
        pressure = config.interference * late
        for _ in range(_draw_count(rng, config.facts)):
            revising = rng.random() < config.overwrite + (1.0 - config.overwrite) * pressure / 2.0
            acts = (revisions.revise, additions.add)
            first, second = acts if revising else reversed(acts)
            if not first():
                second()
        for act in (revisions.repeat, revisions.revise):
            if number and rng.random() < pressure + config.interference / 2.0:
                act()
        story.beats.append(writer.beats)
    return story


def _draw_relations(
    rng: random.Random, lexicon: Lexicon, config: WorldConfig
) -> Iterator[Relation]:
    """Draw a share of every kind besides bonds; return it in the grammar's order."""
    kinds: dict[str, list[Relation]] = {}
    for relation in lexicon.relations.values():
        if relation.kind != "bond" and relation.name in (config.only or lexicon.relations):
            kinds.setdefault(relation.kind, []).append(relation)
    share = min(1.0, config.relations / sum(map(len, kinds.values())))
    drawn = {
        relation.name
        for relations in kinds.values()
        for relation in rng.sample(relations, max(1, round(share * len(relations))))
    }
    return (relation for relation in lexicon.relations.values() if relation.name in drawn)


def _draw_count(rng: random.Random, mean: float) -> int:
    """Draw a whole number around the mean."""
    spread = mean + rng.uniform(-1.0, 1.0) if mean >= 1.0 else mean
    whole = int(spread)
    return whole + (rng.random() < spread - whole)
