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
    from crewai import Agent as Worker, BaseLLM, Crew, Task

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


def test_scopes_categories_and_privacy_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**QUIET, "CREWAI_STORAGE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    from memagent.integrations.frameworks.crewai import MemagentMemory

    with Agent(path=":memory:", user_id="ana", embedder="hashing") as agent:
        memory = MemagentMemory.over(agent)
        rex = memory.remember("The dog is called Rex.", scope="/pets", categories=["dog"])
        memory.remember("The dog shop opens at nine.", scope="/petshop", categories=["shop"])
        memory.remember("The dog bit Bo.", scope="/pets/secrets", source="vet", private=True)
        seen = [match.record.scope for match in memory.recall("dog", scope="/pets")]
        assert seen == ["/pets"]
        assert {
            match.record.scope for match in memory.recall("dog", scope="/pets", source="vet")
        } == {
            "/pets",
            "/pets/secrets",
        }
        assert [m.record.scope for m in memory.recall("dog", categories=["shop"])] == ["/petshop"]
        assert memory.list_scopes("/") == ["/pets", "/petshop"]
        assert memory.list_categories() == {"dog": 1, "shop": 1}
        assert memory.info("/pets").record_count == 2 and "/pets/secrets" in memory.tree()
        assert rex is not None
        memory.update(rex.id, scope="/cats")
        assert memory.list_records("/cats")[0].content == rex.content
        assert memory.forget(record_ids=[rex.id]) == 1
        memory.reset(scope="/pets")
        assert [record.scope for record in memory.list_records()] == ["/petshop"]
