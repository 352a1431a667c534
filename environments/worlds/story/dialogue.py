"""From a story to dialogue: every beat becomes a turn.

Questions, replies and small talk stand around it, and noise in between.

A pronoun is used only right after a turn of the same speaker about the same person, and
nothing is ever put between the two but a reply.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from environments.worlds.config import WorldConfig
from environments.worlds.language.days import Calendar
from environments.worlds.language.lexicon import (
    PRONOUNS,
    Form,
    Lexicon,
    capitalised,
    filled,
    with_article,
)
from environments.worlds.language.spec import Person, Tone
from environments.worlds.story.beats import (
    Beat,
    Cast,
    Line,
    Mention,
    Story,
    Unit,
    insert,
    words_for,
)
from environments.worlds.story.noise import Noise
from environments.worlds.truth import Act, Telling

_ASKED_FOR: Final = frozenset((Act.ADD, Act.CHANGE))


@dataclass(frozen=True)
class Dialogue:
    """The turns of a story by session: (turn id, speaker, text), and what they tell."""

    turns: tuple[tuple[tuple[str, str, str], ...], ...]
    tellings: tuple[Telling, ...]


class DialogueRenderer:
    """Renders one story as dialogue."""

    def __init__(
        self,
        draw: Callable[[str], random.Random],
        lexicon: Lexicon,
        config: WorldConfig,
        cast: Cast,
        story: Story,
    ) -> None:
        """Render with streams of random numbers, which `draw` gives by name."""
        self.rng, self.calls = draw("words"), draw("calls")
        self.noise = Noise(draw("noise"), lexicon, config, cast, story)
        self.lexicon, self.config, self.cast, self.story = lexicon, config, cast, story
        self.calendar: Calendar = lexicon.grammar.calendar
        self.telling_ids: dict[int, str] = {}
        """Ids of tellings by the identity of their beats, which the story keeps alive."""
        self.recent: list[str] = []
        """Ids of the small forms used lately, to avoid saying the same again soon."""

    def dialogue(self) -> Dialogue:
        """Render all sessions."""
        turns: list[tuple[tuple[str, str, str], ...]] = []
        tellings: list[Telling] = []
        for number, beats in enumerate(self.story.beats):
            lines = self._session(number, beats)
            rows: list[tuple[str, str, str]] = []
            for place, line in enumerate(lines, start=1):
                turn_id = f"D{number + 1}:{place}"
                rows.append((turn_id, line.speaker.name, line.text))
                if line.beat is not None:
                    telling_id = f"T{len(tellings) + 1}"
                    self.telling_ids[id(line.beat)] = telling_id
                    tellings.append(self._telling(line.beat, telling_id, turn_id, line))
            turns.append(tuple(rows))
        return Dialogue(tuple(turns), tuple(tellings))

    def _telling(self, beat: Beat, telling_id: str, turn_id: str, line: Line) -> Telling:
        pronouns = PRONOUNS[beat.subject.he]
        return Telling(
            id=telling_id,
            turn_id=turn_id,
            session=beat.session,
            speaker=beat.speaker.name,
            subject=beat.subject.name,
            relation=beat.relation.name,
            kind=beat.relation.kind,
            act=beat.act,
            value=beat.value.format_map(pronouns) if "{" in beat.value else beat.value,
            said_on=beat.said_on,
            day=beat.day,
            day_text=beat.day_text,
            place=beat.place,
            company=beat.company,
            cause=beat.cause.format_map(pronouns) if "{" in beat.cause else beat.cause,
            supersedes="" if beat.supersedes is None else self.telling_ids[id(beat.supersedes)],
            mention=line.mention,
            pronoun=line.pronoun,
            role=beat.role,
            form=beat.form.id,
        )

    # -- one session -------------------------------------------------------------------

    def _session(self, number: int, beats: Sequence[Beat]) -> list[Line]:
        units = list(self._units(beats))
        units = self.noise.disturb(number, units)
        lines = [line for unit in units for line in unit.lines]
        greet = self.config.chat > 0
        start = self._greetings() if greet else []
        end = self._farewell(lines) if greet else []
        missing = self.config.turns - len(start) - len(lines) - len(end)
        if missing > 0:
            units = self._filled_up(units, missing)
            lines = [line for unit in units for line in unit.lines]
        lines = [*start, *lines, *end]
        self._assign_free(lines)
        return lines

    def _assign_free(self, lines: Sequence[Line]) -> None:
        """Give the lines that anybody may say to speakers other than their neighbours."""
        for place, line in enumerate(lines):
            if line.free:
                before = lines[max(0, place - 1)].speaker
                after = lines[min(place + 1, len(lines) - 1)].speaker
                others = [person for person in self.cast.speakers if person not in (before, after)]
                line.speaker = self.rng.choice(others) if others else self._other(before)

    def _units(self, beats: Sequence[Beat]) -> Iterator[Unit]:
        before: Beat | None = None
        mention: Mention = ""
        for beat in beats:
            glued = (
                before is not None
                and before.subject == beat.subject
                and before.speaker == beat.speaker
                and beat.subject != beat.speaker
                and not beat.company
                and not before.company
            )
            short, role = self.calls.random() < 0.6, self.calls.random() < 0.4
            line = self._line(beat, pronoun=glued and short, role=role, before=mention)
            mention = line.mention
            unit = Unit(glued=line.pronoun or beat.act is Act.REASON)
            own = beat.subject == beat.speaker
            if own and beat.act in _ASKED_FOR and self.rng.random() < self.config.chat / 2.0:
                prompt = self._small(self.lexicon.forms(beat.relation.name, "prompts"))
                if prompt:
                    unit.lines.append(Line(self._other(beat.speaker), capitalised(prompt)))
            unit.lines.append(line)
            if self.rng.random() < self.config.chat:
                reply = self._small(self.lexicon.replies(_tone(beat)))
                if reply:
                    unit.lines.append(Line(self._other(beat.speaker), capitalised(reply)))
            yield unit
            before = beat

    def _line(self, beat: Beat, *, pronoun: bool, role: bool, before: Mention) -> Line:
        """Return the turn of a beat; `before` is how the turn before called the subject."""
        form, begin = beat.form.text, ""
        name, own = beat.subject.name, beat.subject == beat.speaker
        mention: Mention = "" if own else "role" if role and beat.role else "name"
        if mention == "role":
            name = f"my {beat.role}"
        short = _with_pronoun(form) if pronoun else None
        if short is not None:
            form, mention = short, before
        if beat.act is Act.REPEAT:
            begin = self._begin("reminders", 0.8)
        elif beat.act is not Act.REASON:
            begin = self._begin("fillers", 0.25)
        if begin:
            form = f"{begin} {_lowered(form)}"
        slots = words_for(beat.subject if not own else None, name, beat.value)
        slots |= {
            "old": beat.old,
            "a_old": with_article(beat.old) if beat.old else "",
            "when": beat.day_text,
            "place": beat.place,
            "person": beat.company,
            "cause": beat.cause.format_map(slots) if "{" in beat.cause else beat.cause,
        }
        return Line(beat.speaker, filled(form, slots), beat, mention, short is not None)

    def _begin(self, group: str, chance: float) -> str:
        """Draw a filler or reminder to begin a turn with; empty most of the time."""
        if self.rng.random() >= chance or not self.config.chat:
            return ""
        return self._small(self.lexicon.forms("", group))

    # -- small talk --------------------------------------------------------------------

    def _small(self, forms: Sequence[Form]) -> str:
        """Draw a form that was not used lately; empty when the group is."""
        if not forms:
            return ""
        fresh = [form for form in forms if form.id not in self.recent]
        form = self.rng.choice(fresh or forms)
        self.recent = [*self.recent[-50:], form.id]
        return form.text

    def _other(self, speaker: Person) -> Person:
        return self.rng.choice([person for person in self.cast.speakers if person != speaker])

    def _greetings(self) -> list[Line]:
        first = self.rng.choice(self.cast.speakers)
        second = self._other(first)
        lines = [
            Line(first, self._greeting("openings", second)),
            Line(second, self._greeting("hellos", first)),
        ]
        return [line for line in lines if line.text]

    def _farewell(self, lines: Sequence[Line]) -> list[Line]:
        speaker = self._other(lines[-1].speaker) if lines else self.cast.speakers[0]
        text = self._greeting("closings", self._other(speaker))
        return [Line(speaker, text)] if text else []

    def _greeting(self, group: str, listener: Person) -> str:
        return capitalised(
            self._small(self.lexicon.forms("", group)).replace("{name}", listener.name)
        )

    def _filled_up(self, units: list[Unit], missing: int) -> list[Unit]:
        units = list(units)
        for _ in range(missing):
            joke = self.rng.random() < 0.15
            text = self._small(self.lexicon.forms("", "jokes" if joke else "small_talk"))
            if text:
                insert(
                    self.rng,
                    units,
                    Unit([Line(self.cast.speakers[0], capitalised(text), free=True)]),
                )
        return units


def _with_pronoun(form: str) -> str | None:
    """Return the form with a pronoun for the name; None where it does not begin with it."""
    if form.startswith("{name}'s "):
        return form.replace("{name}'s ", "{his} ", 1)
    return form.replace("{name} ", "{he} ", 1) if form.startswith("{name} ") else None


def _tone(beat: Beat) -> Tone:
    if beat.act in (Act.REMOVE, Act.CANCEL):
        return "bad"
    return (
        "neutral"
        if beat.act in (Act.CORRECT, Act.REPEAT, Act.REASON, Act.MOVE)
        else beat.relation.tone
    )


def _lowered(form: str) -> str:
    """Return the form with a small first letter, except for "I" and slots."""
    return form if form[:2] in ("I ", "I'") else form[:1].lower() + form[1:]
