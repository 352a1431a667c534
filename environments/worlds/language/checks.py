"""The faults of a grammar: `check_grammar` lists all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from environments.worlds.language.spec import (
    ASKS,
    FORMS,
    LEAST,
    PEOPLE,
    Ask,
    Grammar,
    Relation,
    Rule,
    slots_of,
)

_PRONOUN_SLOTS: Final[frozenset[str]] = frozenset(("he", "him", "his"))
_NONE: Final[frozenset[str]] = frozenset()
_GROUPS: Final = tuple(
    "first third hearsay change change_third correct remove remove_third done cancelled moved "
    "reason prompts jokes".split()
)
_TALK: Final[Mapping[str, int]] = {
    "openings": 16,
    "hellos": 12,
    "closings": 12,
    "small_talk": 40,
    "jokes": 16,
    "fillers": 8,
    "denials": 8,
    "reminders": 8,
}


def check_grammar(grammar: Grammar, *, least: int = LEAST) -> None:
    """Raise `ValueError` that lists every fault of a grammar.

    `least` lowers the sizes asked for by `least / 8` (for small grammars).
    """
    faults = [
        fault
        for relation in grammar.relations
        for fault in relation_faults(relation, grammar, least=least)
    ]
    faults += _shared_faults(grammar, least / LEAST)
    if faults:
        raise ValueError(f"{len(faults)} faults in the grammar:\n" + "\n".join(faults))


def relation_faults(relation: Relation, grammar: Grammar, *, least: int = LEAST) -> Iterator[str]:
    """Return the faults of one relation, a line each."""
    share = least / LEAST
    groups: dict[str, tuple[tuple[str, ...], Rule | None]] = {
        group: (getattr(relation, group), FORMS[relation.kind].get(group)) for group in _GROUPS
    }
    rules: Mapping[Ask, Rule] = ASKS[relation.kind]
    asks: list[Ask] = list(dict.fromkeys((*rules, *relation.asks)))
    for ask in asks:
        groups[f"asks[{ask}]"] = (relation.asks.get(ask, ()), rules.get(ask))
    seen: dict[str, str] = {}
    for group, (forms, rule) in groups.items():
        where = f"{relation.name}.{group}"
        if rule is None:
            if forms:
                yield f"{where}: a {relation.kind} has no such forms"
            continue
        if len(forms) < rule.least * share and (forms or rule.required):
            yield f"{where}: {len(forms)} forms, at least {rule.least * share:g} are needed"
        may = rule.needs | rule.may | (_PRONOUN_SLOTS if "name" in rule.needs else _NONE)
        for form in forms:
            if (slots := slots_of(form)) - may or rule.needs - slots:
                yield f"{where}: {form!r} must hold {sorted(rule.needs)} and may hold {sorted(may)}"
            if form in seen:
                yield f"{where}: {form!r} stands in {seen[form]} too"
            seen[form] = group
    yield from _value_faults(relation, grammar)


def _value_faults(relation: Relation, grammar: Grammar) -> Iterator[str]:
    telling = " ".join(form for group in ("first", "third") for form in getattr(relation, group))
    if ("{place}" in telling) != bool(relation.place):
        yield f"{relation.name}.place: {{place}} in telling forms and a pool of places go together"
    if ("{person}" in telling) != relation.company:
        yield f"{relation.name}.company: {{person}} in telling forms and company=True go together"
    for ask, told in (("where", relation.place), ("with", relation.company)):
        if ask in relation.asks and not told:
            yield f"{relation.name}.asks[{ask}]: nothing tells it"
    for pool in filter(None, (relation.values, relation.place)):
        if pool not in grammar.pools and not (pool == PEOPLE and relation.kind == "bond"):
            yield f"{relation.name}: there is no pool {pool!r}"
    yield from _kind_faults(relation)


def _kind_faults(relation: Relation) -> Iterator[str]:
    bond, cause = relation.kind == "bond", relation.kind == "cause"
    if {bool(relation.role), relation.values == PEOPLE} != {bond}:
        yield (
            f"{relation.name}: a bond has a role and the pool {PEOPLE!r}, other kinds have neither"
        )
    if {bool(relation.pairs), not relation.values} != {cause}:
        yield (
            f"{relation.name}: a cause has pairs and no pool, other kinds have a pool and no pairs"
        )
    for word in (word for pair in relation.pairs for word in pair):
        if slots_of(word) - _PRONOUN_SLOTS:
            yield f"{relation.name}.pairs: {word!r} may hold pronouns only"


def _shared_faults(grammar: Grammar, share: float) -> Iterator[str]:
    names = [relation.name for relation in grammar.relations]
    lists: dict[str, tuple[tuple[str, ...], float]] = {
        "relations": (tuple(names), 1),
        "people": (tuple(person.name for person in grammar.people), 40 * share),
    }
    lists |= {f"pools[{name}]": (pool, 12 * share) for name, pool in grammar.pools.items()}
    lists |= {
        f"pools[{name}]": (grammar.pools.get(name, ()), 24 * share)
        for name in sorted(grammar.named_pools)
    }
    lists |= {
        f"replies[{tone}]": (grammar.replies.get(tone, ()), 12 * share)
        for tone in ("good", "bad", "neutral")
    }
    lists |= {group: (getattr(grammar, group), size * share) for group, size in _TALK.items()}
    for where, (texts, size) in lists.items():
        if len(texts) < size:
            yield f"{where}: {len(texts)} entries, at least {size:g} are needed"
        if twice := sorted({text for text in texts if texts.count(text) > 1}):
            yield f"{where}: more than once: {', '.join(twice)}"
    for where, (texts, _) in lists.items():
        named: frozenset[str] = (
            frozenset(("name",)) if where in ("openings", "hellos", "closings") else _NONE
        )
        yield from (
            f"{where}: {text!r} holds a slot that cannot be filled there"
            for text in texts
            if slots_of(text) - named
        )
