"""`compass_mem` from end to end: a real conversation through litellm and HTTP, its
graph counted, walks told by `memagent ask --why`.

A server on loopback answers by rules from what each prompt shows: events are what a
speaker keeps coming back to in a session, relations come from shared turns and order,
the explorer follows shared words. The figures of the whole conversation: `pytest -m
full --log-cli-level=INFO` on this file.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line_kit import got, real, run
from scripted_server import Body, Reply, ScriptedServer

from memagent.build import open_agent, prompt_set_digest
from memagent.config import AgentSettings, ModelSettings
from memagent.core.answers import Answer
from memagent.core.snapshot import GraphStats
from memagent.readers import read_conversation
from memagent.readers.files import Conversation

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None,
    reason='needs the extra: pip install "memagent[llm]"',
)
MODEL = "openai/scripted"
WORD = re.compile(r"[a-z]{5,}")
COMMON = frozenset(
    "about really would could should there their where which think thing things going great thanks still thats every happy always know "
    "never these those other after before because while being having gonna start started awesome sounds years first image".split()
)


def words(text: str) -> set[str]:
    """Words that say something, with plural endings cut."""
    return {word.removesuffix("s") for word in WORD.findall(text.lower()) if word not in COMMON}


# -- the server ------------------------------------------------------------------------


def segmented(user: str) -> object:
    """At most eight events a session: a speaker and a word that this speaker says in
    two turns or more.
    """
    turns = re.findall(r"^\[(.+?)\] (.+?): (.+)$", user, re.M)
    said: dict[tuple[str, str], list[str]] = {}
    for turn, speaker, text in turns:
        for word in sorted(words(text)):
            said.setdefault((speaker, word), []).append(turn)
    often = sorted(said, key=lambda key: (-len(said[key]), key))[:8]
    events = [
        {
            "summary": f"{who} talks about {word}",
            "people": [who],
            "turns": said[who, word],
            "when": None,
        }
        for who, word in often
        if len(said[who, word]) > 1
    ]
    return {"events": events}


def related(user: str) -> object:
    count = len(re.findall(r"^\d+\. ", user.partition("<events>")[2], re.M))
    links = [
        {"source": i, "target": i + 1, "relation": "follows", "turns": []} for i in range(count - 1)
    ]
    links += [
        {"source": 0, "target": i, "relation": "motivates", "turns": []} for i in range(2, count)
    ]
    return {"relations": links}


def judged(user: str) -> object:
    pairs = re.findall(
        r"^(\d+)\. first: (?:\(.*?\) )?(.+)\n   second: (?:\(.*?\) )?(.+)$", user, re.M
    )
    return {
        "pairs": [
            {
                "pair": int(n),
                "verdict": "same" if words(a) == words(b) else "overlapping",
                "label": "kindred",
            }
            for n, a, b in pairs
        ]
    }


def between(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>\n")[2].partition(f"\n</{tag}>")[0]


def explored(user: str) -> object:
    asked = words(between(user, "question"))
    here = words(between(user, "event") + between(user, "turns"))
    near = re.findall(r"^\[(evt_\w+)\] \(.*?\) (.*)$", between(user, "neighbours"), re.M)
    order = sorted(near, key=lambda pair: (-len(words(pair[1]) & asked), pair[0]))
    proven = [0] if asked and asked <= here else []
    action = "EXPAND" if asked & here else "SKIP"
    return {"action": action, "next": [event for event, _ in order[:2]], "proven": proven}


def answered(user: str) -> object:
    asked = words(between(user, "question"))
    shown = re.findall(r"^\[(\S+?)\] (?:\(.*?\) )?(.*)$", between(user, "memories"), re.M)
    best = max(shown, key=lambda pair: len(words(pair[1]) & asked), default=("", ""))
    return {"citations": [best[0]], "answer": best[1][:80], "abstain": not best[0]}


def scripted(body: Body, _: int) -> Reply:
    """Reads from the prompt which of the calls it is, and answers it."""
    messages = body["messages"]
    assert isinstance(messages, list)
    system, user = (str(one["content"]) for one in messages[:2] if isinstance(one, dict))
    calls = {
        "divide what it tells into events": segmented,
        "how the events of one session hang together": related,
        "free of doubles": judged,
        "walk through a graph": explored,
        "prepare a search": lambda user: {
            "subgoals": [between(user, "question"), "Find who it was"]
        },
        "answer questions from a memory": answered,
        "Write what is still missing": lambda user: {"missing": between(user, "question")},
    }
    (reply,) = (make(user) for mark, make in calls.items() if mark in system)
    return Reply(
        text=json.dumps(reply), prompt_tokens=len(f"{system} {user}".split()), completion_tokens=40
    )


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(scripted) as running:
        yield running


# -- the runs --------------------------------------------------------------------------


def conversation(folder: Path) -> Conversation:
    file = folder / "conv-30.json"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    return read_conversation(file)


async def played(
    server: ScriptedServer, path: Path, talk: Conversation, *, sessions: int | None, questions: int
) -> tuple[GraphStats, list[Answer], list[int]]:
    """Statistics of the graph, the answers, and how many calls each session took."""
    model = ModelSettings(model=MODEL, api_base=server.url, api_key="test-key")
    calls: list[int] = []
    async with open_agent(
        path=path, design="compass_mem", settings=AgentSettings(model=model)
    ) as agent:
        for session in talk.sessions[:sessions]:
            before = len(server.requests)
            report = await agent.remember(session)
            assert not report.failed_chunks
            calls.append(len(server.requests) - before)
            assert report.usage.calls == calls[-1]
        answers = [await agent.ask(one.text) for one in talk.questions[:questions]]
        return await agent.memory.graph_stats(), answers, calls


def kinds(server: ScriptedServer) -> Counter[str]:
    """Calls by the opening words of their system prompt."""
    heads = (str(body["messages"][0]["content"])[:28] for body in server.requests)  # type: ignore[index,call-overload]
    return Counter(heads)


def settings_file(server: ScriptedServer, folder: Path) -> str:
    """Settings that lead another process to the same store and server."""
    settings = folder / "memagent.toml"
    settings.write_text(
        f'design = "compass_mem"\n[store]\ntype = "sqlite"\npath = "{folder / "memory.db"}"\n'
        f'[model]\nmodel = "{MODEL}"\napi_base = "{server.url}"\napi_key = "test-key"\n',
        encoding="utf-8",
    )
    return str(settings)


def test_a_conversation_becomes_a_graph_whose_walks_are_told(
    server: ScriptedServer, tmp_path: Path, locomo_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("MEMAGENT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    talk = conversation(locomo_dir)
    stats, answers, calls = asyncio.run(
        played(server, tmp_path / "memory.db", talk, sessions=5, questions=3)
    )

    assert all(2 <= count <= 3 for count in calls), "segment and relate, at times judge"
    assert stats.sessions == 5 and all(
        1 <= count <= 8 for count in stats.events_per_session.values()
    )
    assert stats.merged_events >= 1 and stats.events < sum(8 for _ in calls)
    assert stats.nodes["event"] == stats.events == sum(stats.components)
    assert (
        stats.event_edges["follows"] > 0
        and stats.edges["part_of"] > 0
        and stats.edges["mentions"] > 0
    )

    walked = [
        hit for answer in answers for hit in answer.hits if hit.why.via and hit.kind == "event"
    ]
    assert walked, "some event was reached from another"
    for answer in answers:
        shown = {hit.id for hit in answer.hits}
        assert answer.abstained or {one.hit_id for one in answer.citations} <= shown
        assert answer.usage.calls == len(answer.response_ids) >= 3, "plan, explore, answer"

    asked = next(
        a for a in answers if any(hit.why.via for hit in a.hits) and a.question is not None
    )
    assert asked.question is not None
    printed = real("ask", asked.question.text, "--why", "--config", settings_file(server, tmp_path))
    assert printed.returncode == 0, printed.stderr
    told = " ".join(printed.stdout.split()).partition("reached in the event graph")[2]
    for hit in (hit for hit in asked.hits if hit.why.via):
        path = [
            f"{node} {f'-{relation}->' if forward else f'<-{relation}-'}"
            for node, relation, forward in hit.why.via
        ]
        assert " ".join((*path, f"{hit.id}: {hit.text}")) in told, (
            "the same walk in another process"
        )

    counted = got(run("stats", "--graph", "--json", "--config", settings_file(server, tmp_path)))
    assert GraphStats.model_validate(counted["graph"]) == stats and counted["sessions"] == 5
    table = run("stats", "--graph", "--config", settings_file(server, tmp_path)).stdout
    assert "edges between events" in table and "told more than once" in table


async def test_the_same_conversation_gives_the_same_graph(
    server: ScriptedServer, tmp_path: Path, locomo_dir: Path
) -> None:
    talk = conversation(locomo_dir)
    runs = [
        await played(server, tmp_path / f"{number}.db", talk, sessions=2, questions=1)
        for number in range(2)
    ]
    assert runs[0][0] == runs[1][0] and runs[0][2] == runs[1][2]
    assert [hit.id for hit in runs[0][1][0].hits] == [hit.id for hit in runs[1][1][0].hits]


@pytest.mark.full
def test_the_whole_conversation(server: ScriptedServer, tmp_path: Path, locomo_dir: Path) -> None:
    talk = conversation(locomo_dir)
    stats, answers, calls = asyncio.run(
        played(server, tmp_path / "memory.db", talk, sessions=None, questions=40)
    )
    assert stats.sessions == len(talk.sessions) and stats.merged_events > 0
    walked = [
        hit for answer in answers for hit in answer.hits if hit.why.via and hit.kind == "event"
    ]
    assert walked and not any(
        len(answer.citations) == 0 and not answer.abstained for answer in answers
    )
    figures = {
        "prompts": prompt_set_digest("compass_mem"),
        "calls a session": calls,
        "calls by kind": dict(kinds(server)),
        "graph": stats.model_dump(),
        "questions": len(answers),
        "calls for questions": sum(answer.usage.calls for answer in answers),
        "events reached by edges": len(walked),
    }
    logging.getLogger(__name__).info("%s", json.dumps(figures))
