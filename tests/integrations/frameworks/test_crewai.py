"""memagent as the memory of a crew."""

# pyright: reportMissingImports=false

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from memagent import Agent

pytestmark = pytest.mark.skipif(find_spec("crewai") is None, reason="needs pip install crewai")
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_TRACING_ENABLED": "false",
}


@pytest.mark.filterwarnings("ignore")
def test_a_crew_recalls_before_a_task_and_saves_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**QUIET, "CREWAI_STORAGE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    from crewai import Agent as Worker
    from crewai import BaseLLM, Crew, Task

    from memagent.integrations.frameworks.crewai import MemagentMemory

    class Fake(BaseLLM):
        def call(self, messages: Any, *_: Any, **__: Any) -> str:
            seen.append(str(messages))
            return "Thought: I now can give a great answer\nFinal Answer: Rex"

        def supports_function_calling(self) -> bool:
            return False

    seen: list[str] = []
    with Agent(path=":memory:", user_id="ana", embedder="hashing") as agent:
        memory = MemagentMemory.over(agent)
        record = memory.remember("The dog is called Rex.", scope="/pets", categories=["dog"])
        assert record is not None and record.scope == "/pets" and record.categories == ["dog"]
        assert memory.recall("dog", scope="/cars") == [] and memory.recall(" ") == []
        worker = Worker(role="helper", goal="help", backstory="helps", llm=Fake(model="fake"))
        task = Task(description="Name the dog", expected_output="a name", agent=worker)
        result = Crew(agents=[worker], tasks=[task], memory=memory, verbose=False).kickoff()
        assert str(result) == "Rex"
        assert any("The dog is called Rex." in text for text in seen)
        assert any(
            "Rex" in item.text and item.text != record.content for item in agent.memory.get_all()
        )
        memory.reset()
        assert agent.memory.get_all() == []
