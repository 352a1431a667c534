"""Messages in twenty threads with a slow model, and kills in between."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from chat_workloads import words
from crash_child import CrashServer

from memagent import Agent

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
THREADS = 20


@pytest.mark.parametrize(
    ("messages", "kills"), [(20, 2), pytest.param(100, 5, marks=pytest.mark.full)]
)
def test_no_message_that_was_answered_is_lost_and_nothing_fails(
    tmp_path: Path, messages: int, kills: int
) -> None:
    path, rng = str(tmp_path / "memory.db"), random.Random(3)
    answered: dict[str, int] = {}
    killed, failed = 0, None
    with CrashServer("chat_workloads") as server:
        while failed is None:
            after = rng.uniform(0.5, messages / 25) if killed < kills else None
            death = server.run(
                "chat_workloads:talk",
                path=path,
                begin=answered,
                messages=messages,
                threads=THREADS,
                kill_after_s=after,
            )
            assert death.trace == ""
            for line in death.said:
                name, number = line.split()
                if name == "@failed":
                    failed = int(number)
                else:
                    answered[name] = int(number) + 1
            killed += death.killed
    assert killed and failed == 0
    assert answered == {str(thread): messages for thread in range(THREADS)}

    with Agent(user_id="ana", path=path, embedder="hashing") as agent:
        said = [turn.text for session in agent.memory.sessions() for turn in session.turns]
        lockers = {item.text for item in agent.memory.get_all()}
    for thread in range(THREADS):
        for number in range(messages):
            times = said.count(words(thread, number))
            assert 1 <= times <= 1 + killed, "a message may be sent again after a kill, never lost"
    kept = {mark for text in lockers for mark in re.findall(r"locker (\w+)", text)}
    expected = {f"{thread}x{number}" for thread in range(THREADS) for number in range(messages)}
    assert kept == expected
