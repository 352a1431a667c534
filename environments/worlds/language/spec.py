"""The data model of a world's language.

It has relations with their surface forms, pools of values, people and small talk.

A `Grammar` is data, read from TOML by `loading`. The engine (`story`, `questions`) knows
nothing of jobs or pets: it knows seven *kinds* of relation and fills the slots of the
forms that a relation brings. `checks.check_grammar` lists all faults of a grammar at
once; docs/worlds.md shows a complete world.

Slots
    {name}             the person it is about, or a phrase for one ("Ana's sister");
                       possessives are written {name}'s
    {he} {him} {his}   that person's pronouns in the third person; in what a person
                       tells of himself they become I, me, my
    {value} {a_value}  the value; with its indefinite article ("a nurse")
    {old} {a_old}      the value it replaces
    {other} {a_other}  a second value of the same relation (questions of order)
    {when}             a phrase of time that stands alone anywhere in a sentence: "last
                       Friday", "on 3 May 2024"; write no preposition before it
    {place} {person}   where it was, and in whose company (a name), when the relation
                       has `place` or `company`
    {cause}            the cause of a cause-effect pair

Writing forms
    One form is one turn, one to three sentences. The engine capitalises sentence
    starts, so a form may begin with a slot. A form must be true and natural with *every*
    value of the pool and for he and she alike. Half of the forms are kept for the test
    split: those at odd places (1, 3, ...). So order does not matter, but both halves
    should be varied, and no two forms of a relation may be equal. Where a field allows a
    slot without asking for it, use it in some forms only. Name nobody in a form except
    by a slot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeVar

from pydantic import ConfigDict

T = TypeVar("T")

Kind = Literal["state", "preference", "set", "event", "plan", "cause", "bond"]
"""The behaviour of a relation in time.

- state: one value at a time; a change overwrites it (where one lives)
- preference: the same, for what one likes best
- set: values that come and go (pets)
- event: something that happened on a day, any number of them (a trip)
- plan: something meant for a day, later done, called off or moved
- cause: an effect, told first, and its cause, told after it
- bond: a person in a role to another (her sister); the value is a person, `values` is
  "people"
"""
Ask = Literal["now", "then", "when", "count", "order", "who", "where", "with", "why", "outcome"]
"""The answer that a question asks for.

- now: the present value (of a set: all present values)
- then: the value at {when}: of a state, what held then; of an event, what happened on
  that day
- when: the day it became so, happened, or (plan) is or was to happen; names {value}
- count: the number of members of the set now, or of events so far
- order: which of {value} and {other} came first
- who: the person whose value is {value}; answered by a name
- where: the {place} of the event with {value}
- with: the {person} at the event with {value}
- why: the cause of {value}
- outcome: whether a plan with {value} came true: a question for yes or no
"""
Tone = Literal["good", "bad", "neutral"]
"""The listener's view of the news; chooses among the replies."""

LEAST: Final = 8
"""Fewest forms in a required group."""
PEOPLE: Final = "people"
"""The pool of a bond: the people of the world itself, not a pool of the grammar."""
FROM_FILE: Final = ConfigDict(extra="forbid", use_attribute_docstrings=True)
"""Reading of a record from a world file: unknown keys are faults."""


@dataclass(frozen=True, kw_only=True)
class Relation:
    """One type of fact or event with its surface forms.

    Which groups a kind needs and which slots they hold: `FORMS`, `ASKS`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FROM_FILE
    name: str
    """snake_case, unique in the grammar."""
    kind: Kind
    values: str = ""
    """Name of the pool of values; `PEOPLE` for a bond; "" for `cause`, which has `pairs`."""
    tone: Tone = "neutral"
    role: str = ""
    """Bond: the noun in "Ana's sister"; questions about the bonded person are made with
    it.
    """
    gender: Literal["", "he", "she"] = ""
    """Bond: the only pronoun that fits the role ("she" for a sister); empty when any does."""
    place: str = ""
    """Event: pool of places; its telling forms may then hold {place}."""
    company: bool = False
    """Event: whether its telling forms may hold {person}."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Cause: (effect, cause), past-tense clauses without subject and with subject:
    ("missed {his} flight", "{his} alarm did not ring").
    """
    first: tuple[str, ...] = ()
    """Told by the person: the state, the addition to a set, the event, the plan, the
    effect.
    """
    third: tuple[str, ...] = ()
    """Told by somebody who knows; names {name}."""
    hearsay: tuple[str, ...] = ()
    """Told by somebody who heard it; names {name} and sounds unsure."""
    change: tuple[str, ...] = ()
    """State, preference, bond: the person tells the new value; some forms name {old}, some
    give {when}, some neither.
    """
    change_third: tuple[str, ...] = ()
    """The same told by another."""
    correct: tuple[str, ...] = ()
    """The person takes back {old}, which never was true, and gives {value}; must hold
    both.
    """
    remove: tuple[str, ...] = ()
    """Set: the person no longer has {value}."""
    remove_third: tuple[str, ...] = ()
    """The same told by another."""
    done: tuple[str, ...] = ()
    """Plan: it happened as planned."""
    cancelled: tuple[str, ...] = ()
    """Plan: it will not happen, or did not."""
    moved: tuple[str, ...] = ()
    """Plan: it is now meant for {when}."""
    reason: tuple[str, ...] = ()
    """Cause: why {value} happened, told by the person; holds {cause}, may hold {value}."""
    prompts: tuple[str, ...] = ()
    """A listener's questions that lead to the news.

    They fit old and new news alike, give nothing away and have no slot.
    """
    jokes: tuple[str, ...] = ()
    """Optional: says {value} of the speaker so that anybody sees it is not meant; the
    value is always an untrue one.
    """
    asks: Mapping[Ask, tuple[str, ...]] = field(default_factory=dict[Ask, tuple[str, ...]])
    """Question forms by what they want."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The slots that a group of forms must and may hold.

    `value` stands for {value} or {a_value}, likewise `old` and `other`.
    """

    needs: frozenset[str]
    may: frozenset[str] = frozenset()
    required: bool = True
    least: int = LEAST


def _rule(needs: str, may: str = "", *, required: bool = True, least: int = LEAST) -> Rule:
    return Rule(
        needs=frozenset(needs.split()), may=frozenset(may.split()), required=required, least=least
    )


_PRONOUNS: Final = "he him his"
_PROMPTS: Final = _rule("", least=4)
_JOKES: Final = _rule("value", required=False, least=4)
_STATE: Final[dict[str, Rule]] = {
    "first": _rule("value"),
    "third": _rule("name value", _PRONOUNS),
    "hearsay": _rule("name value", _PRONOUNS),
    "change": _rule("value", "old when"),
    "change_third": _rule("name value", f"old when {_PRONOUNS}"),
    "correct": _rule("value old"),
    "prompts": _PROMPTS,
    "jokes": _JOKES,
}
FORMS: Final[Mapping[Kind, Mapping[str, Rule]]] = {
    "state": _STATE,
    "preference": _STATE,
    "set": {
        "first": _rule("value", "when"),
        "third": _rule("name value", f"when {_PRONOUNS}"),
        "hearsay": _rule("name value", _PRONOUNS),
        "remove": _rule("value"),
        "remove_third": _rule("name value", _PRONOUNS),
        "prompts": _PROMPTS,
        "jokes": _JOKES,
    },
    "event": {
        "first": _rule("value when", "place person"),
        "third": _rule("name value when", f"place person {_PRONOUNS}"),
        "hearsay": _rule("name value when", _PRONOUNS),
        "correct": _rule("value old"),
        "prompts": _PROMPTS,
        "jokes": _JOKES,
    },
    "plan": {
        "first": _rule("value when"),
        "third": _rule("name value when", _PRONOUNS),
        "done": _rule("value"),
        "cancelled": _rule("value"),
        "moved": _rule("value when"),
        "prompts": _PROMPTS,
    },
    "cause": {
        "first": _rule("value", "when"),
        "third": _rule("name value", f"when {_PRONOUNS}"),
        "reason": _rule("cause", "value"),
        "prompts": _PROMPTS,
    },
    "bond": {
        "first": _rule("value"),
        "third": _rule("name value", _PRONOUNS),
        "change": _rule("value", "old when", required=False),
        "prompts": _PROMPTS,
    },
}
"""Groups of telling forms by kind. A group that is not listed for a kind must stay empty."""
ASKS: Final[Mapping[Kind, Mapping[Ask, Rule]]] = {
    "state": {
        "now": _rule("name"),
        "then": _rule("name when"),
        "when": _rule("name value", required=False),
        "who": _rule("value", required=False),
        "order": _rule("name value other", required=False),
    },
    "preference": {
        "now": _rule("name"),
        "then": _rule("name when"),
        "who": _rule("value", required=False),
    },
    "set": {
        "now": _rule("name"),
        "count": _rule("name"),
        "when": _rule("name value", required=False),
        "who": _rule("value", required=False),
        "order": _rule("name value other", required=False),
    },
    "event": {
        "then": _rule("name when"),
        "when": _rule("name value"),
        "order": _rule("name value other"),
        "count": _rule("name", required=False),
        "where": _rule("name value", required=False),
        "with": _rule("name value", required=False),
        "who": _rule("value", required=False),
    },
    "plan": {"when": _rule("name value"), "outcome": _rule("name value")},
    "cause": {"why": _rule("name value"), "when": _rule("name value", required=False)},
    "bond": {"now": _rule("name")},
}
"""Groups of question forms by kind. `{his}` and its like may stand in any question that
names {name}.
"""


@dataclass(frozen=True, kw_only=True)
class Person:
    """A name with its pronoun."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_FILE
    name: str
    he: Literal["he", "she"]


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """All the language of a world."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_FILE
    relations: tuple[Relation, ...]
    """Types of facts and events."""
    people: tuple[Person, ...]
    """At least 40; even places are for training, odd ones for the test split, he and she
    mixed in both.
    """
    pools: Mapping[str, tuple[str, ...]]
    """Values by pool name: at least 12 each, distinct, lower case unless proper nouns,
    without article and final stop.
    """
    named_pools: frozenset[str] = frozenset()
    """Pools of names (cities, pets' names), split like people: even places for training,
    odd ones for the test split; at least 24 each.
    """
    openings: tuple[str, ...] = ()
    """Turns that begin a session: "Hi {name}, how have you been?"; may name the listener."""
    hellos: tuple[str, ...] = ()
    """The other speaker's answer to an opening; fits any opening, may name the listener."""
    closings: tuple[str, ...] = ()
    """Turns that end a session."""
    small_talk: tuple[str, ...] = ()
    """Turns on weather, traffic, tea and the like, which tell no fact of anybody that
    could be asked; at least 40.
    """
    jokes: tuple[str, ...] = ()
    """Turns that are only funny; at least 16."""
    replies: Mapping[Tone, tuple[str, ...]] = field(default_factory=dict[Tone, tuple[str, ...]])
    """A listener's answers by tone, at least 12 each; fit after anything of that tone,
    told of whomever.
    """
    calendar: Literal["long", "short"] = "long"
    """The names of days: `long` has years, weekdays and weeks ("last Friday", "5 May
    2024"), `short` little ("today", "5 May").
    """
    fillers: tuple[str, ...] = ()
    """Beginnings of a turn set before a telling form: "by the way,", "oh, and"; without
    capital and ending in a comma or a dash.
    """
    denials: tuple[str, ...] = ()
    """Whole sentences that refute what another just said of somebody ("No, that is only
    gossip."); the truth follows in the same turn.
    """
    reminders: tuple[str, ...] = ()
    """Beginnings before a fact told once more: "as I said,", "like I told you,"; form as
    in `fillers`.
    """


_SLOT: Final = re.compile(r"\{(\w+)\}")


def slots_of(form: str) -> frozenset[str]:
    """Return the slots of a form; {a_value} counts as `value`."""
    return frozenset(slot.removeprefix("a_") for slot in _SLOT.findall(form))


def half(forms: Sequence[T], *, held_out: bool) -> tuple[tuple[int, T], ...]:
    """Return the (place, form) pairs of one half: even places for training, odd held out."""
    return tuple(enumerate(forms))[held_out::2]
