"""Archives that somebody altered and sealed anew: refused as wrong, or imported and readable.

Every case changes one to three places of an export, then writes the seal, and the digest
where the rows still give a state, as whoever knows the format would.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from service_kit import Served, serving

from memagent.core.snapshot import JournalRow
from memagent.state.fold import EMPTY_STATE, apply

CASES = int(os.environ.get("MEMAGENT_MUTATED_ARCHIVES", "60"))
READS = (
    "/v1/sessions",
    "/v1/memories?include_deleted=true",
    "/v1/events",
    "/v1/graph",
    "/v1/graph?format=html",
    "/v1/graph/stats",
    "/v1/oplog",
    "/v1/trials",
    "/ui",
    "/ui/memories",
    "/ui/graph/list",
    "/ui/graph/timeline",
    "/ui/graph/data",
    "/ui/turns",
    "/ui/review",
)
WRITES = (
    ("/v1/search", {"text": "Where does Ana live?", "recipe": "balanced", "evidence": True}),
    ("/v1/context", {"text": "Ana"}),
    ("/v1/memories", {"text": "Ana likes tea"}),
    ("/v1/undo", {}),
    ("/v1/sessions?wait=true", {"turns": [{"speaker": "Bo", "text": "I moved to Rome."}]}),
    ("/v1/snapshots", {"name": "now"}),
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def rows(served: Served) -> list[dict[str, Any]]:
    """The rows of a memory with sessions, threads, edits, deletions, a trial and an undo."""
    user = {"user_id": "source"}
    with served.http() as http:

        def post(path: str, **body: Any) -> Any:
            answer = http.post(path, params=user, json=body)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        for number, text in enumerate(("I moved to Porto in May 2021.", "My sister Eva came too.")):
            turns = [{"speaker": "Ana", "text": text}, {"speaker": "Bo", "text": "How nice!"}]
            post("/v1/sessions?wait=true", id=f"s{number}", turns=turns)
        post("/v1/chat", text="I live in Lisbon now.", thread="t")
        post("/v1/chat", text="Where do I live?", thread="t")
        first = post("/v1/memories", text="Ana likes coffee", id="m1", tags=["a"])
        http.patch(f"/v1/memories/{first['id']}", params=user, json={"text": "Ana likes tea"})
        post("/v1/memories", text="Gone soon", id="m2", ttl_s=1_000)
        http.delete("/v1/memories/m2", params=user)
        post("/v1/memories/batch", texts=["Eva paints", "Eva reads"])
        post("/v1/undo")
        trial = post("/v1/trials", task="Write to Ana")
        post(f"/v1/trials/{trial['trial']['id']}/report", reward=1.0)
    return [json.loads(line) for line in exported(served, "source")[1:-1]]


def exported(served: Served, user: str) -> list[str]:
    """The lines of an export of a user's memory."""
    with served.http() as http:
        job = http.post(f"/v1/users/{user}/export").json()
        while job["state"] in ("queued", "running"):
            job = http.get(f"/v1/jobs/{job['id']}", params={"user_id": user}).json()
        place = f"/v1/jobs/{job['id']}/files/1"
        return http.get(place, params={"user_id": user}).text.splitlines()


def sealed(rows: list[dict[str, Any]]) -> bytes:
    """An archive of rows, with the digest that they give, or a wrong one where they give none."""
    try:
        state = EMPTY_STATE
        for number, row in enumerate(rows, 1):
            state = apply(state, JournalRow.model_validate({**row, "seq": number}))
        digest = state.digest()
    except Exception:  # any failure: then the digest is wrong as well
        digest = "0" * 64
    header = {"format": "memagent-export/1", "scope": {}, "digest": digest, "seq": len(rows)}
    lines = [json.dumps(each) + "\n" for each in (header, *rows)]
    seal = hashlib.sha256("".join(lines).encode()).hexdigest()
    return "".join([*lines, json.dumps({"rows": len(rows), "sha256": seal}) + "\n"]).encode()


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    inner = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [(value, key) for key, _ in inner] + [
        place for _, part in inner for place in places(part)
    ]


def mutate(rows: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """A copy of the rows with one to three changes."""
    rows = copy.deepcopy(rows)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(rows))
        match chance.randrange(10):
            case 0:
                del rows[at]
            case 1:
                rows.insert(chance.randrange(len(rows) + 1), copy.deepcopy(rows[at]))
            case 2:
                other = chance.randrange(len(rows))
                rows[at], rows[other] = rows[other], rows[at]
            case 3:
                rows = rows[at:] or rows
            case _:
                everywhere = places(rows)
                container, key = chance.choice(places(rows[at]["entry"]))
                source, name = chance.choice(everywhere)
                twin = [
                    (c, k)
                    for c, k in everywhere
                    if k == key and type(c[k]) is type(container[key]) and c is not container
                ]
                match chance.randrange(6):
                    case 0 if isinstance(container, dict):
                        del container[key]
                    case 1:
                        container[key] = copy.deepcopy(source[name])
                    case 2:
                        container[key] = chance.choice(
                            [None, "", "x", 0, -1, 2**70, [], {}, "\u0000", "1" * 300, True, 1e308]
                        )
                    case 3 if isinstance(container, list):
                        container.append(copy.deepcopy(container[key]))
                    case _ if twin:
                        c, k = chance.choice(twin)
                        container[key] = copy.deepcopy(c[k])
                    case _:
                        container[key] = copy.deepcopy(source[name])
        if not rows:
            break
    return rows


def test_an_altered_archive_is_refused_or_leaves_a_memory_that_can_be_read(
    served: Served, rows: list[dict[str, Any]]
) -> None:
    chance = random.Random(14)
    taken, faults = 0, list[str]()
    with served.http() as http:

        def check(case: int, answer: httpx.Response) -> None:
            if answer.status_code >= 500:
                faults.append(f"case {case}: {answer.request.url} {answer.text[:200]}")

        head = {"Content-Type": "application/x-ndjson"}
        for case in range(CASES):
            content, user = sealed(mutate(rows, chance)), {"user_id": f"u{case}"}
            answer = http.post(f"/v1/users/u{case}/import", content=content, headers=head)
            check(case, answer)
            taken += answer.is_success
            if answer.is_success:
                for path in READS:
                    check(case, http.get(path, params=user))
                for path, body in WRITES:
                    check(case, http.post(path, params=user, json=body))
    assert faults == []
    assert taken > CASES // 10, "some are sound, else the reading is not tested"


def test_a_change_that_gives_an_item_another_id_is_refused(
    served: Served, rows: list[dict[str, Any]]
) -> None:
    altered = copy.deepcopy(rows)
    changes = [change for row in altered for change in row["entry"].get("changes", ())]
    after = [change["after"] for change in changes if change.get("after")]
    after[-1]["id"] = "another"
    head = {"Content-Type": "application/x-ndjson"}
    with served.http() as http:
        answer = http.post("/v1/users/other/import", content=sealed(altered), headers=head)
        assert answer.status_code == 422 and "another id" in answer.json()["detail"], answer.text
        assert http.get("/v1/memories", params={"user_id": "other"}).json()["items"] == []
