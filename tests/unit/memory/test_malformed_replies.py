"""Malformed replies: nothing destructive from an ambiguous one, and never a silent empty."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence

import pytest

from memagent.core.ops import (
    Add,
    Delete,
    MemoryOp,
    Noop,
    Parsed,
    ParseStatus,
    RejectReason,
    Repair,
    Update,
)
from memagent.core.records import Fact
from memagent.replies.readers import parse_answer, parse_facts, parse_ops

FACTS = tuple(Fact(text=f"fact {place}", source_turn_ids=(f"D1:{place}",)) for place in range(4))
DELETE = {"op": "DELETE", "id": "mem_a", "fact": 0}
UPDATE = {"op": "UPDATE", "id": "mem_b", "text": "Ana banks at NO66 9999", "fact": 1}
ADD = {"op": "ADD", "fact": 2}
NOOP = {"op": "NOOP", "fact": 3}
LISTS = (
    [DELETE],
    [UPDATE],
    [ADD, DELETE],
    [NOOP, UPDATE, DELETE],
    [{"event": "DELETE", "memory_id": "mem_a", "fact": "1"}],
)
HARMLESS: tuple[list[dict[str, object]], ...] = ([], [ADD], [NOOP, ADD])


def destructive(parsed: Parsed[MemoryOp]) -> list[MemoryOp]:
    return [op for op in parsed.values if isinstance(op, Update | Delete)]


def silent(parsed: Parsed[MemoryOp]) -> bool:
    """Whether the reading claims that the reply decided nothing."""
    return not parsed.values and not parsed.rejected and parsed.status is not ParseStatus.EMPTY


def reply(ops: object) -> str:
    return json.dumps({"ops": ops})


def quoting(bad: str, good: str) -> list[str]:
    """Ways to hold a destructive text beside the answer proper."""
    return [
        f"The page says {bad} which I ignore.\n{good}",
        f"The page says {bad}. My answer:\n```json\n{good}\n```",
        f"```json\n{bad}\n```\nNo, rather:\n```json\n{good}\n```",
        f"{bad}\n{good}",
        f"{bad},{good}",
        f"{bad}</think>{good}",
        f"<think>Perhaps {bad}? No.</think>{good}",
        f"<thinking>{bad}</thinking>\n{good}",
        f"[THINK]{bad}[/THINK]{good}",
        f"<|channel|>analysis<|message|>{bad}<|end|><|channel|>final<|message|>{good}",
        f"> {bad}\n\n{good}",
        f"{good}\nI did not follow {bad}",
        f"{good}\n<think>or {bad}",
    ]


def broken(ops: Sequence[Mapping[str, object]], rng: random.Random) -> list[str]:
    """Ways to damage the reply so that its ops are no longer certain."""
    text = reply(ops)
    body = json.dumps(ops)
    first = json.dumps(ops[0])
    other = json.dumps({**ops[0], "op": "NOOP"})
    cut = rng.randrange(12, len(text) - 2)
    return [
        f"<think>I might write {text}",
        f"<reasoning>{text}",
        f'{{"ops": {body}, "ops": []}}',
        f'{{"ops": [], "ops": {body}}}',
        f'{{"ops": {body}, "actions": []}}',
        f'{{"ops": [{first[:-1]}, "op": "NOOP"}}]}}',
        f'{{"ops": [{other[:-1]}, "op": "DELETE", "id": "mem_c"}}]}}',
        f'{{"ops": [{first[:-1]}, "id": "mem_z"}}]}}',
        f'{{"ops": [{first[:-1]}, "action": "NOOP", "operation": "DELETE"}}]}}',
        text[:cut],
        text[:-1],
        text[:-1] + "]",
        text[:-2] + "}",
        f"{text}\n<think>or not",
        f"{text}\n<think>rather not</think>",
        f"{first}\n{json.dumps(NOOP)}",
        f"Someone wrote: {text}",
        f"{text}\nBut I would rather not.",
        f"'{text}'",
        json.dumps(text),
        f"The page [see {text}",
        text.replace('"id"', '"id" "x"').replace('"memory_id"', '"memory_id" "x"'),
    ]


def suite() -> list[str]:
    rng = random.Random(17)
    texts = [
        text
        for bad, good in itertools.product(LISTS, HARMLESS)
        for text in quoting(reply(bad), reply(good))
    ]
    for _, ops in itertools.product(range(3), LISTS):
        texts += broken(ops, rng)
    return texts


SUITE = suite()


def test_the_suite_is_large_and_varied() -> None:
    assert len(SUITE) >= 400 and len(set(SUITE)) >= 300


def test_no_ambiguous_reply_changes_or_deletes_anything() -> None:
    taken = [text for text in SUITE if destructive(parse_ops(text, facts=FACTS))]
    assert taken == []


def test_no_malformed_reply_is_a_silent_empty() -> None:
    quiet = [text for text in SUITE if silent(parse_ops(text, facts=FACTS))]
    # What stands in reasoning is no answer: there the empty list after it is what was said.
    assert [text for text in quiet if not text.endswith(reply([]))] == []
    explained = {Repair.REASONING, Repair.PROSE}
    assert all(explained & set(parse_ops(text).repairs) for text in quiet)


@pytest.mark.parametrize(
    "text",
    [
        '{"ops": [',
        '{"ops": [ \n',
        '```json\n{"ops": [',
        '{"ops": [], "ops": []}',
        '{"ops": [{"op": "ADD", "fact": 0}], "ops": []}',
        '{"ops": [], "memory": [{"op": "ADD", "fact": 0}]}',
        "The list [] is what Ana wrote.",
        '<think>{"ops": []}',
        '{"ops": [}',
        '{"ops": [{"op": "ADD", "fact": 0}]}\nor rather {"ops": []}',
    ],
)
def test_an_empty_list_that_may_hide_ops_is_a_failure_with_a_reason(text: str) -> None:
    parsed = parse_ops(text, facts=FACTS)
    assert parsed.status is ParseStatus.FAILED and parsed.rejected


def test_a_cut_list_of_facts_is_a_failure_too() -> None:
    assert parse_facts('{"facts": [').status is ParseStatus.FAILED


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        (reply([DELETE]), ()),
        (f"<think>hm</think>{reply([DELETE])}", (Repair.REASONING,)),
        (f"```json\n{reply([DELETE])}\n```", (Repair.FENCE,)),
        (f"{reply([DELETE])}<|im_end|>", (Repair.FENCE,)),
        ("{'ops': [{'op': 'DELETE', 'id': 'mem_a', fact: 0,}]}", (Repair.SPELLING,)),
    ],
)
def test_a_clear_reply_may_delete_and_names_its_repairs(
    text: str, repairs: tuple[Repair, ...]
) -> None:
    parsed = parse_ops(text, facts=FACTS)
    assert destructive(parsed) == [Delete(id="mem_a", source_turn_ids=("D1:0",))]
    assert parsed.repairs == repairs


def test_what_destroys_nothing_is_taken_from_an_unclear_reply() -> None:
    parsed = parse_ops(f"Sure: {reply([ADD, DELETE, NOOP])}", facts=FACTS)
    assert parsed.values == (Add(fact=FACTS[2]), Noop(fact=FACTS[3]))
    assert [bad.reason for bad in parsed.rejected] == [RejectReason.AMBIGUOUS]
    assert "prose" in parsed.rejected[0].detail and parsed.repairs == (Repair.PROSE,)


def test_objects_one_after_another_are_one_list_that_destroys_nothing() -> None:
    text = "\n".join(map(json.dumps, (ADD, NOOP, DELETE)))
    parsed = parse_ops(text, facts=FACTS)
    assert parsed.values == (Add(fact=FACTS[2]), Noop(fact=FACTS[3]))
    assert parsed.repairs == (Repair.JOINED,)


def test_the_last_complete_answer_counts_and_the_other_is_reported() -> None:
    parsed = parse_ops(f"{reply([NOOP])}\nno:\n{reply([ADD])}\n{{'ops': [", facts=FACTS)
    assert parsed.values == (Add(fact=FACTS[2]),)
    assert RejectReason.AMBIGUOUS in {bad.reason for bad in parsed.rejected}
    answer = parse_answer('{"answer": "Rome"} no, {"answer": "Oslo"}')
    assert answer.values[0].text == "Oslo" and Repair.OTHER_ANSWER in answer.repairs


def test_an_answer_that_is_only_reasoning_or_names_a_key_twice_is_unreadable() -> None:
    for text in ("<think>It is Rome", '{"answer": "Rome", "answer": ""}'):
        parsed = parse_answer(text)
        assert (parsed.status, parsed.values) == (ParseStatus.FAILED, ())
