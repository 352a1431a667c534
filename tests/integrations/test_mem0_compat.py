"""mem0's calls and results over memagent, and the importer of its stores."""

from __future__ import annotations

import inspect
import json
import random
import re
import sqlite3
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fuzz_kit import calls

from memagent import Agent
from memagent.build import open_store
from memagent.core.errors import ConfigError, InputError, ModelError, ModelUnavailable
from memagent.integrations.mem0 import AsyncMemory, Memory
from memagent.integrations.memory_import import import_memories, read_memories, read_point
from memagent.testing import FunctionModel

DRINKS = ("tea", "coffee", "nothing")
ANA: dict[str, Any] = {"user_id": "ana"}
BO: dict[str, Any] = {"user_id": "bo"}


@pytest.fixture
def memory() -> Any:
    with Memory(":memory:", embedder="hashing") as opened:
        yield opened


def test_add_answers_with_events_and_get_with_the_envelope(memory: Memory) -> None:
    told = memory.add(
        "Ana drinks green tea",
        **ANA,
        metadata={"category": "drink", "n": {"deep": [1]}},
        infer=False,
    )
    [event] = told["results"]
    assert event | {"id": ""} == {
        "id": "",
        "memory": "Ana drinks green tea",
        "event": "ADD",
        "actor_id": None,
        "role": "user",
    }
    shown = memory.get(event["id"])
    assert shown is not None
    assert set(shown) == {
        "id",
        "memory",
        "hash",
        "metadata",
        "created_at",
        "updated_at",
        "user_id",
        "role",
        "score",
    }
    assert (
        shown["metadata"] == {"category": "drink", "n": {"deep": [1]}} and shown["user_id"] == "ana"
    )
    assert memory.get("missing") is None


def test_messages_keep_role_and_actor_and_leave_the_system_out(memory: Memory) -> None:
    told = memory.add(
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "name": "Ana", "content": "I run."},
            {"role": "assistant", "content": "Well done."},
        ],
        **ANA,
        agent_id="coach",
        run_id="r1",
        infer=False,
    )
    assert [(one["actor_id"], one["role"]) for one in told["results"]] == [
        ("Ana", "user"),
        (None, "assistant"),
    ]
    [first] = [one for one in memory.get_all(filters=ANA)["results"] if one["memory"] == "I run."]
    assert (first["agent_id"], first["run_id"], first["actor_id"]) == ("coach", "r1", "Ana")


def test_without_a_model_infer_keeps_each_utterance_with_the_calls_metadata(memory: Memory) -> None:
    told = memory.add(
        "My dog Rex is allergic to chicken.", **ANA, run_id="r1", metadata={"kind": "pet"}
    )
    [event] = told["results"]
    assert event["event"] == "ADD"
    shown = memory.get(event["id"])
    assert shown is not None and shown["metadata"] == {"kind": "pet"} and shown["run_id"] == "r1"
    assert [one["event"] for one in memory.history(event["id"])] == ["ADD"]


def test_with_a_model_events_are_what_the_design_decided() -> None:
    heard: list[str] = []

    def reply(request: Any) -> str:
        """Note a drink per message; the manager adds the first, rewrites it, then deletes it."""
        text = str(request.messages[-1].content)
        if request.role.value == "extractor":
            [turn] = re.findall(r"\[(ses_[0-9a-f]+:1)\]", text)
            heard.append(turn)
            return json.dumps(
                {"facts": [{"text": f"Ana drinks {DRINKS[len(heard) - 1]}", "source": turn}]}
            )
        target = next(iter(re.findall(r"mem_\d+", text)), None)
        added, rewritten = (
            {"op": "ADD", "fact": 0},
            {"op": "UPDATE", "id": target, "text": "Ana drinks coffee", "fact": 0},
        )
        return json.dumps(
            {"ops": [[added, rewritten, {"op": "DELETE", "id": target, "fact": 0}][len(heard) - 1]]}
        )

    with Memory(
        ":memory:", model=FunctionModel(reply), embedder="hashing", design="memory_r1"
    ) as memory:
        told = [memory.add(f"I drink {drink}", **ANA)["results"] for drink in DRINKS]
    events = [[(one["event"], one["memory"]) for one in results] for results in told]
    assert events[0] == [("ADD", "Ana drinks tea")]
    assert (
        events[1] == [("UPDATE", "Ana drinks coffee")]
        and told[1][0]["previous_memory"] == "Ana drinks tea"
    )
    assert events[2] == [("DELETE", "Ana drinks coffee"), ("ADD", "Ana drinks nothing")]


def test_a_model_that_fails_loses_no_message() -> None:
    broken = {"yes": True}

    def reply(request: Any) -> str:
        if broken["yes"]:
            raise ModelUnavailable("down")
        return json.dumps({"facts": [], "ops": []})

    with Memory(
        ":memory:", model=FunctionModel(reply), embedder="hashing", design="memory_r1"
    ) as memory:
        with pytest.raises(ModelError, match="stored and not yet remembered"):
            memory.add("I drink tea", **ANA)
        broken["yes"] = False
        assert memory.add("I run", **ANA)["results"] == []


def test_update_delete_history_and_missing_ids(memory: Memory) -> None:
    key = memory.add("Ana drinks tea", **ANA, metadata={"a": 1}, infer=False)["results"][0]["id"]
    assert memory.update(key, text="Ana drinks coffee") == {
        "message": "Memory updated successfully!"
    }
    memory.update(key, metadata={"b": 2, "user_id": "bo"})
    memory.update(key, data="Ana drinks water")
    shown = memory.get(key)
    assert (
        shown is not None
        and shown["memory"] == "Ana drinks water"
        and shown["metadata"] == {"a": 1, "b": 2}
    )
    assert shown["user_id"] == "ana" and shown["updated_at"] > shown["created_at"]
    assert memory.delete(key) == {"message": "Memory deleted successfully!"}
    assert memory.get(key) is None
    changes = memory.history(key)
    assert [(one["event"], one["old_memory"], one["new_memory"]) for one in changes] == [
        ("ADD", None, "Ana drinks tea"),
        ("UPDATE", "Ana drinks tea", "Ana drinks coffee"),
        ("UPDATE", "Ana drinks coffee", "Ana drinks coffee"),
        ("UPDATE", "Ana drinks coffee", "Ana drinks water"),
        ("DELETE", "Ana drinks water", None),
    ]
    assert [one["is_deleted"] for one in changes] == [False] * 4 + [True]
    for call in (memory.delete, lambda one: memory.update(one, text="x")):
        for missing in (key, "missing"):
            with pytest.raises(ValueError, match="not found"):
                call(missing)
    assert memory.history("missing") == []
    with pytest.raises(InputError):
        memory.update(key)


def test_a_timestamp_dates_the_memory(memory: Memory) -> None:
    when = datetime(2024, 3, 4, 12, tzinfo=UTC)
    for given in (when, when.timestamp(), when.isoformat(), "2024-03-04T12:00:00"):
        for infer in (True, False):
            key = memory.add("Ana moved to Porto", **ANA, timestamp=given, infer=infer)["results"][
                0
            ]["id"]
            shown = memory.get(key)
            assert shown is not None and shown["created_at"] == when.isoformat()
    for bad in ("yesterday-ish", 1e30):
        with pytest.raises(InputError):
            memory.add("x", **ANA, timestamp=bad)


def test_what_has_expired_is_shown_only_when_asked_for(memory: Memory) -> None:
    today = datetime.now(UTC).date()
    gone = memory.add(
        "the gate code is 1234", **ANA, expiration_date=str(today - timedelta(days=1)), infer=False
    )["results"][0]["id"]
    kept = memory.add("the gate is green", **ANA, expiration_date=today, infer=False)["results"][0][
        "id"
    ]
    ids = [
        [one["id"] for one in memory.search("gate", filters=ANA, show_expired=shown)["results"]]
        for shown in (False, True)
    ]
    assert ids[0] == [kept] and sorted(ids[1]) == sorted([gone, kept])
    assert [one["id"] for one in memory.get_all(filters=ANA)["results"]] == [kept]
    assert len(memory.get_all(filters=ANA, show_expired=True)["results"]) == 2
    memory.update(gone, expiration_date=None)
    assert len(memory.search("gate", filters=ANA)["results"]) == 2
    with pytest.raises(InputError):
        memory.add("x", **ANA, expiration_date="soon")
    assert memory.add("for ever", **ANA, expiration_date=date.max, infer=False)["results"]


def test_search_takes_owner_filter_threshold_and_limit(memory: Memory) -> None:
    for at, (text, kind) in enumerate(
        [("green tea at noon", "drink"), ("black tea at night", "drink"), ("tea towels", "shop")]
    ):
        memory.add(text, **ANA, metadata={"kind": kind, "n": at}, infer=False)
    memory.add("green tea of bo", **BO, infer=False)
    found = memory.search("green tea", filters={**ANA, "kind": "drink"}, top_k=5)["results"]
    assert [one["memory"] for one in found] == ["green tea at noon", "black tea at night"]
    assert (
        all(0.0 <= one["score"] <= 1.0 for one in found) and found[0]["score"] > found[1]["score"]
    )
    assert memory.search("green tea", filters=ANA, top_k=1)["results"] == [
        {**memory.search("green tea", user_id="ana", limit=1)["results"][0]}
    ], "owners and limit as in earlier versions"
    assert memory.search("green tea", filters=ANA, threshold=1.0)["results"] == []
    assert "score_details" in memory.search("green tea", filters=ANA, explain=True)["results"][0]
    assert len(memory.search("tea", filters=ANA, rerank=True)["results"]) == 3
    for call in (
        lambda: memory.search("tea"),
        lambda: memory.get_all(),
        lambda: memory.add("x"),
        lambda: memory.delete_all(),
    ):
        with pytest.raises(ValueError, match="user_id"):
            call()
    wrong: list[dict[str, Any]] = [
        {"top_k": -1},
        {"colour": "red"},
        {"threshold": 2},
        {"threshold": -1},
        {"threshold": "high"},
        {"reference_date": "2024-01-01"},
    ]
    for bad in wrong:
        with pytest.raises((ValueError, TypeError)):
            memory.search("tea", filters=ANA, **bad)
    with pytest.raises(ValueError):
        memory.search(" ", filters=ANA)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"n": 1}, "b"),
        ({"n": {"eq": 1}}, "b"),
        ({"n": {"ne": 1}}, "acd"),
        ({"n": {"gt": 0, "lt": 2}}, "b"),
        ({"n": {"gte": 1}}, "bc"),
        ({"n": {"lte": 1}}, "ab"),
        ({"t": {"in": ["x", "y"]}}, "ab"),
        ({"t": {"nin": ["x"]}}, "bcd"),
        ({"t": {"contains": "Z"}}, "c"),
        ({"t": {"icontains": "z"}}, "c"),
        ({"t": "*"}, "abc"),
        ({"AND": [{"n": {"gte": 1}}, {"t": "y"}]}, "b"),
        ({"OR": [{"n": 0}, {"t": "Zz"}]}, "ac"),
        ({"NOT": [{"n": 0}, {"n": 1}]}, "cd"),
        ({"list": {"contains": 3}}, "d"),
        ({"role": "user"}, "abcd"),
    ],
)
def test_filters(memory: Memory, wanted: dict[str, Any], found: str) -> None:
    rows: list[dict[str, Any]] = [
        {"n": 0, "t": "x"},
        {"n": 1, "t": "y"},
        {"n": 2, "t": "Zz"},
        {"list": [3]},
    ]
    for name, metadata in zip("abcd", rows, strict=True):
        memory.add(name, **ANA, metadata=metadata, infer=False)
    assert (
        "".join(
            sorted(one["memory"] for one in memory.get_all(filters={**ANA, **wanted})["results"])
        )
        == found
    )


def test_filters_that_mean_nothing_are_refused(memory: Memory) -> None:
    for wanted in ({"n": {"regex": 1}}, {"AND": {"n": 1}}, {"OR": [5]}):
        with pytest.raises(ValueError):
            memory.get_all(filters={**ANA, **wanted})


def test_pages_go_through_everything_once(memory: Memory) -> None:
    for at in range(25):
        memory.add(f"memory {at}", **ANA, timestamp=at, infer=False)
    assert len(memory.get_all(filters=ANA)["results"]) == 20
    pages = [memory.get_all(filters=ANA, page=page, page_size=10) for page in (1, 2, 3)]
    assert [one["memory"] for page in pages for one in page["results"]] == [
        f"memory {at}" for at in range(24, -1, -1)
    ]
    assert [(page["count"], page["previous"], page["next"]) for page in pages] == [
        (25, None, 2),
        (25, 1, 3),
        (25, 2, None),
    ]
    with pytest.raises(InputError):
        memory.get_all(filters=ANA, page=0)


def test_agents_and_runs_own_memories_too(memory: Memory) -> None:
    memory.add("of ana and the coach", **ANA, agent_id="coach", infer=False)
    memory.add("of the coach alone", agent_id="coach", infer=False)
    memory.add("of a run", run_id="r1", infer=False)
    memory.add("of bo", **BO, infer=False)

    def texts(**owner: str) -> set[str]:
        return {one["memory"] for one in memory.get_all(filters=owner)["results"]}

    assert texts(agent_id="coach") == {"of ana and the coach", "of the coach alone"}
    assert (
        texts(user_id="ana") == texts(user_id="ana", agent_id="coach") == {"of ana and the coach"}
    )
    assert texts(run_id="r1") == {"of a run"} and texts(user_id="default") == set()
    memory.delete_all(agent_id="coach")
    assert texts(agent_id="coach") == set() and texts(user_id="bo") == {"of bo"}
    memory.reset()
    assert texts(user_id="bo") == set() and memory.add("anew", **BO, infer=False)["results"]


def test_ids_that_cannot_be_owners_are_refused(memory: Memory) -> None:
    for bad in ("", " ", "a b", "a\x1fb", "x" * 300, "a\nb"):
        with pytest.raises(ValueError):
            memory.add("x", user_id=bad)
    assert memory.add("x", user_id=5, infer=False)["results"]  # pyright: ignore[reportArgumentType]
    assert memory.get_all(filters={"user_id": 5})["results"][0]["user_id"] == "5"


def test_a_callers_metadata_cannot_pose_as_an_owner(memory: Memory) -> None:
    memory.add(
        "mine",
        **ANA,
        metadata={"user_id": "bo", "agent_id": "coach", "_agent_id": "coach", "actor_id": "Bo"},
        infer=False,
    )
    assert memory.get_all(filters=BO)["results"] == []
    assert memory.get_all(filters={"agent_id": "coach"})["results"] == []


def test_no_forged_filter_shows_a_memory_of_another_owner(memory: Memory) -> None:
    dice = random.Random(3)
    for at in range(10):
        memory.add(f"the secret of bo {at}", **BO, metadata={"n": at}, infer=False)
        memory.add(f"green tea {at}", **ANA, metadata={"n": at}, infer=False)
    parts: list[dict[str, Any]] = [
        {"user_id": "bo"},
        {"n": {"gte": 0}},
        {"user_id": "*"},
        {"user_id": {"ne": "x"}},
        {"n": "*"},
        {"_user_id": "bo"},
        {"memory": {"contains": "bo"}},
    ]
    shown = 0
    for _ in range(calls(150)):
        logic = dice.choice(["AND", "OR", "NOT"])
        wanted = {**ANA, logic: dice.choices(parts, k=dice.randint(1, 3))}
        rows = (
            memory.search("the secret of bo", filters=wanted)
            if dice.random() < 0.5
            else memory.get_all(filters=wanted)
        )["results"]
        shown += len(rows)
        assert all(row["user_id"] == "ana" and "secret" not in row["memory"] for row in rows)
    assert shown > calls(250)


def test_configurations_open_a_memory_or_say_what_is_wrong(tmp_path: Path) -> None:
    config: Any = {"vector_store": {"config": {"path": str(tmp_path)}}}
    path: Any = str(tmp_path / "memagent.db")
    for arguments in ({"config": config}, {"config": path}):
        with Memory(**arguments, embedder="hashing") as opened:
            opened.add("Ana drinks tea", infer=False, **ANA)
    with Memory(config, embedder="hashing") as opened:
        assert len(opened.get_all(filters=ANA)["results"]) == 2
    wrong: Any = 7
    with pytest.raises(ConfigError, match="int is no configuration"):
        Memory(wrong)


def test_editors_see_every_argument() -> None:
    for verb in ("add", "search", "get_all", "update"):
        for kind in (Memory, AsyncMemory):
            parameters = inspect.signature(getattr(kind, verb)).parameters.values()
            assert not any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters)
    assert {"user_id", "threshold", "limit"} <= inspect.signature(Memory.search).parameters.keys()


async def test_the_asynchronous_memory_is_the_same_one() -> None:
    async with AsyncMemory(":memory:", embedder="hashing") as memory:
        key = (await memory.add("Ana drinks tea", user_id="ana", infer=False))["results"][0]["id"]
        assert (await memory.search("tea", filters=ANA))["results"][0]["id"] == key
        await memory.delete_all(user_id="ana")
        assert await memory.get(key) is None
    verbs = (
        "add",
        "search",
        "get",
        "get_all",
        "update",
        "delete",
        "delete_all",
        "history",
        "reset",
    )
    for verb in verbs:
        assert inspect.iscoroutinefunction(getattr(AsyncMemory, verb)) and callable(
            getattr(Memory, verb)
        )


def test_mem0s_configuration_chooses_model_and_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "vector_store": {
            "provider": "qdrant",
            "config": {"path": str(tmp_path), "collection_name": "mem0"},
        },
        "embedder": {"provider": "openai", "config": {"model": "text-embedding-3-small"}},
    }
    with Memory.from_config(config) as memory:
        memory.add("kept", **ANA, infer=False)
    assert (tmp_path / "memagent.db").is_file() and "embedder" in caplog.text
    with Agent(path=tmp_path / "memagent.db", user_id="ana") as agent:
        assert [item.text for item in agent.memory.get_all()] == ["kept"], (
            "the same memory by memagent's own verbs"
        )


# -- importing -------------------------------------------------------------------------

ROWS: dict[str, dict[str, Any]] = {
    "11111111-1111-4111-8111-111111111111": {
        "data": "Ana drinks green tea",
        "hash": "x",
        "created_at": "2024-05-01T10:00:00+00:00",
        "updated_at": "2024-05-02T10:00:00-07:00",
        "user_id": "ana",
        "role": "user",
        "text_lemmatized": "ana drink green tea",
        "category": "drink",
        "n": {"deep": [1]},
    },
    "22222222-2222-4222-8222-222222222222": {
        "data": "Bo runs",
        "created_at": "2024-05-03T10:00:00",
        "user_id": "bo",
        "agent_id": "coach",
        "actor_id": "Bo",
        "expiration_date": "2024-06-01",
    },
    "33333333-3333-4333-8333-333333333333": {
        "data": "nobody's",
        "created_at": "2024-05-03T10:00:00",
    },
    "44444444-4444-4444-8444-444444444444": {"data": "", "user_id": "ana"},
}


def qdrant_folder(place: Path) -> Path:
    """Make a folder of qdrant's local mode as mem0 leaves it, with its collection of entities."""
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    client = qdrant.QdrantClient(path=str(place))
    size = models.VectorParams(size=4, distance=models.Distance.COSINE)
    for name in ("mem0", "mem0_entities", "mem0migrations"):
        client.create_collection(name, vectors_config=size)
    points = [
        models.PointStruct(id=key, vector=[1.0, 0.0, 0.0, 0.0], payload=row)
        for key, row in ROWS.items()
    ]
    client.upsert("mem0", points)
    entity = {"data": "Ana", "user_id": "ana", "linked_memory_ids": list(ROWS)}
    client.upsert(
        "mem0_entities", [models.PointStruct(id=1, vector=[1.0, 0.0, 0.0, 0.0], payload=entity)]
    )
    client.close()
    return place


def json_export(file: Path, *, lines: bool) -> Path:
    """Write what `json.dump(memory.get_all(...))` writes, or the same one object a line."""
    shown = [
        {
            "id": key,
            "memory": row.get("data"),
            "metadata": {name: row[name] for name in ("category", "n") if name in row},
            "score": None,
            **{
                name: row[name]
                for name in row
                if name not in ("data", "category", "n", "text_lemmatized")
            },
        }
        for key, row in ROWS.items()
    ]
    text = "\n".join(map(json.dumps, shown)) if lines else json.dumps({"results": shown})
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("kind", ["folder", "file", "json", "lines"])
async def test_a_store_of_mem0_is_taken_over_with_ids_dates_and_metadata(
    tmp_path: Path, kind: str
) -> None:
    match kind:
        case "folder":
            source = qdrant_folder(tmp_path / "qdrant")
        case "file":
            source = qdrant_folder(tmp_path / "qdrant") / "collection" / "mem0" / "storage.sqlite"
        case _:
            source = json_export(tmp_path / "export.json", lines=kind == "lines")
    rows = read_memories(source)
    assert len(rows) == 4

    async def take() -> list[Any]:
        store = open_store(path=tmp_path / "m.db", embedder="hashing")
        try:
            return [await import_memories(store, rows) for _ in range(2)]
        finally:
            store.close()

    first, second = await take()
    assert (first.found, first.imported, first.skipped, first.refused, first.users) == (
        4,
        2,
        0,
        2,
        ("ana", "bo"),
    )
    assert (second.imported, second.skipped, second.refused) == (0, 2, 2)
    with Memory(tmp_path / "m.db", embedder="hashing") as memory:
        [tea] = memory.get_all(filters=ANA)["results"]
        assert tea | {"hash": ""} == {
            "id": "11111111-1111-4111-8111-111111111111",
            "memory": "Ana drinks green tea",
            "hash": "",
            "user_id": "ana",
            "role": "user",
            "metadata": {"category": "drink", "n": {"deep": [1]}},
            "created_at": "2024-05-01T10:00:00+00:00",
            "updated_at": "2024-05-02T10:00:00-07:00",
        }
        assert memory.search("green tea", filters=ANA)["results"][0]["id"] == tea["id"]
        assert memory.get_all(filters=BO)["results"] == [], "expired in 2024"
        [runs] = memory.get_all(filters=BO, show_expired=True)["results"]
        assert (runs["agent_id"], runs["actor_id"], runs["expiration_date"]) == (
            "coach",
            "Bo",
            "2024-06-01",
        )


def test_the_command_takes_over_one_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from memagent.cli.app import app

    source = json_export(tmp_path / "export.json", lines=False)
    arguments = [
        "import-from",
        str(source),
        "--path",
        str(tmp_path / "m.db"),
        "--user",
        "bo",
        "--embedder",
        "hashing",
        "--json",
    ]
    app(arguments, standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == {
        "found": 1,
        "imported": 1,
        "skipped": 0,
        "refused": 0,
        "users": ["bo"],
    }


def storage(place: Path, blob: bytes) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(place)
    with connection:
        connection.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        connection.execute("INSERT INTO points VALUES ('x', ?)", (blob,))
    connection.close()
    return place


def test_a_point_that_names_a_function_runs_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    call = f"cos\nsystem\n(Vtouch {ran}\ntR.".encode()
    posing = f"cqdrant_client.http.models.models\nPointStruct\n({call[:-1].decode()}tR.".encode()
    for number, blob in enumerate(
        (call, posing, b"", b".", b"\x80\x04.", b"not a pickle", b"(((.", b"}(u.", b"s.", b"Nb.")
    ):
        place = storage(tmp_path / str(number) / "storage.sqlite", blob)
        if blob is posing:
            assert read_memories(place) == []
        else:
            with pytest.raises(InputError, match="not qdrant's"):
                read_memories(place)
        assert not ran.exists()


def test_random_bytes_for_a_point_are_refused_or_plain(tmp_path: Path) -> None:
    dice = random.Random(5)
    whole = sqlite3.connect(
        qdrant_folder(tmp_path / "qdrant") / "collection" / "mem0" / "storage.sqlite"
    )
    blob = bytearray(whole.execute("SELECT point FROM points").fetchone()[0])
    whole.close()
    for _ in range(2_000):
        changed = bytearray(blob)
        for _ in range(dice.randint(1, 4)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        try:
            json.dumps(read_point(bytes(changed)).get("payload"), default=str)
        except ValueError:
            continue
