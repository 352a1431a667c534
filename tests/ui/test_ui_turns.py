"""The turn inspector: what was decided about each turn and why, what was refused, why a
memory is there, and what an answer rests on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from service_kit import Served, serving
from ui_pages import links, words

from memagent.core.errors import ModelTimeout
from memagent.core.exchange import ModelRequest, Role
from memagent.core.ops import RejectReason
from memagent.pages.journal_words import refusal_words
from memagent.testing.models import FunctionModel

FACT = "Ana has a cat called Bolt"
CHANGED = "Ana has a black cat called Bolt"
WHY = "It is about Ana and new"
TURNS = (
    ("Ana", "I adopted a cat, Bolt."),
    ("Ben", "Nice weather today."),
    ("Ana", "Bolt is black now, by the way."),
)


def reply(request: ModelRequest) -> str:
    """Keep what the first turn says, change it by the third, and try what is not allowed."""
    shown = request.messages[-1].content
    if request.role is Role.EXTRACTOR:
        facts = [{"text": FACT, "subject": "Ana", "source": "t1"}]
        if "t3" in shown:
            facts = [{"text": "Bolt is black", "subject": "Ana", "source": "t3"}]
        return json.dumps({"facts": facts})
    if request.role is Role.MANAGER:
        if "Bolt is black" in shown and "[mem_" in shown:
            known = shown.partition("[mem_")[2].split()[0].rstrip("]")
            return json.dumps(
                {"ops": [{"op": "UPDATE", "id": f"mem_{known}", "text": CHANGED, "fact": 0}]}
            )
        return json.dumps(
            {
                "ops": [
                    {"op": "ADD", "fact": 0, "reason": WHY},
                    {"op": "DELETE", "id": "mem_unknown", "fact": 0},
                ]
            }
        )
    if "broken" in shown:
        raise ModelTimeout("late")
    cited = shown.partition("[mem_")[2].split("]")[0]
    return json.dumps({"citations": [f"mem_{cited}"], "answer": "Bolt.", "abstain": False})


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(":memory:", model=FunctionModel(reply), design="memory_r2") as running:
        with running.http() as http:
            for name, turns in (("ses-1", TURNS[:2]), ("ses-2", TURNS[2:])):
                first = 1 if name == "ses-1" else 3
                said = [
                    {"id": f"t{first + at}", "speaker": who, "text": text}
                    for at, (who, text) in enumerate(turns)
                ]
                body = {"id": name, "at": "2024-03-04T10:00:00Z", "turns": said}
                assert http.post("/v1/sessions?wait=true", json=body).is_success
        yield running


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def the_item(http: httpx.Client) -> str:
    return http.get("/v1/memories").json()["items"][0]["id"]


def test_every_refusal_has_words() -> None:
    assert all(refusal_words(reason) for reason in RejectReason)


def test_the_feed_tells_every_entry_newest_first(http: httpx.Client) -> None:
    log = http.get("/v1/oplog").json()["items"]
    page = http.get("/ui/turns")
    told = words(page)
    places = [told.index(f"#{row['seq']} ") for row in reversed(log)]
    assert places == sorted(places)
    assert "Session stored: 2 turns by Ana and Ben" in told and "Decided about part 1 of 1" in told
    refusals = (RejectReason.UNKNOWN_ID, RejectReason.NOT_SHOWN)
    assert FACT in told and any(refusal_words(reason) in told for reason in refusals)
    older = words(http.get("/ui/turns?before=2"))
    assert "#1 " in older and "#2 " not in older


def test_a_session_is_told_turn_by_turn_with_decisions_reasons_and_refusals(
    http: httpx.Client,
) -> None:
    told = words(http.get("/ui/turns/session?id=ses-1"))
    first, second = told.index(TURNS[0][1]), told.index(TURNS[1][1])
    assert first < told.index(FACT) < second
    assert WHY in told[first:second]
    assert "Nothing was kept from this turn" in told[second:]
    assert "Not kept: which memories the manager was shown" in told
    later = words(http.get("/ui/turns/session?id=ses-2"))
    assert "Bolt is black" in later and "update" in later
    assert "1 of 1" in later


def test_a_decision_is_shown_whole_with_its_sources_and_what_was_refused(
    http: httpx.Client,
) -> None:
    rows = http.get("/v1/oplog").json()["items"]
    seq = next(
        row["seq"] for row in rows if row["entry"]["kind"] == "commit" and row["entry"]["rejected"]
    )
    refused = next(row["entry"]["rejected"][0] for row in rows if row["seq"] == seq)
    told = words(http.get(f"/ui/turns/decision?seq={seq}"))
    assert FACT in told and TURNS[0][1] in told
    assert (
        "Proposed and refused" in told and refused["reason"] in told and refused["detail"] in told
    )
    assert "their ids are kept, their words are not" in told
    assert "does not keep which memories the manager was shown" in told


def test_recall_is_computed_over_the_memory_before_the_entry(http: httpx.Client) -> None:
    rows = http.get("/v1/oplog").json()["items"]
    commits = [row["seq"] for row in rows if row["entry"]["kind"] == "commit"]
    empty = words(http.get(f"/ui/turns/decision?seq={commits[0]}&recall=1"))
    assert "the memory held nothing like it" in empty
    later = words(http.get(f"/ui/turns/decision?seq={commits[1]}&recall=1"))
    assert "It is not a record of what the manager saw" in later
    assert (
        FACT in later.partition("What memory held beside it")[2]
    )  # as it was worded then, although it says something else now


def test_why_a_memory_is_there_is_every_op_with_its_reason_and_turn(http: httpx.Client) -> None:
    item = the_item(http)
    told = words(http.get("/ui/turns/memory", params={"id": item}))
    assert told.index(FACT) < told.index(WHY) < told.index(TURNS[0][1]) < told.rindex(TURNS[2][1])
    assert "No reason was given" in told.partition(TURNS[0][1])[2]
    assert http.get("/ui/turns/memory", params={"id": "nobody"}).status_code == 404
    assert http.get("/ui/turns/session", params={"id": "nobody"}).status_code == 404
    assert http.get("/ui/turns/decision?seq=999").status_code == 404


def test_a_question_shows_candidates_their_scores_and_what_fits(http: httpx.Client) -> None:
    found = http.post(
        "/v1/search", json={"text": "What is the cat called?", "k": 20, "explain": True}
    ).json()["hits"]
    told = words(
        http.get("/ui/turns/question", params={"text": "What is the cat called?", "budget": 500})
    )
    for hit in found:
        assert hit["item"]["text"] in told and f"{hit['score']:.3f}" in told
        assert all(f"{raw:.3f}" in told for raw in hit["why"]["arms"].values())
    assert f"{len(found)} of {len(found)} fit 500 tokens" in told
    assert "<memories>" in told
    tight = words(
        http.get("/ui/turns/question", params={"text": "What is the cat called?", "budget": 1})
    )
    assert f"0 of {len(found)} fit 1 tokens" in tight and "left out" in tight


def test_a_question_can_be_put_to_the_memory_of_an_earlier_time(http: httpx.Client) -> None:
    rows = http.get("/v1/oplog").json()["items"]
    first = next(row["seq"] for row in rows if row["entry"]["kind"] == "commit")
    then = words(http.get("/ui/turns/question", params={"text": "cat Bolt", "seq": first}))
    assert FACT in then and "Bolt is black" not in then
    before = words(http.get("/ui/turns/question", params={"text": "cat Bolt", "seq": 0}))
    assert "Nothing in the memory bears on it" in before


def test_links_lead_on_with_the_chosen_memory(http: httpx.Client) -> None:
    page = http.get("/ui/turns?user_id=ben")
    assert page.status_code == 200 and "The journal is empty" in words(page)
    inside = [urlsplit(link) for link in links(page) if link.startswith("/ui/turns")]
    assert inside and all(parse_qs(link.query).get("user_id") == ["ben"] for link in inside)


def test_a_chat_says_that_what_was_recalled_is_not_kept_and_leads_to_a_new_look() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        http.post("/v1/memories", json={"text": "The boat is in Porto"})
        assert http.post(
            "/v1/chat", json={"text": "Where is the boat?", "speaker": "ana"}
        ).is_success
        session = http.get("/v1/sessions").json()["items"][0]["id"]
        page = http.get("/ui/turns/session", params={"id": session})
        assert "What was recalled for it is not kept" in words(page)
        again = next(
            link for link in links(page) if link.startswith("/ui/turns/question") and "seq=" in link
        )
        assert "The boat is in Porto" in words(http.get(again))


def test_edits_undo_restore_and_what_became_of_them_are_told() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        http.post("/v1/memories", json={"id": "cat", "text": "Ana has a grey cat"})
        snapshot = http.post("/v1/snapshots", json={"name": "s"}).json()["id"]
        http.patch("/v1/memories/cat", json={"text": "Ana has a black cat"})
        assert "<del>grey" in http.get("/ui/turns/decision?seq=2").text
        assert "at version 2 now" in words(http.get("/ui/turns/decision?seq=1"))
        http.delete("/v1/memories/cat")
        assert "deleted since" in words(http.get("/ui/turns/decision?seq=2"))
        http.post("/v1/undo", json={})
        assert "brought back since" in words(http.get("/ui/turns/decision?seq=3"))
        assert "c3 was taken back" in words(http.get("/ui/turns"))
        http.post("/v1/memories", json={"id": "new", "text": "Ana moved to Oslo"})
        http.post(f"/v1/snapshots/{snapshot}/restore", json={})
        assert "The memory was set to a snapshot; 2 memories changed" in words(
            http.get("/ui/turns")
        )
        assert "not in the memory now" in words(http.get("/ui/turns/decision?seq=5"))
        story = words(http.get("/ui/turns/memory?id=new"))
        assert "It is not in the memory now" in story and "Set back with a snapshot" in story


def test_a_session_that_no_model_could_read_says_that_it_waits() -> None:
    def fail(_: ModelRequest) -> str:
        raise ModelTimeout("late")

    with (
        serving(":memory:", model=FunctionModel(fail), design="memory_r2") as running,
        running.http() as http,
    ):
        http.post(
            "/v1/sessions?wait=true", json={"id": "s1", "turns": [{"text": "I moved to Lisbon"}]}
        )
        told = words(http.get("/ui/turns/session?id=s1"))
        assert "1 of 1 part waits to be remembered" in told and "Its job is" in told
        assert "I moved to Lisbon" in told and "Not decided about yet" in told
        assert "0 of 1 parts" in words(http.get("/ui/turns/sessions"))
