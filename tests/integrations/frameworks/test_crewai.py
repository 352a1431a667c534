"""memagent as the memory of a crew."""

# pyright: reportMissingImports=false

from __future__ import annotations

from datetime import datetime, timedelta
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


CUTOFF = datetime(2026, 1, 15)
ROWS = (
    ("target", "/tenant1", "finance", "active", -1),
    ("child", "/tenant1/child", "finance", "active", -1),
    ("boundary", "/tenant1", "finance", "active", 0),
    ("newer", "/tenant1", "finance", "active", 1),
    ("other", "/tenant1", "law", "archived", -1),
    ("sibling", "/tenant10", "finance", "active", -1),
    ("foreign", "/te_ant1's_100%", "finance", "active", -1),
    ("root", "/", "finance", "active", -1),
)
NAMES = {row[0] for row in ROWS}
DELETIONS: tuple[tuple[dict[str, Any], set[str]], ...] = (
    ({"scope_prefix": "/tenant1"}, NAMES - {"sibling", "foreign", "root"}),
    ({"scope_prefix": "tenant1/", "older_than": CUTOFF}, {"target", "child", "other"}),
    ({"scope_prefix": "/te_ant1's_100%"}, {"foreign"}),
    ({"record_ids": ["target", "sibling", "root"], "scope_prefix": "/tenant1"}, {"target"}),
    ({"record_ids": ["target", "boundary", "newer"], "older_than": CUTOFF}, {"target"}),
    ({"record_ids": ["target", "other"], "categories": ["finance", "no"]}, {"target"}),
    ({"metadata_filter": {"status": "archived"}}, {"other"}),
    ({"metadata_filter": {"status": "active", "missing": True}}, set()),
    ({"older_than": datetime.fromisoformat("2026-01-15T01:00:00+02:00")}, {"*old"}),
    ({"record_ids": ["missing"]}, set()),
    ({"categories": [], "metadata_filter": {}}, NAMES),
    ({}, NAMES),
    # CrewAI's own store takes no names for all names, and deletes everything
    ({"record_ids": []}, set()),
)


@pytest.mark.parametrize(("conditions", "gone"), DELETIONS, ids=map(str, range(len(DELETIONS))))
def test_storage_deletes_what_meets_every_condition(
    conditions: dict[str, Any], gone: set[str]
) -> None:
    from crewai.memory.types import MemoryRecord

    from memagent.integrations.frameworks.crewai import CrewStorage

    old = {row[0] for row in ROWS if row[4] < 0}
    gone = old if gone == {"*old"} else gone
    with Agent(path=":memory:", user_id="ana", embedder="hashing") as agent:
        storage = CrewStorage(agent)
        storage.save(
            [
                MemoryRecord(
                    id=name,
                    content=name,
                    scope=scope,
                    categories=[category],
                    metadata={"status": status},
                    created_at=CUTOFF + timedelta(days=days),
                )
                for name, scope, category, status, days in ROWS
            ]
        )
        assert storage.delete(**conditions) == len(gone)
        assert {name for name in NAMES if storage.get_record(name) is None} == gone
        assert storage.delete(**conditions) == 0


def test_storage_knows_scopes_by_their_segments() -> None:
    from crewai.memory.types import MemoryRecord

    from memagent.integrations.frameworks.crewai import CrewStorage

    with Agent(path=":memory:", user_id="ana", embedder="hashing") as agent:
        storage = CrewStorage(agent)
        places = (("/", "a"), ("/app", "b"), ("/app/sub", "b"), ("/apple", "c"))
        storage.save(
            [MemoryRecord(content=f"In {at}", scope=at, categories=[c]) for at, c in places]
        )
        for spelling in ("/app", "app", "/app/"):
            assert {r.scope for r in storage.list_records(spelling)} == {"/app", "/app/sub"}
            assert storage.count(spelling) == 2 and storage.list_categories(spelling) == {"b": 2}
        assert storage.count("/") == storage.count() == len(storage.list_records("/")) == 4
        assert storage.list_scopes("/") == ["/app", "/apple"]
        assert storage.list_scopes("/app") == ["/app/sub"]
        info = storage.get_scope_info("/app")
        assert (info.path, info.record_count, info.categories) == ("/app", 2, ["b"])
        assert info.child_scopes == ["/app/sub"]
        storage.reset(scope_prefix="/app")
        assert {record.scope for record in storage.list_records()} == {"/", "/apple"}
