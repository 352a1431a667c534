"""Two tiny benchmarks for the tests, in the formats of LoCoMo and LongMemEval.

They have all five categories, and all six types with `_abs`.
"""

from __future__ import annotations

import json
from pathlib import Path

_CHATS = {
    "conv-26": [
        (
            "1:56 pm on 8 May, 2023",
            [
                ("Ana", "I adopted a grey kitten yesterday."),
                ("Bo", "Congratulations! What is its name?"),
                ("Ana", "Her name is Pixel."),
            ],
        ),
        (
            "9:00 am on 20 May, 2023",
            [("Bo", "I started a job as a nurse in Porto."), ("Ana", "That is wonderful news.")],
        ),
        (
            "6:30 pm on 1 June, 2023",
            [
                ("Ana", "I am learning to bake sourdough bread."),
                ("Bo", "My sister plays the cello."),
            ],
        ),
    ],
    "conv-30": [
        (
            "8:00 am on 3 July, 2023",
            [("Cy", "My brother Leo moved to Oslo last week."), ("Di", "I bought a red bicycle.")],
        ),
        (
            "8:00 am on 9 July, 2023",
            [("Di", "The bicycle was stolen on Friday."), ("Cy", "I am sorry about the bicycle.")],
        ),
    ],
}
_QUESTIONS = {
    "conv-26": [
        ("What animal did Ana adopt and what is its name?", "a kitten, Pixel", ["D1:1", "D1:3"], 1),
        ("When did Ana adopt the kitten?", "7 May 2023", ["D1:1"], 2),
        ("Would Bo know how to treat a wound?", "Yes", ["D2:1"], 3),
        ("What instrument does Bo's sister play?", "the cello", ["D3:2"], 4),
        ("What did Ana's parrot say?", None, ["D1:1"], 5),
    ],
    "conv-30": [
        ("Where did Leo move to?", "Oslo", ["D1:1"], 4),
        ("What happened to the red bicycle?", "It was stolen", ["D1:2", "D2:1"], 1),
        ("Which trumpet did Cy sell?", None, [], 5),
    ],
}


def write_locomo(folder: Path) -> Path:
    """Two conversations, one file each; gives the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, chat in _CHATS.items():
        held: dict[str, object] = {}
        for number, (date, turns) in enumerate(chat, start=1):
            held[f"session_{number}_date_time"] = date
            held[f"session_{number}"] = [
                {"speaker": speaker, "dia_id": f"D{number}:{place}", "text": text}
                for place, (speaker, text) in enumerate(turns, start=1)
            ]
        qa: list[dict[str, object]] = []
        for question, answer, evidence, category in _QUESTIONS[name]:
            entry: dict[str, object] = {
                "question": question,
                "evidence": evidence,
                "category": category,
            }
            entry |= {"adversarial_answer": "something"} if answer is None else {"answer": answer}
            qa.append(entry)
        data = {"sample_id": name, "conversation": held, "qa": qa}
        (folder / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


TYPES = (
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "temporal-reasoning",
    "knowledge-update",
    "multi-session",
)


def write_longmemeval(folder: Path) -> Path:
    """Write an instance of each of the six types and one that cannot be answered."""
    folder.mkdir(parents=True, exist_ok=True)
    instances: list[dict[str, object]] = []
    for number, kind in enumerate([*TYPES, "multi-session"], start=1):
        absent = number > len(TYPES)
        told = [
            {
                "role": "user",
                "content": f"My locker number is {100 + number}.",
                "has_answer": not absent,
            },
            {"role": "assistant", "content": "Noted, I will keep that in mind."},
        ]
        other = [
            {"role": "user", "content": "Tell me about tulips."},
            {"role": "assistant", "content": "They bloom in spring."},
        ]
        instances.append(
            {
                "question_id": f"q{number}_abs" if absent else f"q{number}",
                "question_type": kind,
                "question": "Which violin did I lend to Marta?"
                if absent
                else "What is my locker number?",
                "answer": "You never mentioned a violin." if absent else 100 + number,
                "question_date": "2023/06/01 (Thu) 10:00",
                "haystack_session_ids": [f"s{number}a", f"s{number}b"],
                "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/22 (Mon) 12:00"],
                "haystack_sessions": [told, other],
                "answer_session_ids": [] if absent else [f"s{number}a"],
            }
        )
    path = folder / "longmemeval_tiny.json"
    path.write_text(json.dumps(instances), encoding="utf-8")
    return path
