"""Readers take the four formats, say what they repaired, and refuse bad files by name,
place, fault and what is accepted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from places import ROOT

from environments.datasets.locomo_files import read_locomo
from environments.datasets.longmemeval_files import iter_longmemeval, read_longmemeval
from memagent.core.errors import InputError
from memagent.core.records import MAX_TURN_CHARS, Trust
from memagent.readers import (
    Conversation,
    GoldQuestion,
    detect_format,
    iter_conversations,
    read_conversation,
    read_messages,
    read_plain_text,
)
from memagent.timex.resolve import resolve_time

EXAMPLES = ROOT / "examples" / "data"

LOCOMO: dict[str, object] = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ada",
        "speaker_b": "Bo",
        "session_2": [
            {
                "speaker": "Bo",
                "dia_id": "D2:1",
                "text": "",
                "blip_caption": "a red kite",
                "img_url": ["x"],
            }
        ],
        "session_2_date_time": "12:05 am on 1 June, 2023",
        "session_1": [
            {"speaker": "Ada", "dia_id": "D1:1", "text": "Hi \ud83d!"},
            {"speaker": "Bo", "dia_id": "D1:2", "text": "Hello"},
        ],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_3_date_time": "1:56 pm on 9 July, 2023",
    },
    "qa": [
        {
            "question": "How many kites?",
            "answer": 1,
            "evidence": ["D2:1; D1:2", "D", "D9:9"],
            "category": 1,
        },
        {"question": "Whose dog?", "adversarial_answer": "Bo's", "evidence": [], "category": 5},
        {"answer": "no question"},
    ],
    "observation": {
        "session_1_observation": {
            "Ada": [["Ada greets Bo.", "D1:1, D1:2"], ["Ada waves.", ["D1:1"]]]
        }
    },
}


def write(folder: Path, name: str, content: str | bytes | dict[str, object] | list[object]) -> Path:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(
            content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
        )
    return path


def refusal(path: Path, format: str = "auto") -> str:
    with pytest.raises(InputError) as caught:
        list(iter_conversations(path, format))
    assert str(path) in str(caught.value)
    assert "Accepted: " in str(caught.value)
    return str(caught.value)


# --- LoCoMo ----------------------------------------------------------------------------------------------------------


def test_locomo_keeps_ids_dates_captions_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    conversation = read_conversation(write(tmp_path, "x.json", LOCOMO))
    assert conversation.id == "conv-1"
    assert [(session.id, session.at) for session in conversation.sessions] == [
        ("session_1", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("session_2", datetime(2023, 6, 1, 0, 5, tzinfo=UTC)),
    ]
    assert [turn.id for turn in conversation.turns] == ["D1:1", "D1:2", "D2:1"]
    assert conversation.turns[0].text in ("Hi ?!", "Hi \ufffd!")
    assert conversation.turns[2].image_caption == "a red kite"
    assert {turn.trust for turn in conversation.turns} == {Trust.USER}
    first, second = conversation.questions
    assert (first.id, first.answer, first.category) == ("conv-1:q1", "1", "1")
    assert first.evidence_turn_ids == ("D2:1", "D1:2")
    assert (second.answer, second.adversarial_answer, second.evidence_turn_ids) == ("", "Bo's", ())
    assert [fact.source_turn_ids for fact in conversation.observations] == [
        ("D1:1", "D1:2"),
        ("D1:1",),
    ]
    assert {(fact.subject, fact.said_at) for fact in conversation.observations} == {
        ("Ada", conversation.sessions[0].at)
    }
    assert conversation.warnings == (
        "dates without a session are left out: session_3_date_time",
        "question 1: left out 2 of 4 evidence ids: D, D9:9",
        "question 3 has no text and is left out",
    )


def test_a_locomo_list_gives_every_conversation(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "all.json",
        [LOCOMO, {**LOCOMO, "sample_id": "conv-2"}, {**LOCOMO, "sample_id": None}],
    )
    assert [conversation.id for conversation in read_locomo(path)] == ["conv-1", "conv-2", "all-3"]
    with pytest.raises(InputError, match="several conversations"):
        read_conversation(path)


def test_a_locomo_session_with_a_bad_date_stays_undated(tmp_path: Path) -> None:
    held = {
        "session_1": [{"speaker": "Ada", "dia_id": "D1:1", "text": "Hi"}],
        "session_1_date_time": "soon",
        "session_2": [],
    }
    conversation = read_conversation(write(tmp_path, "x.json", {"conversation": held}))
    assert conversation.id == "x"
    assert conversation.sessions[0].at is None
    assert len(conversation.warnings) == 2


@pytest.mark.parametrize(
    ("turns", "fault"),
    [
        ([], "there are no turns"),
        ([{"dia_id": "D1:1", "text": "Hi"}], "session_1, turn 1: the turn has no 'speaker'"),
        ([{"speaker": "A", "dia_id": "D1:1", "text": "x"}] * 2, "turn id 'D1:1' occurs twice"),
    ],
)
def test_locomo_faults_name_their_place(tmp_path: Path, turns: list[object], fault: str) -> None:
    path = write(
        tmp_path,
        "x.json",
        {"conversation": {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}},
    )
    assert fault in refusal(path)


def test_dia_ids_are_unique_over_sessions(tmp_path: Path) -> None:
    turn = {"speaker": "A", "dia_id": "D1:1", "text": "x"}
    assert "turn ids occur twice: D1:1" in refusal(
        write(tmp_path, "x.json", {"conversation": {"session_1": [turn], "session_2": [turn]}})
    )


def test_real_locomo_files_are_read_whole(locomo_dir: Path) -> None:
    conversations = {
        one.id: one for path in sorted(locomo_dir.glob("*.json")) for one in read_locomo(path)
    }
    conversation = conversations["conv-26"]
    assert (len(conversation.turns), len(conversation.sessions)) == (419, 19)
    assert (len(conversation.questions), len(conversation.observations)) == (199, 184)
    assert conversation.sessions[0].at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert conversation.speakers == ("Caroline", "Melanie")
    for one in conversations.values():
        assert all(session.at for session in one.sessions)
        assert sum(bool(question.evidence_turn_ids) for question in one.questions) > 0.9 * len(
            one.questions
        )
        assert all(fact.source_turn_ids and fact.said_at for fact in one.observations)
        assert Conversation.model_validate_json(one.model_dump_json()) == one


def test_dates_of_real_locomo_answers_resolve(locomo_dir: Path) -> None:
    conversation = next(
        one
        for path in sorted(locomo_dir.glob("*.json"))
        for one in read_locomo(path)
        if one.id == "conv-26"
    )
    answers = [question.answer for question in conversation.questions if question.category == "2"]
    told = [answer for answer in answers if answer != "4 years"]
    lost = [
        answer
        for answer in told
        if resolve_time(answer, anchor=conversation.sessions[-1].at) is None
    ]
    assert lost == []


# --- LongMemEval -----------------------------------------------------------------------------------------------------


def instance(question_id: str = "q7") -> dict[str, object]:
    return {
        "question_id": question_id,
        "question_type": "temporal-reasoning",
        "question": "When did I buy the bike?",
        "answer": 3,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["s_b", "s_a", "s_a", "s_c"],
        "haystack_dates": [
            "2023/05/21 (Sun) 10:00",
            "2023/05/20 (Sat) 02:21",
            "2023/05/22 (Mon) 02:21",
            "soon",
        ],
        "haystack_sessions": [
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": ""},
                {"role": "user", "content": "Bike!", "has_answer": True},
            ],
            [
                {"role": "user", "content": "Earlier"},
                {"role": "assistant", "content": "Yes", "has_answer": False},
            ],
            [{"role": "user", "content": "Again"}],
            [],
        ],
        "answer_session_ids": ["s_b"],
    }


def test_longmemeval_instances_become_conversations_in_order_of_time(tmp_path: Path) -> None:
    path = write(tmp_path, "x.json", [instance(), instance("q8_abs")])
    assert detect_format(path) == "longmemeval"
    first, second = read_longmemeval(path)
    assert [session.id for session in first.sessions] == ["s_a", "s_b", "s_a#2"]
    assert [turn.id for turn in first.turns] == ["s_a:1", "s_a:2", "s_b:1", "s_b:2", "s_a#2:1"]
    assert [turn.trust for turn in first.turns][:2] == [Trust.USER, Trust.ASSISTANT]
    question = first.questions[0]
    assert (question.id, question.answer, question.category) == ("q7", "3", "temporal-reasoning")
    assert question.evidence_turn_ids == ("s_b:2",)
    assert question.asked_at == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)
    assert second.questions[0].category == "temporal-reasoning_abs"
    assert len(first.warnings) == 5
    assert read_conversation(write(tmp_path, "one.json", [instance()])).id == "q7"


def test_longmemeval_is_read_one_instance_at_a_time(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "x.json",
        json.dumps([instance(f"q{number}") for number in range(4_000)])[:-400] + "broken",
    )
    found = iter_longmemeval(path)
    assert [next(found).id for _ in range(3)] == ["q0", "q1", "q2"]
    with pytest.raises(InputError, match="no JSON"):
        list(found)


def test_longmemeval_faults_name_the_question(tmp_path: Path) -> None:
    bad = {**instance(), "haystack_sessions": [[{"role": "robot", "content": "Hi"}]]}
    assert "question 'q7', session 's_b', turn 1: unknown role 'robot'" in refusal(
        write(tmp_path, "x.json", [bad])
    )


# --- messages --------------------------------------------------------------------------------------------------------

MESSAGES: list[object] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hi", "name": "Ana Silva", "created_at": "2023-05-08T13:56:00Z"},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hello"}, {"type": "output_text", "text": "there"}],
    },
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
    {"role": "tool", "content": "22 degrees", "tool_call_id": "c1", "timestamp": 1683640800},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "alt_text": "a kite"}],
        "timestamp": 1683640860000,
    },
    {"role": "user", "content": [{"type": "input_audio"}, "plain"], "timestamp": "yesterday"},
]


@pytest.mark.parametrize("shape", ["lines", "list"])
def test_messages_become_dated_sessions(tmp_path: Path, shape: str) -> None:
    text = (
        "\n\n".join(json.dumps(message) for message in MESSAGES) + "\n"
        if shape == "lines"
        else json.dumps(MESSAGES, indent=1)
    )
    path = write(tmp_path, "chat.jsonl", text)
    assert detect_format(path) == "messages"
    conversation = read_conversation(path)
    assert conversation.id == "chat"
    assert [turn.id for turn in conversation.turns] == [
        "session_1:1",
        "2023-05-08:1",
        "2023-05-08:2",
        "2023-05-09:1",
        "2023-05-09:2",
        "2023-05-09:3",
    ]
    assert [turn.trust for turn in conversation.turns] == [
        Trust.SYSTEM, Trust.USER, Trust.ASSISTANT, Trust.TOOL, Trust.USER, Trust.USER,
    ]  # fmt: skip
    assert conversation.speakers == ("system", "Ana Silva", "assistant", "tool", "user")
    assert conversation.turns[2].text == "Hello\nthere"
    assert conversation.turns[4].image_caption == "a kite"
    assert conversation.turns[4].at == datetime(2023, 5, 9, 14, 1, tzinfo=UTC)
    assert conversation.sessions[1].at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert len(conversation.warnings) == 3
    assert "1 messages without text" in conversation.warnings[-1]


def test_messages_follow_their_session_ids(tmp_path: Path) -> None:
    lines = [
        {"role": "user", "content": str(number), "session_id": name}
        for number, name in enumerate("abab")
    ]
    conversation = read_messages(
        write(tmp_path, "x.jsonl", "\n".join(json.dumps(line) for line in lines))
    )
    assert [(turn.id, turn.text) for turn in conversation.turns] == [
        ("a:1", "0"),
        ("a:2", "2"),
        ("b:1", "1"),
        ("b:2", "3"),
    ]


GOOD_LINE = '{"role": "user", "content": "Hi"}\n'


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (GOOD_LINE + "{broken", ["line 2", "no JSON"]),
        (GOOD_LINE + "3", ["line 2", "expected a JSON object, found a number"]),
        (GOOD_LINE + '{"content": "Hi"}', ["line 2", "the message has no 'role'"]),
        (
            GOOD_LINE + '{"role": "robot", "content": "Hi"}',
            ["line 2", "unknown role 'robot'", "assistant"],
        ),
        (GOOD_LINE + '{"role": "user"}', ["line 2", "no 'content'"]),
        (GOOD_LINE + '{"role": "user", "content": 3}', ["line 2", "neither a string nor a list"]),
        (
            GOOD_LINE * 2 + json.dumps({"role": "user", "content": "x" * (MAX_TURN_CHARS + 1)}),
            ["line 3", "split it into several turns"],
        ),
        ('{"role": "user", "content": null}', ["no message with text"]),
        (
            '[{"role": "user", "content": "Hi"},\n\n 3]',
            ["line 3", "expected a JSON object, found a number"],
        ),
        ('[{"role": "user", "content": "Hi"}\n{"role"', ["line 2", "expected ',' or ']'"]),
        ('[{"role": "user", "content": "Hi"}', ["the JSON list has no end"]),
        ('[{"role": "user", "content": "Hi"},\n', ["line 2", "ends too early"]),
        ('[{"role": "user", "content": "Hi"}]\nx', ["line 2", "after the end of the JSON"]),
        ("[]", ["the JSON list is empty"]),
        ('{"rows": []}', ["the JSON is of no known kind"]),
        ('{"role": "user", "content": ' + "[" * 100_000, ["line 1", "JSON"]),
        ('{"role": "user", "content": ' + "1" * 5_000 + "}", ["line 1", "JSON"]),
    ],
)
def test_message_faults_name_the_line(tmp_path: Path, text: str, faults: list[str]) -> None:
    message = refusal(write(tmp_path, "x.jsonl", text))
    assert [fault for fault in faults if fault not in message] == []


# --- plain text ------------------------------------------------------------------------------------------------------

PLAIN = """\
# A chat between two people

## 8 May 2023, 1:56 pm
Ana Silva: Hi!
  Note: this goes on.
and this, she said: too.

Still Ana.
Dr. Li:   Hello
http://example.org is no speaker

--- 9 May 2023 ---
Assistant: At your service
System: I obey nobody

[2023-05-09]
Ana Silva: Twice a day
[2023-05-09 18:30] Ana Silva: with a time
Ana Silva:
# Notes
Ben: undated
"""


def test_plain_text_with_headings_continuations_and_names(tmp_path: Path) -> None:
    path = write(tmp_path, "notes.txt", "\ufeff" + PLAIN.replace("\n", "\r\n"))
    assert detect_format(path) == "text"
    conversation = read_conversation(path)
    assert [(session.id, session.at) for session in conversation.sessions] == [
        ("2023-05-08", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("2023-05-09", datetime(2023, 5, 9, tzinfo=UTC)),
        ("2023-05-09-2", datetime(2023, 5, 9, tzinfo=UTC)),
        ("session_4", None),
    ]
    assert [turn.id for turn in conversation.turns] == [
        "2023-05-08:1", "2023-05-08:2", "2023-05-09:1", "2023-05-09:2", "2023-05-09-2:1", "2023-05-09-2:2", "session_4:1",
    ]  # fmt: skip
    assert conversation.turns[0].speaker == "Ana Silva"
    assert (
        conversation.turns[0].text
        == "Hi!\nNote: this goes on.\nand this, she said: too.\n\nStill Ana."
    )
    assert (conversation.turns[1].speaker, conversation.turns[1].text) == (
        "Dr. Li",
        "Hello\nhttp://example.org is no speaker",
    )
    assert [turn.trust for turn in conversation.turns][2:4] == [Trust.ASSISTANT, Trust.USER]
    assert conversation.turns[5].at == datetime(2023, 5, 9, 18, 30, tzinfo=UTC)
    assert conversation.warnings == ("line 19: a turn without words is left out",)


def test_dated_lines_without_headings_are_one_session_a_day(tmp_path: Path) -> None:
    text = "[2023-05-08 23:50] Ana: a\nBo: b\n[8 May 2023, 11:59 pm] Ana: c\n[2023-05-09 00:01] Bo: d\n[no date 2023] Bo: e\n"
    conversation = read_plain_text(write(tmp_path, "x.txt", text))
    assert [(turn.id, turn.text) for turn in conversation.turns] == [
        ("2023-05-08:1", "a"), ("2023-05-08:2", "b"), ("2023-05-08:3", "c"), ("2023-05-09:1", "d"), ("2023-05-09:2", "e"),
    ]  # fmt: skip
    assert conversation.turns[2].at == datetime(2023, 5, 8, 23, 59, tzinfo=UTC)
    assert conversation.sessions[1].at == datetime(2023, 5, 9, 0, 1, tzinfo=UTC)
    assert conversation.warnings == (
        "line 5: 'no date 2023' is no date; the turn has its session's",
    )


def test_a_speaker_heard_once_in_a_long_text_is_pointed_out(tmp_path: Path) -> None:
    text = "# 2023-05-08\n" + "Ana: hi\nBo: hey\n" * 10 + "Note: buy milk\n"
    assert read_plain_text(write(tmp_path, "x.txt", text)).warnings == (
        "line 22: 'Note' speaks only here; indent the line if it belongs to the turn before",
    )


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        ("Just some prose.\nMore.", ["line 1", "neither a heading nor a turn"]),
        ("# 8 May 2023\n\n", ["there are no turns"]),
        (b"", ["the file is empty"]),
        (b" \n\n", ["the file is empty"]),
        (b"Ana: hi\nBo: caf\xe9\n", ["line 2", "byte 0xe9 at offset 15 is not UTF-8"]),
        (b"\xef\xbb\xbfAna: \xff", ["line 1", "offset 8"]),
        (b"Ana: a\x00b", ["binary", "offset 6"]),
        ("Ana: hi".encode("utf-16"), ["UTF-16", "save it as UTF-8"]),
        (b'[{"role": "user", "content": "caf\xe9"}]', ["byte 0xe9 at offset 33"]),
        ("Ana: " + "x" * (MAX_TURN_CHARS + 1), ["line 1", "split it into several turns"]),
    ],
)
def test_bad_text_files_are_refused(
    tmp_path: Path, content: str | bytes, faults: list[str]
) -> None:
    message = refusal(write(tmp_path, "x.txt", content))
    assert [fault for fault in faults if fault not in message] == []


def test_missing_files_folders_and_formats_are_refused(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "nowhere.txt")
    assert "it is a folder" in refusal(tmp_path)
    assert "unknown format 'xml'" in refusal(write(tmp_path, "x.txt", "Ana: hi"), "xml")
    assert "no 'conversation'" in refusal(
        write(tmp_path, "x.json", '{"role": "user", "content": "Hi"}'), "locomo"
    )
    assert "no such file" in refusal(tmp_path / "nowhere.json", "messages")


@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")),
        st.lists(
            st.sampled_from(
                [
                    "# 2023-05-08",
                    "Ana: hi",
                    "[2023-05-08 13:56] Bo: x",
                    "---",
                    "{",
                    "[",
                    "]",
                    "{}",
                    '{"role": "user"}',
                    " x",
                    "",
                ]
            )
        ).map(lambda lines: "\n".join(lines).encode()),
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, "any", content)
    try:
        conversations = list(iter_conversations(path))
    except InputError:
        return
    assert all(conversation.turns for conversation in conversations)
    assert conversations == list(iter_conversations(path))


def test_readers_load_no_vendor() -> None:
    vendors = [
        "langgraph",
        "litellm",
        "qdrant_client",
        "networkx",
        "sqlalchemy",
        "dateparser",
        "numpy",
    ]
    code = (
        f"import sys, memagent.readers; print([name for name in {vendors} if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_files_of_built_in_formats_are_read_without_importing_a_plug_in(tmp_path: Path) -> None:
    (tmp_path / "talk.txt").write_text("Ana: Hi\nBen: Hello\n", encoding="utf-8")
    (tmp_path / "talk.jsonl").write_text('{"role": "user", "content": "Hi"}\n', encoding="utf-8")
    (tmp_path / "locomo.json").write_text('[{"conversation": {}}]', encoding="utf-8")
    code = """
import sys
from memagent.readers import detect_format
for name in ("talk.txt", "talk.jsonl", "locomo.json"):
    print(detect_format(name), "environments" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["text", "False", "messages", "False", "locomo", "True"]


# --- the example conversation ----------------------------------------------------------------------------------------


def test_the_example_conversation_is_whole() -> None:
    conversation = read_conversation(EXAMPLES / "two_friends.txt")
    assert conversation.warnings == ()
    assert len(conversation.speakers) == 2
    assert 8 <= len(conversation.sessions) <= 12
    assert 90 <= len(conversation.turns) <= 130
    dates = [session.at for session in conversation.sessions]
    assert dates == sorted(date for date in dates if date)
    assert dates[0] is not None
    assert dates[-1] is not None
    assert (dates[-1] - dates[0]).days > 270


def test_the_example_questions_rest_on_turns_that_are_there() -> None:
    conversation = read_conversation(EXAMPLES / "two_friends.txt")
    entries = json.loads((EXAMPLES / "two_friends.questions.json").read_text(encoding="utf-8"))
    questions = [GoldQuestion.model_validate(entry) for entry in entries]
    assert len(questions) >= 12
    assert len({question.id for question in questions}) == len(questions)
    assert {question.category for question in questions} == {
        "single",
        "temporal",
        "update-now",
        "update-then",
        "unanswerable",
        "multi",
    }
    known = {turn.id for turn in conversation.turns}
    for question in questions:
        assert set(question.evidence_turn_ids) <= known
        assert (
            bool(question.evidence_turn_ids)
            == bool(question.answer)
            == (question.category != "unanswerable")
        )
        assert question.asked_at is not None
        assert question.asked_at > max(
            session.at for session in conversation.sessions if session.at
        )


def test_the_example_dates_are_the_gold_dates() -> None:
    """The relative phrases of the example resolve to the gold answers of its temporal questions."""
    conversation = read_conversation(EXAMPLES / "two_friends.txt")
    at = {turn.id: session.at for session in conversation.sessions for turn in session.turns}
    for phrase, turn_id, gold in [
        ("Last Saturday", "2024-02-03:3", "27 January 2024"),
        ("Last Sunday", "2024-07-28:1", "21 July 2024"),
        ("Two weeks ago", "2024-01-14:7", "the week of 25 December 2023"),
        ("6 May", "2024-04-21:3", "6 May 2024"),
    ]:
        told, expected = resolve_time(phrase, anchor=at[turn_id]), resolve_time(gold, anchor=None)
        assert told is not None
        assert expected is not None
        assert (told.start, told.end) == (expected.start, expected.end)
