"""Labelled turns: generated dialogues with random words, each token with its part.

The worlds' engine writes the story and knows what each turn tells; the labels are read
off the turn by finding the value, the old value, the time and the subject in it. Only
training forms are used, without the relations of `HELD_OUT`. Two tellings of a speaker
may share a turn, and small talk may stand around them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from environments.worlds.config import WorldConfig
from environments.worlds.language.lexicon import Lexicon, capitalised
from environments.worlds.language.loading import grammar_of
from environments.worlds.language.spec import Grammar
from environments.worlds.truth import Act, Telling, Truth
from environments.worlds.world import make_world
from train.learned.forms import extra_forms, generic_forms, german_grammar, german_time
from train.learned.predicates import NAMES, open_relations
from train.learned.words import invented, random_grammar, value_like

HELD_OUT: Final = (
    "vehicle", "employer", "favourite_colour", "favourite_song", "pet", "clubs", "concert",
    "lost", "tattoo", "dinner_plan", "interview", "bad_turn", "cousin", "dentist",
)  # fmt: skip
"""Relations whose forms no training turn uses."""
GERMAN_SHARE: Final = 0.12
OPEN_RELATIONS: Final = 24
"""Relations with a random predicate that an English episode is drawn from, beside the world's."""
TOGETHER: Final = 4
"""Dialogues that share a grammar of random words; drawing one takes longer than a dialogue."""
_BEGINNINGS: Final = (
    "Honestly,", "Well,", "So,", "Guess what,", "Funny enough,", "Anyway,", "Listen,", "Hm,",
    "You know what?", "Right.", "Thanks!", "Yeah,", "Haha!", "No problem.", "Great to hear that!",
    "Good question.", "Same here!", "Wow,", "Tja,", "Na gut.", "Danke dir!", "Nothing much.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LabelledClause:
    """One telling in a turn, by places of characters."""

    start: int
    end: int
    act: str
    kind: str
    subject: str
    """How the subject is named: one of `SUBJECTS`."""
    relation: str
    telling: str
    """Id of the telling in its episode."""
    person: str
    """Name of the person it is about."""
    spans: Mapping[str, tuple[int, int]]
    """(start, end) by role."""
    supersedes: str = ""
    """Id of the telling that it repeats, changes or ends."""
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """A turn with what it tells, in order; small talk tells nothing."""

    session: int
    speaker: str
    others: tuple[str, ...]
    text: str
    before: str
    """The turn before; empty at the beginning of a session."""
    clauses: tuple[LabelledClause, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledEpisode:
    """The turns of an episode and the tellings by id."""

    turns: tuple[LabelledTurn, ...]
    truth: Truth


@dataclass(slots=True)
class _Draft:
    speaker: str
    text: str
    clauses: list[LabelledClause] = field(default_factory=list[LabelledClause])


def labelled_episodes(
    count: int, *, seed: int, held_out: bool = False
) -> Iterator[LabelledEpisode]:
    """Return episodes; with `held_out` only of the relations that training never uses."""
    for first in range(0, count, TOGETHER):
        rng = random.Random(f"learned/{seed}/{first}")
        german = not held_out and rng.random() < GERMAN_SHARE
        if german:
            grammar = random_grammar(rng, german_grammar())
        else:
            grammar = english_grammar(rng, held_out=held_out)
        lexicon = Lexicon(grammar, held_out=False)
        for _ in range(first, min(first + TOGETHER, count)):
            yield _episode(rng, lexicon, german=german)


def english_grammar(rng: random.Random, *, held_out: bool) -> Grammar:
    """Return the English relations of one episode, with random words and open predicates.

    With `held_out` they are those that training never uses, as the world has them.
    """
    grammar = random_grammar(rng, _english(held_out=held_out))
    if held_out:
        return grammar
    more = open_relations(rng, grammar, OPEN_RELATIONS)
    names = tuple(dict.fromkeys(invented(rng).capitalize() for _ in range(40)))
    return replace(
        grammar,
        relations=(*grammar.relations, *more),
        pools={**grammar.pools, NAMES: names},
    )


@lru_cache(maxsize=2)
def _english(*, held_out: bool) -> Grammar:
    """Return the rich world with more forms, with or without the relations held out."""
    grammar = grammar_of("rich")
    relations = tuple(
        relation if held_out else extra_forms(relation)
        for relation in grammar.relations
        if (relation.name in HELD_OUT) is held_out
    )
    return replace(grammar, relations=relations)


def _episode(rng: random.Random, lexicon: Lexicon, *, german: bool) -> LabelledEpisode:
    config = WorldConfig(
        sessions=rng.randint(3, 7), turns=rng.randint(8, 14), facts=rng.uniform(3.0, 7.0),
        overwrite=rng.uniform(0.2, 0.65), interference=rng.uniform(0.0, 0.5),
        distractors=rng.uniform(0.2, 0.6), friends=min(rng.randint(1, 3), _bonds(lexicon.grammar)),
        relations=rng.randint(8, 24),
    )  # fmt: skip
    episode, truth = make_world("e", str(rng.random()), lexicon, config)
    by_turn = {telling.turn_id: telling for telling in truth.tellings}
    turns: list[LabelledTurn] = []
    for number, session in enumerate(episode.sessions):
        drafts: list[_Draft] = []
        for turn in session.turns:
            telling = by_turn.get(turn.id)
            draft = _Draft(turn.speaker, turn.text)
            if telling is not None:
                if german:
                    draft.text, telling = _in_german(rng, turn.text, telling)
                draft.clauses.append(_labelled(draft.text, telling, truth, lexicon))
            drafts.append(draft)
        drafts = _with_corrections(rng, list(_with_retractions(rng, _merged(rng, drafts))))
        turns += _written(rng, number, drafts, lexicon, truth.speakers)
    return LabelledEpisode(tuple(turns), truth)


def _bonds(grammar: Grammar) -> int:
    return sum(relation.kind == "bond" for relation in grammar.relations)


def _in_german(rng: random.Random, text: str, telling: Telling) -> tuple[str, Telling]:
    """Put a German phrase in the place of the English time."""
    if not telling.day_text:
        return text, telling
    phrase = german_time(rng)
    place = text.lower().find(telling.day_text.lower())
    phrase = capitalised(phrase) if place == 0 else phrase
    text = text[:place] + phrase + text[place + len(telling.day_text) :]
    return text, replace(telling, day_text=phrase)


def _labelled(text: str, telling: Telling, truth: Truth, lexicon: Lexicon) -> LabelledClause:
    start = _after_beginning(text, lexicon)
    low = text.lower()
    spans: dict[str, tuple[int, int]] = {}

    def mark(role: str, words: str) -> None:
        found = re.search(rf"(?<!\w){re.escape(words.lower())}", low[start:]) if words else None
        if found is not None:
            spans[role] = (start + found.start(), start + found.end())

    earlier = truth.by_id.get(telling.supersedes)
    mark("value", telling.cause if telling.act is Act.REASON else telling.value)
    if earlier is not None and earlier.value != telling.value:
        mark("old", earlier.value)
    mark("time", telling.day_text)
    if telling.mention and not telling.pronoun:
        mark("subject", telling.subject if telling.mention == "name" else f"my {telling.role}")
    if telling.mention == "role" and "subject" not in spans:
        mark("subject", telling.role)
    subject = "speaker" if not telling.mention else "pronoun" if telling.pronoun else "named"
    return LabelledClause(
        start=start,
        end=len(text),
        act=act_of(telling),
        kind=telling.kind,
        subject=subject,
        relation=telling.relation,
        telling=telling.id,
        person=telling.subject,
        spans=spans,
        supersedes=telling.supersedes,
        repeats=telling.act is Act.REPEAT,
    )


def act_of(telling: Telling) -> str:
    """Return the class of a telling's act, as far as its words can show it."""
    if telling.act in (Act.ADD, Act.REPEAT, Act.BYSTANDER):
        return "tell"
    if telling.act in (Act.REMOVE, Act.CANCEL):
        return "end"
    return {"joke": "joke", "rumour": "hearsay", "reason": "reason", "change": "change",
            "correct": "correct", "done": "done", "move": "move"}[telling.act.value]  # fmt: skip


def _after_beginning(text: str, lexicon: Lexicon) -> int:
    """Return where a turn's statement starts, behind a filler, a reminder or a denial."""
    for group in ("denials", "reminders", "fillers"):
        for form in lexicon.forms("", group):
            begin = capitalised(form.text) + " "
            if text.startswith(begin) and len(begin) < len(text):
                return len(begin)
    return 0


def _with_retractions(rng: random.Random, drafts: list[_Draft]) -> Iterator[_Draft]:
    """Let a speaker take back, some turns later, a thing told in the session."""
    waiting: list[_Draft] = []
    for draft in drafts:
        yield draft
        waiting += [
            _retraction(rng, draft, clause)
            for clause in draft.clauses
            if clause.act == "tell" and "value" in clause.spans and rng.random() < 0.04
        ]
        if waiting and rng.random() < 0.4:
            yield waiting.pop()
    yield from waiting


def _retraction(rng: random.Random, draft: _Draft, clause: LabelledClause) -> _Draft:
    start, end = clause.spans["value"]
    value = draft.text[start:end]
    form = rng.choice(generic_forms()["any"]["retract"])
    text = capitalised(form.replace("{value}", value))
    place = text.lower().find(value.lower())
    taken_back = replace(
        clause, start=0, end=len(text), act="retract", subject="speaker",
        spans={"old": (place, place + len(value))}, telling=f"{clause.telling}-",
        supersedes=clause.telling, repeats=False,
    )  # fmt: skip
    return _Draft(draft.speaker, text, [taken_back])


def _with_corrections(rng: random.Random, drafts: list[_Draft]) -> list[_Draft]:
    """Let a speaker correct a value a turn or two later, in words that name no subject."""
    kept: list[_Draft] = []
    waiting: list[_Draft] = []
    for draft in drafts:
        kept += waiting if waiting and rng.random() < 0.7 else []
        waiting = [] if kept and waiting and kept[-1] is waiting[-1] else waiting
        kept.append(draft)
        told = [clause for clause in draft.clauses if clause.act in ("tell", "change")
                and "value" in clause.spans and not clause.repeats]  # fmt: skip
        if told and rng.random() < 0.05:
            waiting.append(_correction(rng, draft, told[-1]))
    return [*kept, *waiting]


def _correction(rng: random.Random, draft: _Draft, clause: LabelledClause) -> _Draft:
    old = draft.text[slice(*clause.spans["value"])]
    value = value_like(rng, old)
    form = rng.choice(generic_forms()["state"]["correct"])
    text = capitalised(form.replace("{value}", value).replace("{old}", old))
    low = text.lower()
    places = {role: low.find(words.lower()) for role, words in (("value", value), ("old", old))}
    spans = {role: (at, at + len(value if role == "value" else old)) for role, at in places.items()}
    corrected = replace(
        clause, start=0, end=len(text), act="correct", subject="speaker", spans=spans,
        telling=f"{clause.telling}~", supersedes=clause.telling, repeats=False,
    )  # fmt: skip
    return _Draft(draft.speaker, text, [corrected])


def _merged(rng: random.Random, drafts: list[_Draft]) -> list[_Draft]:
    """Join some tellings of a speaker with the next one of the same speaker."""
    kept: list[_Draft] = []
    for draft in drafts:
        before = next((other for other in reversed(kept[-4:]) if other.clauses), None)
        fits = (
            draft.clauses
            and before is not None
            and before.speaker == draft.speaker
            and len(before.clauses) < 3
            and rng.random() < 0.35
        )
        if fits and before is not None:
            _append(before, draft, rng.choice((" ", " ", " Also, ", " And ", " Oh, and ", "\n")))
        else:
            kept.append(draft)
    return kept


def _append(before: _Draft, draft: _Draft, joint: str) -> None:
    shift = len(before.text) + len(joint)
    before.text += joint + draft.text
    before.clauses += [_shifted(clause, shift) for clause in draft.clauses]


def _shifted(clause: LabelledClause, by: int) -> LabelledClause:
    spans = {role: (start + by, end + by) for role, (start, end) in clause.spans.items()}
    return replace(clause, start=clause.start + by, end=clause.end + by, spans=spans)


def _begun(rng: random.Random, draft: _Draft) -> _Draft:
    """Return the turn with a few words before it, or without the "I" that it begins with."""
    first = draft.clauses[0]
    if first.start == 0 and draft.text.startswith("I ") and rng.random() < 0.4:
        text = draft.text[2:3].upper() + draft.text[3:]
        clauses = [_shifted(clause, -2) for clause in draft.clauses]
        return _Draft(draft.speaker, text, [replace(clauses[0], start=0), *clauses[1:]])
    begin = _Draft(draft.speaker, rng.choice(_BEGINNINGS))
    _append(begin, draft, " ")
    return begin


def _written(
    rng: random.Random,
    number: int,
    drafts: list[_Draft],
    lexicon: Lexicon,
    speakers: tuple[str, ...],
) -> list[LabelledTurn]:
    """Put small talk around some tellings, and spoil capitals and stops of some turns."""
    talk = [form.text for group in ("small_talk", "replies_neutral", "replies_good", "jokes")
            for form in lexicon.forms("", group) if not form.slots]  # fmt: skip
    turns: list[LabelledTurn] = []
    before = ""
    for draft in drafts:
        if draft.clauses and talk and rng.random() < 0.3:
            words = _Draft(draft.speaker, capitalised(rng.choice(talk)))
            if rng.random() < 0.6:
                _append(words, draft, " ")
                draft = words
            else:
                draft.text += " " + words.text
        if draft.clauses and rng.random() < 0.2:
            draft = _begun(rng, draft)
        text = draft.text
        if rng.random() < 0.08:
            text = text.lower()
        if rng.random() < 0.1 and text[-1] in ".!":
            text = text[:-1]
            last = draft.clauses[-1] if draft.clauses else None
            if last is not None and last.end > len(text):
                draft.clauses[-1] = replace(last, end=len(text))
        others = tuple(name for name in speakers if name != draft.speaker)
        turns.append(
            LabelledTurn(number, draft.speaker, others, text, before, tuple(draft.clauses))
        )
        before = text
    return turns
