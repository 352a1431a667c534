"""Each way a model fails: one plain line, the turns stored, and `resume()` finishes.

The real litellm client meets HTTP servers on this machine, closed ports and names that
do not exist. The page docs/faq.md shows the same lines.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from litellm_marks import LITELLM_MARKS
from places import ROOT
from scripted_server import Reply, ScriptedServer

from memagent import Agent, AsyncAgent
from memagent.config import AgentSettings, ModelSettings
from memagent.core import errors
from memagent.core.errors import ModelError, ModelUnreachable, ReplyUnreadable
from memagent.llm import litellm_errors as vendor
from memagent.llm.litellm_model import LiteLLMModel
from memagent.llm.wrappers import RetryingModel

pytestmark = LITELLM_MARKS
PAGE = ROOT / "docs" / "faq.md"
TALK = [
    {"role": "user", "content": "I moved to Porto in May."},
    {"role": "assistant", "content": "How do you like it?"},
    {"role": "user", "content": "The stairs are steep."},
]
STORED = " Your 3 turns are stored (session 's1'); resume() or the same call continues."
FACTS = json.dumps(
    {
        "facts": [
            {"text": "The user moved to Porto", "subject": None, "source": "s1:1", "when": None}
        ]
    }
)


def free_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return int(closed.getsockname()[1])


@dataclass(frozen=True)
class Case:
    """A fault: how to make it, the class of its error and whether the call may be repeated."""

    kind: type[ModelError]
    retryable: bool = False
    reply: Reply | None = None
    model: str = "openai/test-model"
    base_url: str = "{server}"
    api_key: str | None = "k"


CASES = {
    "No API key": Case(
        errors.ModelAuthError, model="openai/gpt-4o-mini", base_url="", api_key=None
    ),
    "Refused API key": Case(
        errors.ModelAuthError, reply=Reply.failing(401, error="Incorrect API key provided")
    ),
    "Unknown model": Case(
        errors.ModelNotFound,
        reply=Reply.failing(404, error="The model 'test-model' does not exist"),
    ),
    "No provider in the name": Case(errors.ModelNotFound, model="gpt-nonsense", base_url=""),
    "Nothing listens": Case(
        errors.ModelUnreachable, retryable=True, base_url="http://127.0.0.1:{closed}/v1"
    ),
    "Unknown host": Case(
        errors.ModelUnreachable, retryable=True, base_url="http://no-such-host.invalid:8000/v1"
    ),
    "TLS failed": Case(errors.ModelUnreachable, base_url="{tls}"),
    "No answer in time": Case(errors.ModelTimeout, retryable=True, reply=Reply.hanging()),
    "Too many calls": Case(
        errors.ModelRateLimited, retryable=True, reply=Reply.rate_limited(retry_after_s=3600)
    ),
    "Quota used up": Case(
        errors.QuotaExhausted,
        reply=Reply(
            status=429,
            error="You exceeded your current quota, please check your plan",
            error_code="insufficient_quota",
        ),
    ),
    "Server error": Case(
        errors.ModelUnavailable, retryable=True, reply=Reply.failing(500, error="out of memory")
    ),
    "Connection lost": Case(errors.ModelUnavailable, retryable=True, reply=Reply.dropped()),
    "Prompt too long": Case(
        errors.ContextOverflow,
        reply=Reply(
            status=400,
            error="This model's maximum context length is 4096 tokens",
            error_code="context_length_exceeded",
        ),
    ),
    "Not a completion": Case(
        errors.ModelUnavailable, retryable=True, reply=Reply.truncated(keep_bytes=60)
    ),
    "Content filter": Case(errors.ReplyWithheld, reply=Reply(text=None, finish="content_filter")),
    "Refused request": Case(
        errors.RequestRefused, reply=Reply.failing(400, error="temperature must be below 2")
    ),
}


@contextmanager
def failing(case: Case) -> Iterator[tuple[AgentSettings, ScriptedServer]]:
    """Yield settings for a model that fails as the case says, and the server behind it."""
    with ScriptedServer(lambda body, index: case.reply or "unused") as server:
        url = case.base_url.format(
            server=server.url, closed=free_port(), tls=server.url.replace("http:", "https:")
        )
        model = ModelSettings(
            model=case.model,
            base_url=url or None,
            api_key=case.api_key,
            timeout_s=0.5 if case.reply == Reply.hanging() else 20.0,
            attempts=1,
        )
        yield AgentSettings(model=model), server


def line_of(case: Case, path: Path) -> tuple[ModelError, str]:
    """Return the error of remembering three turns with a failing model, and its line."""

    async def story() -> ModelError:
        with failing(case) as (settings, _):
            async with AsyncAgent(path=path, settings=settings) as agent:
                with pytest.raises(ModelError) as caught:
                    await agent.remember(TALK, session_id="s1", at="2024-05-20")
                assert [len(stored.turns) for stored in await agent.memory.sessions()] == [3]
                assert (await agent.status()).unfinished == 1
                return caught.value

    error = asyncio.run(story())
    return error, re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", str(error))


async def unknown_host(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def rows() -> dict[str, list[str]]:
    """Return the cells of the page's table by their first."""
    table = PAGE.read_text(encoding="utf-8").partition("### The faults")[2].partition("\n### ")[0]
    lines = [line for line in table.splitlines() if line[:2] == "| "]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row[1:] for row in cells if row[0] not in ("Fault", "---")}


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_one_plain_line_and_loses_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    case = CASES[name]
    if name == "Unknown host":  # the suite asks no name server
        monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", unknown_host)
    error, line = line_of(case, tmp_path / "memory.db")
    assert (type(error), error.retryable) == (case.kind, case.retryable)
    assert "\n" not in line
    assert line.endswith(STORED)
    assert (error.session_id, error.stored_turns) == ("s1", 3)
    kind, shown, _ = rows()[name]
    assert kind == f"`{case.kind.__name__}`"
    assert shown == f"`{line.removesuffix(STORED).rstrip('.')}`"


def test_the_page_has_every_fault_once() -> None:
    assert list(rows()) == list(CASES)
    assert len(CASES) >= 12


def test_a_repaired_model_finishes_what_a_failure_left(tmp_path: Path) -> None:
    """The same call continues, and so does `resume`; the turns are stored once."""
    broken = True

    def reply(body: object, index: int) -> Reply | str:
        if broken:
            return Reply.failing(500)
        return FACTS if "facts" in json.dumps(body) and index % 2 == 1 else '{"ops": []}'

    with ScriptedServer(reply) as server:
        model = ModelSettings(model="openai/m", api_base=server.url, api_key="k", attempts=1)
        with Agent(path=tmp_path / "m.db", settings=AgentSettings(model=model)) as agent:
            with pytest.raises(ModelError):
                agent.remember(TALK, session_id="s1", at="2024-05-20")
            kept = agent.remember(TALK, session_id="s1", at="2024-05-20", on_error="keep")
            assert len(kept.failed_chunks) == 1
            assert agent.status().unfinished == 1
            broken = False
            (report,) = agent.resume()
            assert (report.session_id, report.failed_chunks) == ("s1", ())
            assert agent.resume() == []
            assert agent.remember(TALK, session_id="s1", at="2024-05-20").skipped
            assert agent.status().unfinished == 0


def test_a_background_write_that_fails_is_logged_once_counted_and_raised_by_flush(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with failing(CASES["Server error"]) as (settings, _):
        agent = Agent(path=tmp_path / "m.db", settings=settings)
        agent.remember(TALK, session_id="s1", at="2024-05-20", background=True)
        with pytest.raises(errors.ModelUnavailable, match="3 turns are stored"):
            agent.flush()
        status = agent.status()
        assert (status.pending, status.failed, status.sessions, status.memories) == (0, 1, 1, 0)
        assert status.last_error is not None
        assert "out of memory" in status.last_error
        assert status.path == str(tmp_path / "m.db")
        assert status.model == "openai/test-model"
        agent.close()
    told = [record for record in caplog.records if record.name == "memagent.background"]
    assert len(told) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_that_is_not_there_is_told_before_the_vendor_is_imported(host: str) -> None:
    """Two attempts at most, and nothing heavy is loaded for them."""
    code = f"""
import sys, time
from memagent import Agent
from memagent.core.errors import ModelUnreachable
url = "http://{host}:{free_port()}/v1"
with Agent("openai/m", path=":memory:", base_url=url, api_key="k") as agent:
    agent.remember("warm", on_error="keep")
    began, spent = time.perf_counter(), time.process_time()
    try:
        agent.remember("I moved to Porto.")
    except ModelUnreachable as error:
        assert "(connection refused); start it" in str(error), error
    else:
        raise SystemExit("nothing was raised")
    print(time.perf_counter() - began, time.process_time() - spent)
    assert "litellm" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    wall_s, cpu_s = map(float, done.stdout.split())
    assert wall_s < 9.0  # a third attempt would wait longer than that
    assert cpu_s < 3.0  # litellm alone takes longer to load


def test_refused_connections_are_given_up_soon_and_a_wait_is_kept_within_the_budget() -> None:
    async def waits(case: Case) -> tuple[list[float], int]:
        """Return the waits between attempts, and the requests that arrived."""
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        with failing(case) as (settings, server):
            assert settings.model is not None
            base = settings.model
            named = LiteLLMModel(base.model, base_url=base.base_url, api_key=base.api_key)
            model = RetryingModel(named, attempts=4, sleep=sleep)
            with pytest.raises(case.kind):
                await AsyncAgent(model, path=":memory:").remember(TALK)
            return slept, len(server.requests)

    refused, _ = asyncio.run(waits(CASES["Nothing listens"]))
    assert ModelUnreachable.patience_s == 1.5 and sum(refused) <= 1.5
    assert len(refused) <= 1
    assert asyncio.run(waits(CASES["Too many calls"])) == ([], 1), "an hour is too long"
    soon = Case(errors.ModelRateLimited, reply=Reply.rate_limited(retry_after_s=7))
    patient, calls = asyncio.run(waits(soon))
    assert calls == 4
    assert all(wait >= 7 for wait in patient)


UNREADABLE = {
    "empty": Reply(text=""),
    "prose": Reply(text="Sure, I can help!"),
    "cut off": Reply(text='{"facts": [{"te', finish="length"),
    "the prompt's example": Reply(
        text='{"facts": [{"text": "Vexil adopted a grey cat named Qindra", "source": "D1:3"}]}'
    ),
    "turns of nobody": Reply(text='{"facts": [{"text": "Ana moved", "source": "D9:9"}]}'),
}


@pytest.mark.parametrize("reply", UNREADABLE.values(), ids=list(UNREADABLE))
def test_after_a_second_unreadable_reply_the_rules_remember_the_chunk(reply: Reply) -> None:
    async def story() -> None:
        without = AsyncAgent(path=":memory:", design="verbatim")
        await without.remember(TALK, session_id="s1")
        with failing(Case(ReplyUnreadable, reply=reply)) as (settings, server):
            agent = AsyncAgent(path=":memory:", settings=settings)
            report = await agent.remember(TALK, session_id="s1")
            assert len(server.requests) <= 3
            assert "could not be read" in report.chunks[0].note
            assert not report.failed_chunks
            assert all("by the rules" in done.op.reason for done in report.chunks[0].applied)
            kept, least = await agent.memory.get_all(), await without.memory.get_all()
            assert {item.text for item in kept} >= {item.text for item in least}

    asyncio.run(story())


def test_a_rollout_keeps_an_unreadable_reply_as_data() -> None:
    async def story() -> None:
        with failing(Case(ReplyUnreadable, reply=UNREADABLE["prose"])) as (settings, _):
            agent = AsyncAgent(path=":memory:", settings=settings, keep_unreadable=True)
            report = await agent.remember(TALK, session_id="s1")
            assert report.failed_chunks == ()
            assert [status.value for status in report.chunks[0].parse] == ["failed", "failed"]

    asyncio.run(story())


def test_without_litellm_opening_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(errors.MissingExtra, match=r'pip install "memagent\[llm\]"') as caught:
        Agent("openai/gpt-4o-mini", path=":memory:")
    assert "the model 'openai/gpt-4o-mini' needs" in str(caught.value)


def test_a_name_of_several_addresses_is_unreachable_too() -> None:
    several = OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1)")
    assert vendor.unreached(several, "localhost:1") is not None
    assert vendor.unreached(OSError("disk full"), "localhost:1") is None
    assert issubclass(ModelUnreachable, errors.ModelUnavailable)
