"""The large grammar of generated worlds: complete, varied, and without values that
could be mistaken for each other.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from environments import worlds
from environments.worlds.language import spec
from environments.worlds.language.checks import check_grammar
from environments.worlds.language.loading import grammar_of
from environments.worlds.language.spec import Relation, half, slots_of

EVERYDAY = grammar_of("rich")
_RELATIONS = {relation.name: relation for relation in EVERYDAY.relations}


def _groups(relation: Relation) -> dict[str, tuple[str, ...]]:
    told = {
        group: forms for group in spec.FORMS[relation.kind] if (forms := getattr(relation, group))
    }
    return {**told, **{f"asks[{ask}]": forms for ask, forms in relation.asks.items()}}


def test_the_grammar_has_no_fault() -> None:
    check_grammar(EVERYDAY)


def test_there_are_relations_of_every_kind_and_many() -> None:
    kinds = Counter(relation.kind for relation in EVERYDAY.relations)
    assert sum(kinds.values()) >= 60
    assert (
        min(
            kinds[kind] for kind in ("state", "preference", "set", "event", "plan", "cause", "bond")
        )
        >= 5
    )


@pytest.mark.parametrize("pool", [*EVERYDAY.pools, "people"])
def test_no_value_is_part_of_another_of_its_pool(pool: str) -> None:
    values = (
        [person.name for person in EVERYDAY.people] if pool == "people" else EVERYDAY.pools[pool]
    )
    assert [
        (one, other) for one, other in permutations(values, 2) if one.lower() in other.lower()
    ] == []


def test_no_person_shares_a_name_with_a_pet_or_a_city() -> None:
    names = {person.name for person in EVERYDAY.people}
    assert names.isdisjoint(
        (*EVERYDAY.pools["pets"], *EVERYDAY.pools["cities"], *EVERYDAY.pools["countries"])
    )


def test_both_halves_of_the_people_hold_as_many_women_as_men() -> None:
    for held_out in (False, True):
        pronouns = Counter(person.he for _, person in half(EVERYDAY.people, held_out=held_out))
        assert pronouns["he"] == pronouns["she"]


@pytest.mark.parametrize("name", _RELATIONS)
def test_what_a_question_can_ask_is_told_in_both_halves(name: str) -> None:
    relation = _RELATIONS[name]
    for held_out in (False, True):
        told = [
            slots_of(form)
            for group in ("first", "third")
            for _, form in half(getattr(relation, group), held_out=held_out)
        ]
        for ask, slot in (("where", "place"), ("with", "person")):
            assert ask not in relation.asks or any(slot in slots for slots in told)


@pytest.mark.parametrize("name", _RELATIONS)
def test_changes_are_told_with_a_date_in_both_halves(name: str) -> None:
    for group in ("change", "change_third"):
        forms = getattr(_RELATIONS[name], group)
        for held_out in (False, True) if forms else ():
            assert any("when" in slots_of(form) for _, form in half(forms, held_out=held_out)), (
                group
            )


def test_no_form_means_two_things() -> None:
    """A question that names a value says by it what it is about; causes share even
    theirs, and listeners ask as they like.
    """
    seen = Counter(
        form
        for relation in EVERYDAY.relations
        for group, forms in _groups(relation).items()
        if group != "prompts" and relation.kind != "cause"
        for form in forms
        if not (group.startswith("asks") and "value" in slots_of(form))
    )
    assert [form for form, count in seen.items() if count > 1] == []


def test_the_data_files_hold_no_machine_made_marks() -> None:
    files = list(Path(worlds.__file__).parent.glob("data/rich/relations/*.toml"))
    assert len(files) == 15
    for file in files:
        assert not set("$@%~^`|&") & set(file.read_text(encoding="utf-8")), file.name
