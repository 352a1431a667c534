"""The right facts of an extractor: a note for each telling that deserves one."""

from __future__ import annotations

from environments.demonstrations.decisions import GONE
from environments.demonstrations.prompts import fact_entry, shown_turns
from environments.worlds.language.days import day_text
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.truth import Act, HeldValue, Telling, Truth
from memagent.core.records import Session

_UNTOLD = frozenset((Act.JOKE, Act.RUMOUR, Act.BYSTANDER))


class FactNoter:
    """Notes what the turns of a prompt tell."""

    def __init__(self, truth: Truth, language: NoteLanguage) -> None:
        self._truth, self._language = truth, language
        self.sources: dict[str, Telling] = {}
        """The telling behind each fact noted so far, by the fact's text."""
        self._by_turn: dict[str, list[Telling]] = {}
        for telling in truth.tellings:
            self._by_turn.setdefault(telling.turn_id, []).append(telling)

    def facts(self, prompt: str, session: Session) -> list[dict[str, str | None]]:
        """Return the facts of the turns shown, with the names that turns have there."""
        facts: list[dict[str, str | None]] = []
        for name, turn_id in shown_turns(prompt, session):
            for telling in self._by_turn.get(turn_id, ()):
                if telling.act in _UNTOLD:
                    continue
                text, held = self._note(telling)
                self.sources[text] = telling
                day = held.start if held is not None and held.dated else telling.day
                kind = telling.kind if telling.kind in ("event", "preference", "plan") else "fact"
                when = day_text("long", day) if day else None
                facts.append(fact_entry(text, name, subject=telling.subject, when=when, kind=kind))
        return facts

    def notes_of(self, session: Session) -> list[str]:
        """Return the notes that a session deserves, in the order of its turns."""
        told = (telling for turn in session.turns for telling in self._by_turn.get(turn.id, ()))
        return [self._note(telling)[0] for telling in told if telling.act not in _UNTOLD]

    def _note(self, telling: Telling) -> tuple[str, HeldValue | None]:
        """Return the note of a telling, and the value that it leaves behind.

        For an end that is the value that ends.

        A turn is noted as it was said even when a later one corrects it: the manager,
        who sees both, decides which of the two counts.
        """
        if telling.act is Act.REMOVE:
            return f"{self._language.of_telling(telling)}{GONE}", None
        held = self._after(telling)
        if held is None or held.value != telling.value:
            return self._language.of_telling(telling), None
        return self._language.of_held(telling.subject, telling.relation, held), held

    def _after(self, telling: Telling) -> HeldValue | None:
        """Return the value that a telling adds to, or repeats, as it holds after the session.

        None when it holds no longer.
        """
        telling_id = telling.supersedes if telling.act is Act.REPEAT else telling.id
        values = self._truth.state(telling.session).get(telling.key, ())
        return next(
            (held for held in reversed(values) if telling_id in held.tellings and held.current),
            None,
        )
