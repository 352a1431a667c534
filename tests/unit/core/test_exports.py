"""Exports of seven programs: speakers, dates and words come out right, in two languages and two
orders of dates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line_kit import got, moved_into, run

from memagent.core.errors import InputError
from memagent.core.records import Trust
from memagent.readers import Conversation, detect_format, read_conversation

ENGLISH_US = """\
3/9/24, 9:05\u202fPM - Messages and calls are end-to-end encrypted. Tap to learn more.
3/9/24, 9:05\u202fPM - Ana Silva: I moved to Lisbon yesterday.
3/9/24, 9:07\u202fPM - Ben: Lovely!
How is the light?
3/14/24, 12:01\u202fAM - Ben: <Media omitted>
3/14/24, 12:02\u202fAM - Ben: This message was deleted
3/14/24, 12:03\u202fAM - Ana Silva: My cat is called Bolt: grey, loud.
"""
GERMAN = """\
09.03.24, 21:05 - Nachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt.
09.03.24, 21:05 - Jörg Weiß: Ich bin gestern nach Köln gezogen.
10.03.24, 08:00 - +49 170 1234567: <Medien ausgeschlossen>
10.03.24, 08:01 - +49 170 1234567: Schön! 🎉
"""
BRITISH_IOS = """\
\u200e[09/03/2024, 21:05:33] Ana: \u200eMessages and calls are end-to-end encrypted.
[09/03/2024, 21:05:33] Ana: I moved to Lisbon yesterday. \u200e<This message was edited>
\u200e[13/03/2024, 07:00:01] ~ Ben: \u200eimage omitted
[13/03/2024, 07:00:02] ~ Ben: Good morning
"""


def told(conversation: Conversation) -> list[tuple[str, str, str]]:
    return [
        (f"{turn.at:%Y-%m-%d %H:%M}" if turn.at else "-", turn.speaker, turn.text)
        for turn in conversation.turns
    ]


def write(folder: Path, content: object) -> Path:
    path = folder / "export"
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "turns", "wordless"),
    [
        (
            ENGLISH_US,
            [
                ("2024-03-09 21:05", "Ana Silva", "I moved to Lisbon yesterday."),
                ("2024-03-09 21:07", "Ben", "Lovely!\nHow is the light?"),
                ("2024-03-14 00:03", "Ana Silva", "My cat is called Bolt: grey, loud."),
            ],
            2,
        ),
        (
            GERMAN,
            [
                ("2024-03-09 21:05", "Jörg Weiß", "Ich bin gestern nach Köln gezogen."),
                ("2024-03-10 08:01", "+49 170 1234567", "Schön! 🎉"),
            ],
            1,
        ),
        (
            BRITISH_IOS,
            [
                ("2024-03-09 21:05", "Ana", "I moved to Lisbon yesterday."),
                ("2024-03-13 07:00", "Ben", "Good morning"),
            ],
            2,
        ),
    ],
    ids=["English, month first", "German", "British, iOS"],
)
def test_whatsapp_in_each_order_of_dates(
    tmp_path: Path, text: str, turns: list[tuple[str, str, str]], wordless: int
) -> None:
    path = write(tmp_path, text)
    assert detect_format(path) == "whatsapp"
    conversation = read_conversation(path)
    assert told(conversation) == turns
    assert conversation.warnings == (f"{wordless} messages without words are left out",)
    assert [session.id for session in conversation.sessions] == sorted(
        {at[:10] for at, _, _ in turns}
    )


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        (
            (
                "9/3/24, 9:05\u202fp.\u202fm. - Los mensajes están cifrados.\n"
                "9/3/24, 9:05\u202fp.\u202fm. - Ana: Me mudé a Lisboa.\n"
                "13/3/24, 12:01\u202fa.\u202fm. - Luis: Eliminaste este mensaje.\n"
            ),
            [("2024-03-09 21:05", "Ana", "Me mudé a Lisboa.")],
        ),
        (
            "13/03/2024 à 21:05 - Ana: Je vis à Lyon.\n[13/03/2024 à 21:06:33] Luc: Super !\n",
            [
                ("2024-03-13 21:05", "Ana", "Je vis à Lyon."),
                ("2024-03-13 21:06", "Luc", "Super !"),
            ],
        ),
        ("13.3.2024 klo 21.05 - Ana: Muutin.\n", [("2024-03-13 21:05", "Ana", "Muutin.")]),
        ("2024. 03. 09. 21:05 - Ana: Költöztem.\n", [("2024-03-09 21:05", "Ana", "Költöztem.")]),
        ("2024/03/09 21:05 - Ana: 引っ越した\n", [("2024-03-09 21:05", "Ana", "引っ越した")]),
        (
            (
                "13/03/24, 9:05 pm - Ana: I live in Porto <This message was edited>\n"
                "13/03/24, 9:06 pm - Ben: null\n"
            ),
            [("2024-03-13 21:05", "Ana", "I live in Porto")],
        ),
        (
            (
                '13/03/2024, 21:05 - Ana changed the subject from "Trip: Rome" to "Trip: Oslo"\n'
                "13/03/2024, 21:05 - Ana created group “Trip: Rome”\n"
                '13/03/2024, 21:06 - Bob "Bobby" Smith: He said "no: never"\n'
                "13/03/2024, 21:07 - „Anni“ Weiß: Ja\n"
            ),
            [
                ("2024-03-13 21:06", 'Bob "Bobby" Smith', 'He said "no: never"'),
                ("2024-03-13 21:07", "„Anni“ Weiß", "Ja"),
            ],
        ),
    ],
    ids=["spanish", "french", "finnish", "hungarian", "japanese", "edited", "notices"],
)
def test_whatsapp_of_other_phones(
    text: str, turns: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    path = write(tmp_path, text)
    assert detect_format(path) == "whatsapp"
    assert told(read_conversation(path)) == turns


def test_whose_words_a_forwarded_and_a_spoken_message_hold(tmp_path: Path) -> None:
    date = "2024-03-09T21:05:33"
    message = {"id": 1, "type": "message", "date": date, "from": "Ben", "forwarded_from": "Zoe"}
    path = write(tmp_path, {"messages": [message | {"text": "I moved to Rome."}]})
    assert told(read_conversation(path)) == [("2024-03-09 21:05", "Zoe", "I moved to Rome.")]
    spoken = [{"content_type": "audio_transcription", "text": "I live in Porto."}, {"a": 1}]
    content = {"content_type": "multimodal_text", "parts": spoken}
    said = {"author": {"role": "user"}, "create_time": 1710018333, "content": content}
    path = write(tmp_path, [{"id": "t", "mapping": {"a": {"message": said}}}])
    assert told(read_conversation(path)) == [("2024-03-09 21:05", "user", "I live in Porto.")]


def test_an_export_of_a_sixth_program_names_the_five(tmp_path: Path) -> None:
    path = write(tmp_path, {"messages": [{"type": "Default", "content": "Hi"}]})
    with pytest.raises(InputError, match=r"WhatsApp.*Telegram.*signal.*ChatGPT.*Claude"):
        read_conversation(path)


def test_whatsapp_dates_go_forward_or_are_called_doubtful(tmp_path: Path) -> None:
    forward = "2/1/24, 10:00 - Ana: one\n3/1/24, 10:00 - Ana: two\n1/2/24, 10:00 - Ana: three\n"
    days = [at[:10] for at, _, _ in told(read_conversation(write(tmp_path, forward)))]
    assert days == ["2024-01-02", "2024-01-03", "2024-02-01"]
    doubtful = read_conversation(write(tmp_path, "2/1/24, 10:00 - Ana: one\n"))
    assert told(doubtful)[0][0] == "2024-01-02 10:00"
    assert "cannot be told apart" in doubtful.warnings[0]
    with pytest.raises(InputError, match="line 2: '14/13/24' is no date"):
        read_conversation(write(tmp_path, "1/1/24, 10:00 - A: x\n14/13/24, 10:00 - A: y\n"))


def chat(name: str, **message: Any) -> dict[str, Any]:
    return {
        "name": name,
        "type": "personal_chat",
        "id": 7,
        "messages": [
            {"id": 1, "type": "service", "date": "2024-03-09T21:00:00", "action": "phone_call"},
            {"id": 2, "type": "message", "date": "2024-03-09T21:05:33", **message},
            {"id": 3, "type": "message", "date": "2024-03-10T08:00:00", "from": "Ben", "text": ""},
        ],
    }


def test_telegram_one_chat_and_all(tmp_path: Path) -> None:
    text = ["Ich wohne in ", {"type": "bold", "text": "Köln"}, "."]
    ana = chat("Jörg", **{"from": "Jörg", "date_unixtime": "1710018333", "text": text})
    path = write(tmp_path, ana)
    assert detect_format(path) == "telegram"
    conversation = read_conversation(path)
    assert told(conversation) == [("2024-03-09 21:05", "Jörg", "Ich wohne in Köln.")]
    assert conversation.warnings == ("1 messages without words are left out",)
    every = {"about": "...", "chats": {"list": [ana, chat("Ana", **{"from": "Ana", "text": "Hi"})]}}
    conversation = read_conversation(write(tmp_path, every))
    assert [session.id for session in conversation.sessions] == [
        "Jörg 2024-03-09",
        "Ana 2024-03-09",
    ]
    assert conversation.speakers == ("Jörg", "Ana")


def test_signal(tmp_path: Path) -> None:
    messages = [
        {"date": "2024-03-09T21:05:33.120000", "sender": "Ana", "body": "I moved to Lisbon."},
        {"date": "2024-03-10T08:00:00", "sender": "Me", "body": "Schön!", "deleted": False},
        {"date": "2024-03-10T08:01:00", "sender": "Me", "body": "gone", "deleted": True},
    ]
    lines = [
        json.dumps({"quote": "", "sticker": None, "reactions": [], "attachments": [], **message})
        for message in messages
    ]
    path = write(tmp_path, "\n".join(lines) + "\n")
    assert detect_format(path) == "signal"
    assert told(read_conversation(path)) == [
        ("2024-03-09 21:05", "Ana", "I moved to Lisbon."),
        ("2024-03-10 08:00", "Me", "Schön!"),
    ]


def node(name: str, parent: str | None, role: str, *parts: object, **own: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    message = {"author": {"role": role}, "content": content, "create_time": 1710018333.5, **own}
    return {"id": name, "parent": parent, "children": [], "message": message}


def test_chatgpt_follows_the_branch_that_stood_last(tmp_path: Path) -> None:
    nodes = [
        {"id": "root", "parent": None, "children": ["a"], "message": None},
        node(
            "hidden", "root", "user", "x", metadata={"is_visually_hidden_from_conversation": True}
        ),
        node("a", "hidden", "user", "I moved to Lisbon.", {"asset_pointer": "file://1"}),
        node("old", "a", "assistant", "A first reply."),
        node("new", "a", "assistant", "A second reply."),
        node("tool", "new", "tool", "a search"),
    ]
    talk = {
        "title": "Moving",
        "conversation_id": "talk-1",
        "create_time": 1710018333.5,
        "current_node": "tool",
        "mapping": {one["id"]: one for one in nodes},
    }
    path = write(tmp_path, [talk])
    assert detect_format(path) == "chatgpt"
    conversation = read_conversation(path)
    assert told(conversation) == [
        ("2024-03-09 21:05", "user", "I moved to Lisbon."),
        ("2024-03-09 21:05", "assistant", "A second reply."),
    ]
    assert [turn.trust for turn in conversation.turns] == [Trust.USER, Trust.ASSISTANT]
    assert conversation.sessions[0].id == "talk-1"


def test_claude_sorts_talks_by_date(tmp_path: Path) -> None:
    def talk(uuid: str, day: str, *said: tuple[str, str]) -> dict[str, Any]:
        messages = [
            {
                "uuid": f"{uuid}-{at}",
                "sender": sender,
                "text": text,
                "created_at": f"{day}T21:05:33Z",
            }
            for at, (sender, text) in enumerate(said)
        ]
        return {"uuid": uuid, "name": "Moving", "created_at": f"{day}T21:00:00Z"} | {
            "chat_messages": messages
        }

    late = talk("late", "2024-05-01", ("human", "Ich wohne in Köln."), ("assistant", "Schön!"))
    late["chat_messages"][1]["content"] = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Wie schön!"},
    ]
    path = write(tmp_path, [late, talk("early", "2024-03-09", ("human", "I moved to Lisbon."))])
    assert detect_format(path) == "claude"
    assert told(read_conversation(path)) == [
        ("2024-03-09 21:05", "user", "I moved to Lisbon."),
        ("2024-05-01 21:05", "user", "Ich wohne in Köln."),
        ("2024-05-01 21:05", "assistant", "Wie schön!"),
    ]


def letta_message(role: str, text: str, at: str, **more: object) -> dict[str, object]:
    content = [{"type": "text", "text": text}] if text else []
    return {"role": role, "content": content, "created_at": at, "id": "message-1", **more}


def sent(words: str) -> dict[str, object]:
    return {"function": {"name": "send_message", "arguments": json.dumps({"message": words})}}


def packed(kind: str, **more: str) -> str:
    return json.dumps({"type": kind, **more, "time": "2025-10-03 12:34:56 PM PDT-0700"})


def test_letta_gives_what_was_said_and_no_thoughts(tmp_path: Path) -> None:
    said = letta_message
    search = {"function": {"name": "conversation_search", "arguments": '{"message": "no"}'}}
    messages = [
        said("system", "You are Sam.", "2025-10-31T22:00:00+00:00"),
        said("user", packed("login", last_login="Never"), "2025-10-31T22:01:00+00:00"),
        said("user", packed("user_message", message="Ich wohne in Köln."), "2025-10-31T22:02:00Z"),
        said("assistant", "A city!", "2025-10-31T22:02:05Z", tool_calls=[sent("Schön dort!")]),
        said("assistant", "I look.", "2025-10-31T22:02:06Z", tool_calls=[search]),
        said("tool", '{"status": "OK"}', "2025-10-31T22:02:07Z"),
        said("user", '{"type": "note"}', "2025-11-01T08:00:00Z"),
        said("assistant", "Got it.", "2025-11-01T08:00:02Z"),
    ]
    file = {"agents": [{"name": "sam", "messages": messages}], "blocks": [], "tools": []}
    conversation = read_conversation(write(tmp_path, file))
    assert told(conversation) == [
        ("2025-10-31 22:02", "user", "Ich wohne in Köln."),
        ("2025-10-31 22:02", "assistant", "Schön dort!"),
        ("2025-11-01 08:00", "user", '{"type": "note"}'),
        ("2025-11-01 08:00", "assistant", "Got it."),
    ]
    assert [session.id for session in conversation.sessions] == ["2025-10-31", "2025-11-01"]
    assert [turn.trust for turn in conversation.turns][:2] == [Trust.USER, Trust.ASSISTANT]
    two = {"agents": [file["agents"][0], {"name": "eve", "messages": messages[2:3]}]}
    sessions = read_conversation(write(tmp_path, two)).sessions
    assert {session.id for session in sessions} == {
        "sam 2025-10-31",
        "sam 2025-11-01",
        "eve 2025-10-31",
    }


def test_zep_has_names_in_either_version(tmp_path: Path) -> None:
    def said(**fields: str) -> dict[str, str]:
        return {"uuid": "u", "created_at": "2024-03-12T09:05:00Z", **fields}

    now = {
        "messages": [
            said(role="user", name="Ana Silva", content="I moved to Lisbon."),
            said(role="assistant", content="Lovely!"),
            said(role="system", content="Be brief."),
        ],
        "row_count": 3,
        "total_count": 3,
    }
    before = {
        "messages": [said(role="Jörg", role_type="user", content="Ich bin umgezogen.")],
        "row_count": 1,
    }
    lines = [
        ("2024-03-12 09:05", "Ana Silva", "I moved to Lisbon."),
        ("2024-03-12 09:05", "assistant", "Lovely!"),
    ]
    assert told(read_conversation(write(tmp_path, now))) == lines
    both = read_conversation(write(tmp_path, [now, before]))
    assert told(both) == [*lines, ("2024-03-12 09:05", "Jörg", "Ich bin umgezogen.")]
    assert [session.id for session in both.sessions] == ["2024-03-12", "thread 2 2024-03-12"]
    assert {turn.trust for turn in both.turns} == {Trust.USER, Trust.ASSISTANT}


def test_an_unknown_file_names_the_five(tmp_path: Path) -> None:
    for content in ({"rows": []}, "date;who;what\n1;2;3\n"):
        with pytest.raises(InputError) as caught:
            read_conversation(write(tmp_path, content))
        for program in ("WhatsApp", "Telegram", "Signal", "ChatGPT", "Claude"):
            assert program in str(caught.value)
    (tmp_path / "export").write_bytes(b"PK\x03\x04rest")
    with pytest.raises(InputError, match="zip archive; unpack it"):
        read_conversation(tmp_path / "export")


def test_an_export_is_ingested_and_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = moved_into(tmp_path, monkeypatch)
    write(folder, ENGLISH_US)
    assert got(run("ingest", "export", "--path", "m.db", "--json"))["turns"] == 3
    answer = got(run("ask", "--path", "m.db", "--json", "When did Ana move to Lisbon?"))
    assert answer["text"].startswith("8 March 2024")
