"""Notes in words: the texts that an ideal memory of a world writes down.

`of_held` and `read` are each other's inverse for every relation of a grammar, so a rule
can tell whether a policy's note is right:

    Tom Hill lives in Bonn
    Tom Hill bought lamp (on 10 February)
    Max Wood had pony (until 18 February)     the ideal manager deletes instead
    Mia Lake missed the train (because the clock stood still)

A text that is no note reads as None: a reader of notes gets nothing from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from environments.worlds.language.days import MONTHS, Calendar, day_text
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.language.spec import Kind
from environments.worlds.readers.players import Note
from environments.worlds.truth import HeldValue, Key, Telling

_DETAILS = re.compile(r"^(?P<said>.*?)(?: ?\((?P<details>[^()]*)\))?\.?$")


@dataclass(frozen=True)
class NoteLanguage:
    """The notes of one grammar."""

    lexicon: Lexicon

    @cached_property
    def _phrases(self) -> Mapping[str, str]:
        """Relation names by their words with the blank after them.

        The longest come first, so that "lives in" is not read as "lives".
        """
        words = {f"{name.replace('_', ' ').lower()} ": name for name in self.lexicon.relations}
        return dict(sorted(words.items(), key=lambda pair: -len(pair[0])))

    @cached_property
    def _people(self) -> Mapping[str, str]:
        """People by the beginning of a note about them, longest first."""
        names = sorted(
            (person.name for person in self.lexicon.grammar.people), key=len, reverse=True
        )
        return {f"{name.lower()} ": name for name in names}

    @property
    def calendar(self) -> Calendar:
        """The way in which days are named."""
        return self.lexicon.grammar.calendar

    def of_telling(self, telling: Telling) -> str:
        """Return the note that a telling deserves by itself."""
        kind = self.lexicon.relations[telling.relation].kind
        return self._text(telling, telling.key, kind=kind, day=telling.day)

    def of_held(self, subject: str, relation: str, held: HeldValue) -> str:
        """Return the note of a value as the state holds it."""
        day = held.start if held.dated else None
        return self._text(held, (subject, relation), kind=held.kind, day=day, outcome=held.outcome)

    def _text(
        self,
        value: Telling | HeldValue,
        key: Key,
        *,
        kind: Kind,
        day: date | None,
        outcome: bool | None = None,
    ) -> str:
        dated = "on" if kind in ("event", "plan") else "since"
        details = (
            f"{dated} {day_text(self.calendar, day)}" if day else "",
            f"at {value.place}" if value.place else "",
            f"with {value.company}" if value.company else "",
            f"because {value.cause}" if value.cause else "",
            {None: "", True: "it was so", False: "it was not so"}[outcome],
        )
        subject, relation = key
        statement = f"{subject} {relation.replace('_', ' ')} {value.value}"
        known = "; ".join(detail for detail in details if detail)
        return f"{statement} ({known})" if known else statement

    def read(self, text: str, *, said_on: date | None = None) -> Note | None:
        """Read a note; return None for a text that is none.

        A year that a short calendar leaves out is that of `said_on`.
        """
        match = _DETAILS.match(" ".join(text.split()))
        if match is None:
            return None
        statement = match["said"]
        lowered = statement.lower()
        beginning = next(filter(lowered.startswith, self._people), None)
        if beginning is None:
            return None
        rest = statement[len(beginning) :]
        lowered = rest.lower()
        phrase = next(filter(lowered.startswith, self._phrases), None)
        if phrase is None:
            return None
        relation = self._phrases[phrase]
        details = _details(match["details"] or "")
        day = self._day(details.get("on") or details.get("since") or "", said_on)
        return Note(
            subject=self._people[beginning],
            relation=relation,
            kind=self.lexicon.relations[relation].kind,
            value=rest[len(phrase) :].strip(),
            start=(day or said_on or date.min).isoformat(),
            dated=day is not None,
            place=details.get("at", ""),
            company=details.get("with", ""),
            cause=details.get("because", ""),
            outcome={"": None, "so": True, "not": False}[details.get("it was", "")],
        )

    def _day(self, words: str, said_on: date | None) -> date | None:
        parts = words.split()
        if len(parts) not in (2, 3) or not parts[0].isdecimal() or parts[1].title() not in MONTHS:
            return None
        year = (
            int(parts[2])
            if len(parts) == 3 and parts[2].isdecimal()
            else (said_on.year if said_on else 1)
        )
        try:
            return date(year, MONTHS.index(parts[1].title()) + 1, int(parts[0]))
        except ValueError:
            return None


def _details(text: str) -> dict[str, str]:
    details: dict[str, str] = {}
    for part in text.split(";"):
        words = part.strip()
        if words in ("it was so", "it was not so"):
            details["it was"] = "so" if words == "it was so" else "not"
            continue
        key, _, value = words.partition(" ")
        if value:
            details[key] = value
    return details
