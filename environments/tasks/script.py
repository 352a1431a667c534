"""A script: the facts of each session, written by a task rather than drawn as a life.

`DialogueRenderer` makes dialogue of it as of any story.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final

from environments.errors import EnvironmentFault
from environments.tasks.generated import Draw, build_world
from environments.worlds.config import WorldConfig
from environments.worlds.language.days import spoken
from environments.worlds.language.lexicon import Lexicon, pick
from environments.worlds.language.spec import Kind, Person, Relation
from environments.worlds.story.beats import Beat, Story, draw_cast, offstage, session_dates
from environments.worlds.story.dialogue import DialogueRenderer
from environments.worlds.story.writer import BeatWriter
from environments.worlds.truth import Act
from environments.worlds.world import World

_PLAIN: Final = frozenset(("place", "person"))
_NO_DAY: Final = frozenset(("place", "person", "when"))
_GROUPS: Final = {Act.CHANGE: "change", Act.REMOVE: "remove"}


class Script:
    """Facts about the speakers, in the order in which they are told."""

    def __init__(self, name: str, draw: Draw, lexicon: Lexicon, config: WorldConfig) -> None:
        self.rng = draw("story")
        self.lexicon = lexicon
        self._name, self._draw, self._config = name, draw, config
        self._cast = draw_cast(draw("people"), lexicon, config)
        self._writer = BeatWriter(self.rng, lexicon, self._cast)
        dates = session_dates(draw("days"), lexicon, config)
        self.story = Story(dates=dates, beats=[[] for _ in dates], used=self._writer.used)

    @property
    def speakers(self) -> tuple[Person, ...]:
        """The people whom the facts are about."""
        return self._cast.speakers

    def keys(
        self, *kinds: Kind, ask: str, least: int, count: int, argument: str
    ) -> list[tuple[Person, Relation]]:
        """Draw `count` (speaker, relation) of these kinds that can be asked so.

        Each has more than `least` values. Raises `EnvironmentFault` when there are
        fewer, naming the argument of the task that asks for them.
        """
        keys = [
            (speaker, relation)
            for relation in self.lexicon.relations.values()
            if relation.kind in kinds
            and self.lexicon.forms(relation.name, f"ask_{ask}")
            # One more than needed, for look-alikes.
            and len(self.lexicon.pools.get(relation.values, ())) > least
            for speaker in self.speakers
        ]
        self.rng.shuffle(keys)
        if len(keys) < count:
            raise EnvironmentFault(
                f"{argument}={count} is more than this level's language has room for, {len(keys)}"
            )
        return keys[:count]

    def values(self, relation: Relation, count: int) -> list[str]:
        """Draw `count` different values, new to the script where there are enough."""
        pool, used = self.lexicon.pools[relation.values], self.story.used.get(relation.name, set())
        fresh = [value for value in pool if value not in used]
        rest = fresh if len(fresh) > count else pool
        return self.rng.sample(rest, count)

    def tell(
        self,
        session: int,
        key: tuple[Person, Relation],
        value: str,
        *,
        act: Act = Act.ADD,
        day: date | None = None,
        of: Beat | None = None,
    ) -> Beat:
        """Tell a fact at the end of session number `session`.

        `of` is the telling that it revises or repeats.

        With a `day` the turn says it. Raises `EnvironmentFault` when the language of
        the split has no form for it.
        """
        _, relation = key
        self._writer.begin(session, self.story.dates[session])
        forms = self.lexicon.forms(relation.name, _GROUPS.get(act, "first"))
        timed = [form for form in forms if "when" in form.slots] if day else forms
        form = (None if day else pick(self.rng, timed, without=_NO_DAY)) or pick(
            self.rng, timed, without=_PLAIN
        )
        form = form or pick(self.rng, timed)
        if form is None:
            raise EnvironmentFault(f"relation {relation.name} has no form to {act.value} a value")
        beat = self._writer.new_beat(key, form, act, value)
        if "when" in form.slots:
            beat.day = day or beat.said_on
            beat.day_text = spoken(self.rng, self.lexicon.grammar.calendar, beat.said_on, beat.day)
        if "place" in form.slots:
            beat.place = self.rng.choice(self.lexicon.pools[relation.place])
        if "person" in form.slots:
            beat.company = self.rng.choice([person.name for person in offstage(self._cast)])
        if of is not None:
            beat.supersedes, beat.old = of, of.value
        self.story.beats[session].append(beat)
        self.story.used.setdefault(relation.name, set()).add(value)
        return beat

    def world(self, alike: Iterable[Relation]) -> World:
        """Return the dialogue and its truth, with facts about bystanders of these relations."""
        self.story.relations = tuple({relation.name: relation for relation in alike}.values())
        dialogue = DialogueRenderer(
            self._draw, self.lexicon, self._config, self._cast, self.story
        ).dialogue()
        return build_world(
            self._name,
            self.story.dates,
            dialogue.turns,
            dialogue.tellings,
            speakers=[person.name for person in self._cast.speakers],
            bystanders=[person.name for person in self._cast.bystanders],
        )
