"""A script: which facts are told in which session, written by a generator rather than
drawn as a life.

The teller makes dialogue of it as it does of any story. A script says what, when and of
whom; the pen chooses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final

from environments.errors import EnvironmentFault
from environments.tasks.generated import Draw, World, told
from environments.worlds.cast import draw_cast, offstage
from environments.worlds.days import spoken
from environments.worlds.knobs import Knobs
from environments.worlds.lexicon import Lexicon, pick
from environments.worlds.pen import Pen
from environments.worlds.spec import Kind, Person, Relation
from environments.worlds.story import Beat, Story, session_dates
from environments.worlds.truth import Act

_PLAIN: Final = frozenset(("place", "person"))
_NO_DAY: Final = frozenset(("place", "person", "when"))
_GROUPS: Final = {Act.CHANGE: "change", Act.REMOVE: "remove"}


class Script:
    """Facts about the speakers, in the order in which they are told."""

    def __init__(self, name: str, draw: Draw, lexicon: Lexicon, knobs: Knobs) -> None:
        self.rng = draw("story")
        self.lexicon = lexicon
        self._name, self._draw, self._knobs = name, draw, knobs
        self._cast = draw_cast(draw("people"), lexicon, knobs)
        self._pen = Pen(self.rng, lexicon, self._cast)
        dates = session_dates(draw("days"), lexicon, knobs)
        self.story = Story(dates=dates, beats=[[] for _ in dates], used=self._pen.used)

    @property
    def speakers(self) -> tuple[Person, ...]:
        """Whom the facts are about."""
        return self._cast.speakers

    def keys(self, *kinds: Kind, ask: str, least: int) -> list[tuple[Person, Relation]]:
        """All (speaker, relation) of these kinds that can be asked so and have at least
        so many values, in a drawn order.
        """
        found = [
            (speaker, relation)
            for relation in self.lexicon.relations.values()
            if relation.kind in kinds
            and self.lexicon.forms(relation.name, f"ask_{ask}")
            and len(self.lexicon.pools.get(relation.values, ()))
            > least  # one more than needed, for look-alikes
            for speaker in self.speakers
        ]
        self.rng.shuffle(found)
        return found

    def values(self, relation: Relation, count: int) -> list[str]:
        """So many different values, new to the script where there are enough."""
        pool, used = self.lexicon.pools[relation.values], self.story.used.get(relation.name, set())
        fresh = [value for value in pool if value not in used]
        rest = fresh if len(fresh) > count else pool
        return self.rng.sample(rest, count)

    def tell(
        self,
        session: int,
        subject: Person,
        relation: Relation,
        value: str,
        *,
        act: Act = Act.ADD,
        day: date | None = None,
        of: Beat | None = None,
    ) -> Beat:
        """Tell a fact at the end of session number `session`; `of` is the telling that
        it revises or repeats.

        With a `day` the turn says it. Raises `EnvironmentFault` when the language of
        the split has no form for it.
        """
        self._pen.begin(session, self.story.dates[session])
        forms = self.lexicon.forms(relation.name, _GROUPS.get(act, "first"))
        timed = [form for form in forms if "when" in form.slots] if day else forms
        form = (None if day else pick(self.rng, timed, without=_NO_DAY)) or pick(
            self.rng, timed, without=_PLAIN
        )
        form = form or pick(self.rng, timed)
        if form is None:
            raise EnvironmentFault(f"relation {relation.name} has no form to {act.value} a value")
        beat = self._pen.made(subject, relation, form, act, value)
        if "when" in form.slots:
            beat.day = day or beat.said_on
            beat.day_text = spoken(self.rng, self.lexicon.grammar.calendar, beat.said_on, beat.day)
        if "place" in form.slots:
            beat.place = self.rng.choice(self.lexicon.pools[relation.place])
        if "person" in form.slots:
            beat.company = self.rng.choice([one.name for one in offstage(self._cast)])
        if of is not None:
            beat.supersedes, beat.old = of, of.value
        self.story.beats[session].append(beat)
        self.story.used.setdefault(relation.name, set()).add(value)
        return beat

    def world(self, alike: Iterable[Relation]) -> World:
        """The dialogue and its truth; bystanders are told things of these relations."""
        self.story.relations = tuple({one.name: one for one in alike}.values())
        return told(self._name, self._draw, self.lexicon, self._knobs, self._cast, self.story)


def enough(
    found: list[tuple[Person, Relation]], wanted: int, *, knob: str
) -> list[tuple[Person, Relation]]:
    """The first `wanted` keys.

    Raises `EnvironmentFault` when there are fewer, naming the knob that asks for them.
    """
    if len(found) < wanted:
        raise EnvironmentFault(
            f"{knob}={wanted} is more than this level's language has room for, {len(found)}"
        )
    return found[:wanted]
