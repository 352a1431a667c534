"""What stops a program ends at the caller of a synchronous agent, and never hangs it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from memagent import Agent
from memagent.core.errors import ModelError
from memagent.core.exchange import FinishReason, ModelRequest, ModelResponse, ToolCall
from memagent.testing import FunctionModel

STOPS = (SystemExit(3), GeneratorExit("over"), KeyboardInterrupt(), StopIteration("over"))
MOST_S = 60.0


def model(how: str, stop: BaseException) -> FunctionModel:
    """A model that raises at once, in a thread, or in a task of its own."""

    def throw() -> str:
        raise stop

    async def fail() -> str:
        raise stop

    async def answer(_: ModelRequest) -> str:
        if how == "thread":
            return await asyncio.to_thread(throw)
        return (await asyncio.gather(fail()))[0] if how == "task" else throw()

    return FunctionModel(answer)


def outcome(call: Callable[[], object]) -> object:
    """Return what a call in a thread gives or raises; fail where it hangs."""
    ended: list[object] = []

    def work() -> None:
        try:
            ended.append(call())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(MOST_S)
    assert ended, "the call hangs"
    return ended[0]


def calls(agent: Agent) -> dict[str, Callable[[], object]]:
    def later() -> object:
        agent.remember("Ana likes tea.", background=True)
        return agent.flush()

    return {
        "ask": lambda: agent.ask("What does Ana like?"),
        "stream": lambda: list(agent.stream("What does Ana like?")),
        "remember": lambda: agent.remember("Ana likes tea."),
        "background": later,
        "chat": lambda: agent.chat("Hello", background=False),
    }


@pytest.mark.parametrize("verb", ["ask", "stream", "remember", "background", "chat"])
@pytest.mark.parametrize("how", ["call", "thread", "task"])
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: type(stop).__name__)
def test_a_model_that_stops_ends_the_call_and_leaves_the_agent_in_use(
    stop: BaseException, how: str, verb: str
) -> None:
    agent = Agent(model(how, stop), path=":memory:", embedder="hashing")
    agent.memory.add("Ana likes tea.")
    raised = outcome(calls(agent)[verb])
    assert isinstance(raised, type(stop) | ModelError | RuntimeError), raised
    if isinstance(stop, SystemExit | KeyboardInterrupt):
        assert type(raised) is type(stop)
    items: Any = outcome(agent.memory.get_all)
    assert [item.text for item in items] == ["Ana likes tea."]
    assert outcome(agent.close) is None


# GeneratorExit ends LangGraph's own generators half-way, which the collector reports
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: type(stop).__name__)
def test_a_tool_that_stops_ends_the_call(stop: BaseException, asynchronous: bool) -> None:
    def look() -> str:
        """Look outside."""
        raise stop

    async def gaze() -> str:
        """Look outside."""
        raise stop

    tool = gaze if asynchronous else look

    def answer(request: ModelRequest) -> ModelResponse:
        if any(message.role == "tool" for message in request.messages) or not request.tools:
            return ModelResponse(id="r2", text="It rains.", finish=FinishReason.STOP)
        call = ToolCall(id="c", name=tool.__name__, arguments="{}")
        return ModelResponse(id="r1", text="", tool_calls=(call,), finish=FinishReason.TOOL_CALLS)

    agent = Agent(FunctionModel(answer), path=":memory:", embedder="hashing", tools=[tool])
    raised = outcome(lambda: agent.ask("How is the weather?"))
    if not isinstance(stop, StopIteration):  # the tool's fault, which the model is told
        assert type(raised) is type(stop)
    assert outcome(agent.memory.get_all) == []
    assert outcome(agent.close) is None
