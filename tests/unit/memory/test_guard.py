"""The guard: a sloppy model cannot harm a memory, a careful one is not hindered.

Each case is a memory, a turn, the fact taken from it, and the op a model proposes.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memagent.core.ops import Add, Delete, MemoryOp, Noop, OpBatch, OpLimits, Update
from memagent.core.records import Chunk, Fact, MemoryItem, Turn
from memagent.state.backing import Guard
from memagent.state.validation import NOT_DECIDED, validate_ops

DAY = datetime(2024, 9, 10, tzinfo=UTC)


def item(text: str, number: int = 0, subject: str = "Ana") -> MemoryItem:
    return MemoryItem(
        id=f"mem_{number}", text=text, speaker=subject, subject=subject, said_at=DAY,
    )  # fmt: skip


def judged(
    items: list[MemoryItem],
    turns: list[str],
    facts: list[Fact],
    ops: list[MemoryOp],
    guard: Guard | None = None,
) -> OpBatch:
    chunk = Chunk(
        id="s#0", session_id="s", index=0, count=1, at=DAY,
        turns=tuple(Turn(id=f"t{at}", speaker="Ana", text=text) for at, text in enumerate(turns)),
    )  # fmt: skip
    visible = {entry.id: entry for entry in items}
    return validate_ops(
        ops, visible=visible, limits=OpLimits(), chunk=chunk, guard=guard or Guard(), facts=facts
    )


def fact(text: str, turn: int = 0, subject: str = "Ana") -> Fact:
    return Fact(text=text, speaker="Ana", subject=subject, source_turn_ids=(f"t{turn}",))


def update(text: str, *about: int, to: int = 0) -> Update:
    return Update(id=f"mem_{to}", text=text, source_turn_ids=("t0",), about=about or (0,))


def delete(to: int = 0, *about: int) -> Delete:
    return Delete(id=f"mem_{to}", source_turn_ids=("t0",), about=about or (0,))


SLOPPY: dict[str, tuple[list[str], str, str, list[MemoryOp]]] = {
    "a name and a number nobody told": (
        ["Ana lives in Porto"], "I work at the bakery.", "Ana works at the bakery",
        [update("Ana lives in Paris with three cats")]),
    "an invented number": (
        ["Ana has a dog"], "My dog is called Rex.", "Ana's dog is called Rex",
        [update("Ana has a dog called Rex who is 7")]),
    "a denial nobody told": (
        ["Ana eats meat"], "I ate meat at lunch.", "Ana ate meat at lunch",
        [update("Ana does not eat meat")]),
    "a denial left out": (
        ["Ana eats meat"], "I don't eat meat any more.", "Ana does not eat meat any more",
        [update("Ana eats meat")]),
    "one fact deletes four memories": (
        ["Ana lives in Porto", "Ana works at a bakery", "Ana has a dog", "Ana plays the cello"],
        "I live in Lisbon now.", "Ana lives in Lisbon now", [delete(at) for at in range(4)]),
    "a deletion by something unrelated": (
        ["Ana plays the cello"], "I had soup today.", "Ana had soup", [delete()]),
    "an update of an unrelated memory": (
        ["Ana plays the cello"], "I had soup today.", "Ana had soup", [update("Ana had soup")]),
    "a second pet ends the first": (
        ["Ana has a cat called Miso"], "We got another cat, Nori.", "Ana got another cat, Nori",
        [delete()]),
    "a joke": (
        ["Ana lives in Porto"], "Just kidding, I live on Mars, lol.", "Ana lives on Mars",
        [update("Ana lives on Mars")]),
    "hearsay": (
        ["Tom works at the bank"], "I heard that Tom quit the bank.", "Tom quit the bank", [delete()]),
    "a hypothetical": (
        ["Ana lives in Porto"], "If I won, I would live in Rome.", "Ana lives in Rome",
        [update("Ana lives in Rome")]),
    "a question": (
        ["Ana drives a van"], "Should I sell the van?", "Ana sells the van", [delete()]),
    "a plan taken for done": (
        ["Ana lives in Porto"], "I'm thinking of moving to Rome.", "Ana is thinking of moving to Rome",
        [delete()]),
    "another person's change": (
        ["Ana lives in Porto"], "My sister Mia moved to Rome.", "Mia moved to Rome",
        [update("Ana moved to Rome")]),
    "the same said again ends it": (
        ["Ana lives in Porto"], "I live in Porto.", "Ana lives in Porto", [delete()]),
    "a no-op for something else": (
        ["Ana has a dog"], "I am allergic to nuts.", "Ana is allergic to nuts",
        [Noop(id="mem_0", about=(0,))]),
    "a no-op over another number": (
        ["Ana has 2 dogs"], "I have 3 dogs now.", "Ana has 3 dogs", [Noop(id="mem_0", about=(0,))]),
    "a fact that no op names": (["Ana has a dog"], "I am a nurse.", "Ana is a nurse", []),
    "an update that drops the rest": (
        ["Ana has a dog called Rex and a cat called Miso"], "My dog is old.", "Ana's dog is old",
        [update("Ana's dog is old")]),
    "an addition that invents": (
        [], "I moved to Porto.", "Ana moved to Porto",
        [Add(fact=fact("Ana moved to Porto with her husband Paul"), about=(0,))]),
    "a liking turned around": (
        ["Ana hates mushrooms"], "I cooked mushrooms.", "Ana cooked mushrooms",
        [update("Ana likes mushrooms and cooked mushrooms")]),
    "an id that was not shown": (
        ["Ana has a dog"], "The dog died.", "Ana's dog died", [delete(9)]),
}  # fmt: skip


def subject_of(text: str) -> str:
    return text.split()[0].removesuffix("'s")


def test_at_most_one_of_twenty_sloppy_behaviours_gets_through() -> None:
    through: list[str] = []
    for name, (memories, turn, told, ops) in SLOPPY.items():
        items = [item(text, at, subject_of(text)) for at, text in enumerate(memories)]
        batch = judged(items, [turn], [fact(told, subject=subject_of(told))], ops)
        harmful = [op for op in batch.accepted if isinstance(op, Update | Delete)]
        allowed = 1 if name.startswith("one fact deletes") else 0
        kept = any(isinstance(op, Add) and op.fact.text == told for op in batch.accepted)
        known = told in memories
        if len(harmful) > allowed or not (kept or known):
            through.append(name)
    assert len(SLOPPY) >= 20
    assert len(through) <= 1, through


PLACES = [
    ("Porto", "Lisbon"),
    ("Bath", "Leeds"),
    ("Kiel", "Bonn"),
    ("Oslo", "Bergen"),
    ("Faro", "Braga"),
]
JOBS = [
    ("nurse", "teacher"),
    ("baker", "pilot"),
    ("waiter", "cook"),
    ("clerk", "editor"),
    ("guard", "driver"),
]
PETS = [("dog", "Rex"), ("cat", "Miso"), ("parrot", "Kiki"), ("rabbit", "Flop"), ("pony", "Star")]
Case = tuple[str, str, str, MemoryOp]


def right_cases() -> list[Case]:
    cases: list[Case] = []
    for old, new in PLACES:
        cases += [
            (f"Ana lives in {old}", f"We moved to {new} last week!", f"Ana moved to {new}", update(f"Ana lives in {new}")),
            (f"Ana lives in {old}", f"I live in {new} now.", f"Ana lives in {new} now", delete()),
            (f"Ana lives in {old}", f"I left {old}, I live in {new}.", f"Ana left {old} and lives in {new}", update(f"Ana left {old} and lives in {new} now")),
            (f"Ana lives in {old}", f"I still live in {old}.", f"Ana still lives in {old}", Noop(id="mem_0", about=(0,))),
            (f"Ana lives in {old}", "Our flat has a balcony, I live on the top floor.", "Ana lives on the top floor", update(f"Ana lives in {old} on the top floor")),
            (f"Ana is going to {old} in May", f"The trip to {old} is off, I cancelled it.", f"Ana cancelled the trip to {old}", delete()),
            (f"Ana plans to move to {old}", f"I moved to {old} in June 2024.", f"Ana moved to {old} in June 2024", update(f"Ana moved to {old} in June 2024")),
            (f"Ana was born in {old}", f"I was not born in {old} but in {new}.", f"Ana was not born in {old} but in {new}", update(f"Ana was born in {new}")),
        ]  # fmt: skip
    for old, new in JOBS:
        cases += [
            (f"Ana works as a {old}", f"I work as a {new} now.", f"Ana works as a {new} now", update(f"Ana works as a {new} now")),
            (f"Ana works as a {old}", f"I quit, I am no longer a {old}.", f"Ana is no longer a {old}", update(f"Ana no longer works as a {old}")),
            (f"Ana works as a {old}", f"I quit my job as a {old}.", f"Ana quit her job as a {old}", delete()),
            (f"Ana works as a {old}", f"I am a {old}, you know.", f"Ana is a {old}", Noop(id="mem_0", about=(0,))),
            (f"Ana is looking for work as a {new}", f"They hired me as a {new}!", f"Ana was hired as a {new}", update(f"Ana was hired as a {new}")),
            (f"Ana works as a {old}", "I work nights, from 10 pm.", "Ana works nights from 10 pm", update(f"Ana works as a {old}, nights from 10 pm")),
            (f"Ana earns 1200 as a {old}", f"I earn 1500 as a {old} now.", f"Ana earns 1500 as a {old}", update(f"Ana earns 1500 as a {old}")),
            (f"Ana trains to be a {new}", f"I stopped training to be a {new}.", f"Ana stopped training to be a {new}", delete()),
        ]  # fmt: skip
    for kind, name in PETS:
        cases += [
            (f"Ana has a {kind}", f"My {kind} is called {name}.", f"Ana's {kind} is called {name}", update(f"Ana has a {kind} called {name}")),
            (f"Ana has a {kind} called {name}", f"{name} died last night.", f"Ana's {kind} {name} died", delete()),
            (f"Ana has a {kind} called {name}", f"I gave {name} away.", f"Ana gave {name} away", update(f"Ana gave her {kind} {name} away")),
            (f"Ana has a {kind} called {name}", f"My {kind} {name} sleeps all day.", f"Ana's {kind} is called {name}", Noop(id="mem_0", about=(0,))),
            (f"Ana has 2 {kind}s", f"I have three {kind}s now.", f"Ana has three {kind}s now", update(f"Ana has three {kind}s now")),
            (f"Ana wants a {kind}", f"I got a {kind}, {name}!", f"Ana got a {kind} called {name}", update(f"Ana got a {kind} called {name}")),
            (f"Ana is allergic to her {kind}", f"The doctor says I am not allergic to the {kind}.", f"Ana is not allergic to the {kind}", delete()),
            (f"Ana's {kind} is called {name}", f"My {kind} {name} is 4.", f"Ana's {kind} {name} is 4", update(f"Ana's {kind} {name} is 4")),
        ]  # fmt: skip
    for number, (thing, other) in enumerate(
        [
            ("tea", "coffee"),
            ("chess", "tennis"),
            ("jazz", "rock"),
            ("rice", "pasta"),
            ("red", "blue"),
        ],
        2,
    ):
        cases += [
            (f"Ana likes {thing}", f"I hate {thing} now.", f"Ana hates {thing} now", update(f"Ana hates {thing} now")),
            (f"Ana likes {thing}", f"I don't like {thing} any more.", f"Ana does not like {thing} any more", delete()),
            (f"Ana likes {thing}", f"I love {thing}, as ever.", f"Ana loves {thing}", Noop(id="mem_0", about=(0,))),
            (f"Ana's favourite is {thing}", f"My favourite is {other} now.", f"Ana's favourite is {other} now", update(f"Ana's favourite is {other} now")),
            (f"Ana has had {thing} for {number} years", f"It is {number + 1} years of {thing} now.", f"Ana has had {thing} for {number + 1} years", update(f"Ana has had {thing} for {number + 1} years")),
            (f"Ana's meeting about {thing} is on Monday", f"The meeting about {thing} moved to Friday.", f"Ana's meeting about {thing} moved to Friday", update(f"Ana's meeting about {thing} is on Friday")),
            (f"Ana's phone number is 555{number}1", f"My new phone number is 777{number}2.", f"Ana's phone number is 777{number}2", update(f"Ana's phone number is 777{number}2")),
            (f"Ana is engaged to Paul{number}", f"Paul{number} and I broke up.", f"Ana and Paul{number} broke up", delete()),
        ]  # fmt: skip
    german = [
        ("Ana wohnt in Kiel", "Ich wohne jetzt in Bonn.", "Ana wohnt jetzt in Bonn", update("Ana wohnt jetzt in Bonn")),
        ("Ana isst Fleisch", "Ich esse kein Fleisch mehr.", "Ana isst kein Fleisch mehr", update("Ana isst kein Fleisch mehr")),
        ("Ana vive en Faro", "Ahora vivo en Braga.", "Ana vive ahora en Braga", update("Ana vive ahora en Braga")),
        ("Ana tiene un perro", "Mi perro se llama Rex.", "El perro de Ana se llama Rex", update("Ana tiene un perro, se llama Rex")),
    ]  # fmt: skip
    return [*cases, *german]


def varied() -> list[Case]:
    """Return the cases as said, and with another sentence around them."""
    cases = right_cases()
    return [
        *cases,
        *((old, f"Hello! {turn} How are you?", told, op) for old, turn, told, op in cases),
    ]


def test_no_right_op_of_a_careful_model_is_refused() -> None:
    cases = varied()
    refused: list[str] = []
    for old, turn, told, op in cases:
        batch = judged([item(old)], [turn], [fact(told)], [op])
        refused += [f"{old} | {turn} | {op.op}: {entry.detail}" for entry in batch.rejected]
    assert len(cases) >= 200
    assert refused == [], "\n".join(refused)


def test_a_fact_that_no_op_names_is_added_and_a_deletion_keeps_its_fact() -> None:
    facts = [fact("Ana lives in Lisbon now"), fact("Ana is a nurse", 1)]
    batch = judged(
        [item("Ana lives in Porto")], ["I live in Lisbon now.", "I am a nurse."], facts, [delete()]
    )
    added = {op.fact.text: op.reason for op in batch.accepted if isinstance(op, Add)}
    assert added == {"Ana lives in Lisbon now": "it ends mem_0", "Ana is a nurse": NOT_DECIDED}
    assert batch.rejected == ()


def test_a_guard_that_only_watches_keeps_its_verdict_and_refuses_nothing() -> None:
    batch = judged(
        [item("Ana lives in Porto")], ["I had soup."], [fact("Ana had soup")],
        [update("Ana lives in Paris")], Guard(enforce=False),
    )  # fmt: skip
    assert [op.op for op in batch.accepted] == ["UPDATE"]
    assert [entry.op and entry.op.op for entry in batch.doubts] == ["UPDATE"]
    assert "doubts" not in batch.model_dump(), "a verdict is never stored"


@pytest.mark.parametrize("backed", [True, False, None])
def test_a_pair_head_has_the_last_word(backed: bool | None) -> None:
    guard = Guard(pair=lambda _old, _new, _fact: backed)
    batch = judged(
        [item("Ana lives in Porto"), item("Ana's flat in Porto is small", 1)],
        ["I live in Lisbon now."], [fact("Ana lives in Lisbon now")], [delete(0), delete(1)], guard,
    )  # fmt: skip
    ended = sum(isinstance(op, Delete) for op in batch.accepted)
    assert ended == {True: 2, False: 0, None: 1}[backed]
