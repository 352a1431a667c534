"""Reading models' replies: what is usable stays, what is not becomes a reason, and no
text makes it slow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from memagent.core.ops import Add, Delete, Noop, ParseStatus, RejectReason, Update
from memagent.core.records import Fact, TimeSpan
from memagent.replies.entries import MAX_ENTRIES, MAX_TEXT_CHARS, extract_json
from memagent.replies.readers import parse_answer, parse_facts, parse_ops
from memagent.replies.tolerant_json import MAX_DEPTH

MAY = TimeSpan(start=datetime(2023, 5, 7, tzinfo=UTC), end=datetime(2023, 5, 8, tzinfo=UTC))
CAT = Fact(
    text="Ana adopted a cat", subject="Ana", speaker="Ana", source_turn_ids=("D1:3",), valid=MAY
)
TEA = Fact(text="Ben likes tea", subject="Ben", speaker="Ben", source_turn_ids=("D1:4", "D1:5"))
FACTS = (CAT, TEA)


# -- finding JSON ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('Sure! Here are [3] ops:\n```json\n{"ops": [1]}\n```\nDone.', {"ops": [1]}),
        ('```\n{"ops": [1]}', {"ops": [1]}),
        ('<think>{"ops": [9]} maybe</think>{"ops": [1]}', {"ops": [1]}),
        ('I decided: {"ops": [1]} as asked.', {"ops": [1]}),
        ('{"a": [1, 2,], }', {"a": [1, 2]}),
        ("{'a': 'it is', 'b': None, 'c': True}", {"a": "it is", "b": None, "c": True}),
        ("{a: ADD, b: 2}", {"a": "ADD", "b": 2}),
        ('[{"a": 1} {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('{"a": "x" "b": "y"}', {"a": "x", "b": "y"}),
        ('{"a": "She said "hi", and left", "b": 1}', {"a": 'She said "hi", and left', "b": 1}),
        ('{"a": "two\nlines"}', {"a": "two\nlines"}),
        ('{"a": 1, // note\n "b": /* more */ 2}', {"a": 1, "b": 2}),
        ('{"a": [1, 2}', {"a": [1, 2]}),
        ('{"a": [1, {"b": 2}', {"a": [1, {"b": 2}]}),
        ("{\u201ca\u201d: \u201cx\u201d}", {"a": "x"}),
        ('{"a": "\\u00e9 \\ud83d\\ude00 \\"q\\"",}', {"a": '\u00e9 \U0001f600 "q"'}),
        ("{a: [D1:3, D1:4]}", {"a": ["D1:3", "D1:4"]}),
        ('{"a": 1,,"b": 2}', {"a": 1, "b": 2}),
    ],
)
def test_common_mistakes_are_mended(text: str, value: object) -> None:
    found = extract_json(text, wanted=lambda it: isinstance(it, dict) or it == value)
    assert (found.status, found.value) == (ParseStatus.REPAIRED, value)


@pytest.mark.parametrize("value", [{}, [], {"a": [None, True, 1.5, "\u00e9\n"]}, [[[1]]]])
def test_valid_json_is_strict(value: object) -> None:
    found = extract_json(f" \n{json.dumps(value)}\n")
    assert (found.status, found.value) == (ParseStatus.STRICT, value)


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_blank_text_is_empty(text: str) -> None:
    assert extract_json(text).status is ParseStatus.EMPTY
    assert parse_ops(text).status is ParseStatus.EMPTY


@pytest.mark.parametrize(
    "text", ["nothing to do", "3", '"text"', "null", "true", "[", "x" * (MAX_TEXT_CHARS + 1)]
)
def test_what_is_no_object_or_array_fails(text: str) -> None:
    assert extract_json(text).status is ParseStatus.FAILED


def test_what_is_cut_off_is_dropped_and_never_guessed() -> None:
    assert extract_json('{"text": "Ana moved to Ber').value == {}
    assert extract_json('{"a": "whole", "n": 1').value == {"a": "whole"}
    parsed = parse_ops(
        '{"ops": [{"op": "ADD", "fact": 0}, {"op": "DELETE", "id": "mem_1', facts=FACTS
    )
    assert parsed.values == (Add(fact=CAT),)
    assert [bad.reason for bad in parsed.rejected] == [
        RejectReason.INVALID_FIELDS,
        RejectReason.CUT_OFF,
    ]


def test_a_value_that_swallowed_the_next_key_is_dropped() -> None:
    assert extract_json('{"text": "x" stray, "id": "mem_1"}').value == {"id": "mem_1"}


def test_the_tolerant_reader_stops_at_its_depth() -> None:
    deep = "[" * (MAX_DEPTH - 1) + "{a: 1}" + "]" * (MAX_DEPTH - 1)
    assert extract_json(deep).status is ParseStatus.REPAIRED
    assert extract_json(f"[{deep}]").status is ParseStatus.FAILED


HOSTILE = [
    "[",
    "{",
    '["',
    '{"',
    '{"a":',
    '[{"a":[',
    "[]",
    "][",
    '"',
    "'",
    "\"'",
    '["\'"',
    "\\",
    '"\\',
    "/*",
    "//",
    "```",
    "```{",
    "</think>{",
]
HOSTILE += [
    '["a" "',
    '"a":"',
    '{"a":"x"y,',
    '{"]{""',
    ",'\"",
    "{a:",
    " ",
    "\n",
    '","',
    "a[1]",
    "Answer: ",
    "[mem_1]",
    "[D1:3",
    '{"":',
]


def least_seconds(work: Callable[[], object]) -> float:
    """The least time of this thread in three runs, so that a busy machine does not count."""
    times: list[float] = []
    for _ in range(3):
        started = time.thread_time()
        work()
        times.append(time.thread_time() - started)
    return min(times)


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("prefix", ["", '{"ops": [', '{"ops": [{"op": "ADD", "text": "', "["])
def test_hostile_text_is_read_in_proportion_to_its_length(prefix: str, unit: str) -> None:
    def parse(text: str) -> None:
        parse_ops(text, facts=FACTS)
        parse_facts(text)
        parse_answer(text)

    text = prefix + unit * 8_192
    short = least_seconds(lambda: parse(text[:1_024]))
    assert least_seconds(lambda: parse(text[:8_192])) < 24 * max(short, 1e-3)


@pytest.mark.parametrize("unit", ["[", '{"', '["\'"', '{"]{""', '"a":"', "[]", "```{"])
def test_cost_grows_in_proportion_to_the_text(unit: str) -> None:
    def cost(chars: int) -> float:
        text = ('{"ops": [' + unit * chars)[:chars]
        return least_seconds(lambda: extract_json(text))

    assert cost(16_000) < 24 * max(
        cost(2_000), 2e-4
    )  # eight times the text; a quadratic reader would need 64 times as long


@given(st.text(alphabet="{}[]\",:'\\/*abAD0. \n\u201c`<>-#", max_size=300))
def test_no_text_makes_a_parser_raise(text: str) -> None:
    for parsed in (parse_ops(text, facts=FACTS), parse_facts(text), parse_answer(text)):
        assert (
            parsed.values
            or parsed.rejected
            or parsed.status
            in (
                ParseStatus.EMPTY,
                ParseStatus.STRICT,
                ParseStatus.REPAIRED,
            )
        )
        assert parsed.status is not ParseStatus.FAILED or parsed.rejected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
OP_LIKE = st.dictionaries(
    st.sampled_from(
        ["op", "event", "fact", "id", "text", "sources", "version", "metadata", "tags", "reason"]
    ),
    JSON | st.just("ADD"),
)


@given(st.lists(OP_LIKE | JSON, max_size=6))
def test_every_entry_is_read_or_rejected(entries: list[object]) -> None:
    text = json.dumps({"ops": entries})
    parsed = parse_ops(text, facts=FACTS)
    assert len(parsed.values) + len(parsed.rejected) == len(entries)
    assert all(len(bad.raw) <= 500 for bad in parsed.rejected)


# -- ops -------------------------------------------------------------------------------


def test_every_op_is_read_in_its_wire_form() -> None:
    text = json.dumps(
        {
            "ops": [
                {"op": "ADD", "fact": 0, "reason": "new"},
                {
                    "op": "ADD",
                    "text": "Ben has a dog",
                    "sources": ["D1:9"],
                    "speaker": "Ben",
                    "subject": "Ben",
                },
                {
                    "op": "UPDATE",
                    "id": "mem_a",
                    "text": "Ben likes green tea",
                    "fact": 1,
                    "version": 3,
                },
                {"op": "DELETE", "id": "mem_b", "fact": 0},
                {"op": "NOOP", "fact": 1, "id": "mem_c"},
            ]
        }
    )
    parsed = parse_ops(text, facts=FACTS)
    assert parsed.status is ParseStatus.STRICT
    assert parsed.values == (
        Add(fact=CAT, reason="new"),
        Add(
            fact=Fact(text="Ben has a dog", source_turn_ids=("D1:9",), speaker="Ben", subject="Ben")
        ),
        Update(
            id="mem_a", text="Ben likes green tea", source_turn_ids=TEA.source_turn_ids, version=3
        ),
        Delete(id="mem_b", source_turn_ids=("D1:3",)),
        Noop(id="mem_c", fact=TEA),
    )


def test_an_update_takes_time_and_turns_from_its_fact() -> None:
    (op,) = parse_ops('{"op": "UPDATE", "id": "m", "text": "t", "fact": 0}', facts=FACTS).values
    assert isinstance(op, Update) and op.valid == MAY and op.source_turn_ids == ("D1:3",)
    (op,) = parse_ops(
        '{"op": "UPDATE", "id": "m", "text": "t", "fact": 0, "sources": ["D1:8"]}', facts=FACTS
    ).values
    assert isinstance(op, Update) and op.source_turn_ids == ("D1:8",)


def test_where_the_fact_is_the_text_an_update_writes_it_unless_it_brings_its_own() -> None:
    def read(entry: str, *, facts: tuple[Fact, ...] = FACTS) -> object:
        parsed = parse_ops(f'{{"ops": [{entry}]}}', facts=facts, fact_is_text=True)
        return parsed.values[0] if parsed.values else parsed.rejected[0].reason

    wrote = read('{"fact": 0, "op": "UPDATE", "id": "m"}')
    assert wrote == Update(id="m", text=CAT.text, source_turn_ids=CAT.source_turn_ids, valid=MAY)
    brought = read('{"fact": 0, "op": "UPDATE", "id": "m", "text": "Ana has two cats"}')
    assert isinstance(brought, Update) and brought.text == "Ana has two cats"
    assert read('{"op": "UPDATE", "id": "m"}') is RejectReason.EMPTY_TEXT  # which fact, nobody said
    assert read('{"fact": 7, "op": "UPDATE", "id": "m"}') is RejectReason.UNRESOLVED
    assert read('{"fact": 0, "op": "UPDATE"}') is RejectReason.INVALID_FIELDS


@pytest.mark.parametrize(
    "text",
    [
        '[{"op": "NOOP", "fact": 0}]',
        '{"op": "NOOP", "fact": 0}',
        '{"operations": [{"op": "NOOP", "fact": 0}]}',
    ],
)
def test_lists_and_single_objects_are_read(text: str) -> None:
    assert parse_ops(text, facts=FACTS).values == (Noop(fact=CAT),)


@pytest.mark.parametrize("text", ["[]", '{"ops": []}'])
def test_no_ops_is_a_legal_reply(text: str) -> None:
    parsed = parse_ops(text)
    assert (parsed.status, parsed.values, parsed.rejected) == (ParseStatus.STRICT, (), ())


@pytest.mark.parametrize(
    ("entry", "op"),
    [
        ({"event": "NONE", "id": 7, "fact": 0}, Noop(id="7", fact=CAT)),
        (
            {"event": "update", "id": "0", "memory": "x", "fact": "1"},
            Update(id="0", text="x", source_turn_ids=TEA.source_turn_ids),
        ),
        ({"action": "No-Op", "fact": "fact 1"}, Noop(fact=TEA)),
        (
            {"operation": "remove", "memory_id": "[mem_1]", "fact": [1]},
            Delete(id="mem_1", source_turn_ids=TEA.source_turn_ids),
        ),
        ({"type": "Add", "fact": 1.0}, Add(fact=TEA)),
        (
            {"op": "add", "text": "ben LIKES tea"},
            Add(fact=TEA.model_copy(update={"text": "ben LIKES tea"})),
        ),
        (
            {"op": "ADD", "text": "x", "source": "D1:1, D1:2"},
            Add(fact=Fact(text="x", source_turn_ids=("D1:1", "D1:2"))),
        ),
    ],
)
def test_other_spellings_are_understood(entry: dict[str, object], op: object) -> None:
    assert parse_ops(json.dumps({"memory": [entry]}), facts=FACTS).values == (op,)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("ADD", RejectReason.NOT_AN_OBJECT),
        (None, RejectReason.NOT_AN_OBJECT),
        ({"op": "FORGET", "id": "m"}, RejectReason.UNKNOWN_OP),
        ({"fact": 0}, RejectReason.UNKNOWN_OP),
        ({"op": "ADD", "fact": 2}, RejectReason.UNRESOLVED),
        ({"op": "ADD", "fact": -1}, RejectReason.UNRESOLVED),
        ({"op": "ADD", "fact": True}, RejectReason.UNRESOLVED),
        ({"op": "ADD", "fact": 1e9}, RejectReason.UNRESOLVED),
        ({"op": "ADD", "fact": "mem_1"}, RejectReason.UNRESOLVED),
        ({"op": "ADD"}, RejectReason.INVALID_FIELDS),
        ({"op": "ADD", "text": "x", "metadata": {"a": [1]}}, RejectReason.INVALID_FIELDS),
        ({"op": "ADD", "text": "x" * 2_001}, RejectReason.TEXT_TOO_LONG),
        ({"op": "UPDATE", "id": "m", "fact": 0}, RejectReason.EMPTY_TEXT),
        ({"op": "UPDATE", "id": "m", "text": "  "}, RejectReason.EMPTY_TEXT),
        ({"op": "UPDATE", "id": "m", "text": "x" * 8_001}, RejectReason.TEXT_TOO_LONG),
        ({"op": "UPDATE", "text": "x"}, RejectReason.INVALID_FIELDS),
        ({"op": "DELETE"}, RejectReason.INVALID_FIELDS),
        ({"op": "DELETE", "id": "m" * 300}, RejectReason.INVALID_FIELDS),
    ],
)
def test_a_bad_entry_is_rejected_with_a_reason_and_the_good_ones_stay(
    entry: object, reason: RejectReason
) -> None:
    parsed = parse_ops(json.dumps({"ops": [{"op": "NOOP", "fact": 0}, entry]}), facts=FACTS)
    assert (parsed.status, parsed.values) == (ParseStatus.PARTIAL, (Noop(fact=CAT),))
    assert [bad.reason for bad in parsed.rejected] == [reason]
    assert parse_ops(json.dumps([entry]), facts=FACTS).status is ParseStatus.FAILED


def test_where_one_fact_is_shown_it_is_the_default() -> None:
    assert parse_ops('{"ops": [{"op": "ADD"}]}', facts=[CAT]).values == (Add(fact=CAT),)
    assert parse_ops('{"ops": [{"op": "DELETE", "id": "m"}]}', facts=[CAT]).values == (
        Delete(id="m", source_turn_ids=("D1:3",)),
    )


def test_an_unreadable_reply_is_never_a_silent_nothing() -> None:
    for text in ("I think we should add it.", "{}", '{"thoughts": "none"}', "[" * 9_000):
        parsed = parse_ops(text, facts=FACTS)
        assert parsed.status is ParseStatus.FAILED
        assert parsed.rejected and parsed.rejected[0].raw == text[:500]


def test_entries_beyond_the_limit_are_counted_once() -> None:
    parsed = parse_ops(json.dumps([{"op": "NOOP"}] * (MAX_ENTRIES + 5)))
    assert len(parsed.values) == MAX_ENTRIES
    assert [bad.reason for bad in parsed.rejected] == [RejectReason.TOO_MANY_OPS]


@pytest.mark.parametrize(("lines", "kept"), [(150, 150), (MAX_ENTRIES, 256), (400, MAX_ENTRIES)])
def test_objects_line_by_line_are_one_list_up_to_the_limit(lines: int, kept: int) -> None:
    parsed = parse_facts("\n".join(json.dumps({"text": f"f{at}"}) for at in range(lines)))
    assert [fact.text for fact in parsed.values] == [f"f{at}" for at in range(kept)]
    too_many = [RejectReason.TOO_MANY_OPS] if lines > MAX_ENTRIES else []
    assert [bad.reason for bad in parsed.rejected] == too_many


def test_a_list_of_plain_texts_is_corrected_like_any_other() -> None:
    parsed = parse_facts('{"facts": ["Bo drinks tea"]} No: {"facts": ["Bo drinks coffee"]}')
    assert [fact.text for fact in parsed.values] == ["Bo drinks coffee"]
    assert "an earlier answer" in parsed.rejected[0].detail


def test_a_bare_address_is_no_comment_and_an_escape_no_end_of_a_key() -> None:
    (fact,) = parse_facts('{"facts": [{"text": http://example.com/x // a comment\n}]}').values
    assert fact.text == "http://example.com/x"
    found = extract_json('{"text": "Ana said "hi, "new\\nkey": 1, "a": }')
    assert isinstance(found.value, dict) and "key" not in found.value


def test_what_is_broken_and_too_long_to_mend_is_said() -> None:
    parsed = parse_facts('{"facts": [' + "tea " * 5_000)
    assert "over 16384 characters is not mended" in parsed.rejected[0].detail


def test_the_list_that_is_meant_is_found_among_others() -> None:
    text = (
        'Facts seen: [0, 1]. My notes {"plan": "add"}.\nResult: {"ops": [{"op": "ADD", "fact": 1}]}'
    )
    assert parse_ops(text, facts=FACTS).values == (Add(fact=TEA),)


# -- facts -----------------------------------------------------------------------------


def test_facts_are_read_with_their_phrases() -> None:
    text = json.dumps(
        {
            "facts": [
                {
                    "text": "Ana ran",
                    "subject": "Ana",
                    "speaker": "Ana",
                    "source": "D1:3",
                    "when": "7 May 2023",
                    "kind": "Event",
                },
                {"fact": "Ben slept", "sources": ["D1:4", "D1:4"], "when": None},
                "Carl waits",
                {"subject": "nobody"},
                5,
            ]
        }
    )
    parsed = parse_facts(text)
    assert parsed.status is ParseStatus.PARTIAL
    assert [(fact.text, fact.source_turn_ids, fact.when, fact.kind) for fact in parsed.values] == [
        ("Ana ran", ("D1:3",), "7 May 2023", "event"),
        ("Ben slept", ("D1:4",), None, "fact"),
        ("Carl waits", (), None, "fact"),
    ]
    assert [bad.reason for bad in parsed.rejected] == [
        RejectReason.EMPTY_TEXT,
        RejectReason.NOT_AN_OBJECT,
    ]


# -- answers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer", "citations", "abstain"),
    [
        (
            '{"citations": ["mem_1", "mem_1"], "answer": "7 May 2023", "abstain": false}',
            "7 May 2023",
            ("mem_1",),
            False,
        ),
        (
            '{"answer": "tea [mem_2]", "citations": "mem_1, D1:3"}',
            "tea",
            ("mem_1", "D1:3", "mem_2"),
            False,
        ),
        ('{"answer": ["tea", "cake"], "selected": [1]}', "tea, cake", ("1",), False),
        ('{"answer": true}', "yes", (), False),
        ('{"answer": "", "abstain": true}', "", (), True),
        ('{"abstain": true}', "", (), True),
        ('{"answer": null}', "", (), True),
        ('{"answer": "I don\'t know."}', "I don't know.", (), True),
        (
            "In Paris [mem_1; D1:3], I think [sic].",
            "In Paris, I think [sic].",
            ("mem_1", "D1:3"),
            False,
        ),
        ("Useful: [mem_4]\n**Answer:** In Paris", "In Paris", (), False),
        ('<think>hm {"answer": "x"}</think>Paris', "Paris", (), False),
        ("Not mentioned.", "Not mentioned.", (), True),
    ],
)
def test_answers_are_read(
    text: str, answer: str, citations: tuple[str, ...], abstain: bool
) -> None:
    (draft,) = parse_answer(text).values
    assert (draft.text, draft.citations, draft.abstain) == (answer, citations, abstain)


@pytest.mark.parametrize(
    "text", ['{"citations": ["mem_1"], "answer": "She liv', "{nonsense", '{"other": 1}']
)
def test_a_broken_answer_is_not_shown_as_text(text: str) -> None:
    parsed = parse_answer(text)
    assert (parsed.status, parsed.values) == (ParseStatus.FAILED, ())
    assert parsed.rejected
