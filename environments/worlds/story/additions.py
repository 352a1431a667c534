"""New things in a story: first states, members of sets, events, plans, effects, bonds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from environments.worlds.language.lexicon import PRONOUNS
from environments.worlds.language.spec import Person, Relation
from environments.worlds.story.beats import Topic
from environments.worlds.story.cast import Tie
from environments.worlds.story.draft import Draft
from environments.worlds.truth import Act

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
