"""Ask: the answer first and the why below, the thread so far, and what an empty memory
offers instead.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from service_kit import Served, serving
from ui_pages import links, send, token, words

from memagent.core.errors import ModelTimeout
from memagent.core.exchange import ModelRequest, Role
from memagent.testing.models import FunctionModel

MEMORIES = ("Ana has a cat called Bolt", "Bolt is black", "Ana bakes bread on Sundays")


def reply(request: ModelRequest) -> str:
    """Reply with the first memory shown as evidence; fail when asked to."""
    shown = request.messages[-1].content
    if request.role is not Role.ANSWERER:
        return json.dumps({"facts": [], "ops": []})
    if "broken" in shown:
        raise ModelTimeout("late")
    cited = "mem_" + shown.partition("[mem_")[2].split("]")[0].split()[0]
    if "assistant in a conversation" in request.messages[0].content:
        return f"It is Bolt [{cited}]." if "Bolt" in shown else "Nice."
    return json.dumps({"citations": [cited], "answer": "Bolt.", "abstain": False})


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(":memory:", model=FunctionModel(reply), design="memory_r2") as running:
        with running.http() as http:
            for text in MEMORIES:
                assert http.post("/v1/memories", json={"text": text}).is_success
        yield running


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def test_the_answer_comes_first_and_what_it_rests_on_below(http: httpx.Client) -> None:
    page = words(send(http, "/ui/ask", "/ui/ask", text="Who is Bolt?", lookup="1"))
    answer = page.partition("Answer ")[2]
    assert re.match(r"supported Bolt\. Why The evidence below supports it\.", answer)
    why, _, retrieved = answer.partition("What was found")
    assert any(text in why for text in MEMORIES)
    assert "1 model call, " in why and "prompt tokens" in why
    shares = [int(share) for share in re.findall(r"(\d+) % of what was shown", retrieved)]
    assert len(shares) == len(MEMORIES) and 98 <= sum(shares) <= 102
    assert retrieved.count("cited") == 1


def test_looking_something_up_stores_nothing_and_a_message_is_stored(http: httpx.Client) -> None:
    params = {"user_id": "lena"}
    for text in MEMORIES:
        assert http.post("/v1/memories", json={"text": text}, params=params).is_success
    page = "/ui/ask?user_id=lena"
    send(http, page, page, text="Who is Bolt?", lookup="1")
    send(http, page, page, text="Who is Bolt?", seq="1")
    assert http.get("/v1/sessions", params=params).json()["items"] == []
    told = words(send(http, page, page, text="Who is Bolt?"))
    assert "It is Bolt" in told.partition("Answer ")[2]
    (session,) = http.get("/v1/sessions", params=params).json()["items"]
    assert next(turn["text"] for turn in session["turns"]) == "Who is Bolt?"
    assert len(session["turns"]) == 2


def test_the_probability_is_told_where_there_is_one() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        turns = [{"speaker": "Ana", "text": "I moved to Porto in May."}]
        body = {"id": "s1", "at": "2024-06-01T10:00:00Z", "turns": turns}
        assert http.post("/v1/sessions?wait=true", json=body).is_success
        question = "Where did Ana move to?"
        answer = http.post("/v1/questions", json={"text": question}).json()
        assert answer["probability"] is not None
        told = words(send(http, "/ui/ask", "/ui/ask", text=question, lookup="1"))
        assert f"is quoted answers is {100 * answer['probability']:.0f} %" in told
        assert answer["verdict"] in told.partition("Answer ")[2][:20]


def test_an_answer_without_a_model_says_so_and_quotes_its_evidence() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        turns = [{"speaker": "Ana", "text": "I moved to Porto in May."}]
        body = {"id": "s1", "at": "2024-06-01T10:00:00Z", "turns": turns}
        assert http.post("/v1/sessions?wait=true", json=body).is_success
        page = send(http, "/ui/ask", "/ui/ask", text="Where did Ana move to?", lookup="1")
        told = words(page)
        evidence = told.partition("Why ")[2].partition("What was found")[0]
        assert "Ana 2024-06-01 10:00" in evidence and "I moved to Porto in May." in evidence
        assert "No model was asked" in told
        assert any(link.startswith("/ui/turns/session?id=s1&turn=") for link in links(page))
        search = next(link for link in links(page) if link.startswith("/ui/turns/question?"))
        assert "I moved to Porto" in words(http.get(search))
        assert "Your message" in words(http.get("/ui"))


def ask_on(http: httpx.Client, page: httpx.Response, text: str) -> httpx.Response:
    """Send a message in the thread of a page."""
    thread = html.unescape(re.findall(r'name="thread" value="([^"]+)"', page.text)[0])
    fields = {"csrf": token(page), "text": text, "thread": thread}
    origin = {"Origin": str(http.base_url).rstrip("/")}
    return http.post("/ui/ask", data=fields, headers=origin)


def test_messages_of_a_thread_stand_above_each_other_the_latest_first(
    http: httpx.Client,
) -> None:
    first = send(http, "/ui/ask", "/ui/ask", text="Who is Bolt?")
    second = ask_on(http, first, "Who bakes <b>bread</b>?")
    third = ask_on(http, second, "What colour is Bolt?")
    told = words(third)
    places = [told.index(text) for text in ("What colour is", "Who bakes <b>", "Who is Bolt?")]
    assert places == sorted(places) and "Earlier in this thread" in told
    assert told.count("What colour is Bolt?") == 1 and "<b>bread" not in third.text
    assert "Earlier in this thread" not in words(http.get("/ui/ask"))
    recent = http.get("/ui/ask")
    thread = next(link for link in links(recent) if link.startswith("/ui/ask?thread=ui-"))
    again = words(http.get(thread))
    assert all(text in again for text in ("What colour is Bolt?", "Who is Bolt?", "It is Bolt"))
    assert "Who is Bolt?" not in words(http.get(thread, params={"user_id": "ben"}))


def test_a_message_sees_its_thread_and_a_new_thread_does_not() -> None:
    model = FunctionModel(lambda _: "Fine.")
    with serving(":memory:", model=model, design="verbatim") as running, running.http() as http:
        first = send(http, "/ui/ask", "/ui/ask", text="My brother lives in Porto.")
        ask_on(http, first, "What is there to see?")
        shown = "\n".join(message.content for message in model.requests[-1].messages)
        assert "My brother lives in Porto." in shown and "Fine." in shown
        send(http, "/ui/ask", "/ui/ask", text="And there?")
        prompt = [message.content for message in model.requests[-1].messages]
        assert not any(text == "My brother lives in Porto." for text in prompt)


def test_a_thread_whose_id_is_too_long_is_refused(http: httpx.Client) -> None:
    page = http.get("/ui/ask")
    fields = {"csrf": token(page), "text": "Hello", "thread": "t" * 300}
    origin = {"Origin": str(http.base_url).rstrip("/")}
    assert http.post("/ui/ask", data=fields, headers=origin).status_code == 422
    assert http.get("/ui/ask", params={"thread": "t" * 300}).status_code == 422


def test_the_memory_of_an_earlier_time_can_be_asked(http: httpx.Client) -> None:
    page = send(http, "/ui/ask", "/ui/ask", text="What colour is Bolt?", seq="1")
    told = words(page)
    assert "as it was at entry 1 of the journal" in told
    assert MEMORIES[0] in told and MEMORIES[1] not in told


def test_a_model_that_fails_is_told_beside_the_question(http: httpx.Client) -> None:
    answer = send(http, "/ui/ask", "/ui/ask", text="Is it broken?")
    assert answer.status_code == 504
    assert "Is it broken?" in answer.text and "What was found" not in words(answer)


def test_asking_needs_the_scope_that_the_rest_verb_needs_and_a_token() -> None:
    with serving(":memory:", design="verbatim") as running:
        reader, asker = running.key("ana", "memory:read"), running.key("ana", "memory:read", "chat")
        for key, allowed in ((reader, False), (asker, True)):
            with running.http() as http:
                http.post(
                    "/ui/sign-in",
                    data={"key": key, "csrf": token(http.get("/ui/sign-in"))},
                    headers={"Origin": running.url},
                    follow_redirects=True,
                )
                assert http.get("/ui/ask").status_code == (200 if allowed else 403)
                page = http.get("/ui/turns/question?text=Bolt")
                assert page.status_code == 200 and ("Ask the agent" in page.text) is allowed
                assert ('href="/ui/ask"' in page.text) is allowed
                asked = http.post("/ui/ask", data={"text": "Bolt"}, headers={"Origin": running.url})
                assert asked.status_code == 403


def test_an_empty_memory_shows_the_line_that_adds_a_first_one() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        for address in ("/ui", "/ui/ask", "/ui/memories"):
            user = f"new at {address}"
            page = http.get(address, params={"user_id": user})
            line = html.unescape(re.findall(r"<pre[^>]*>(curl .*?)</pre>", page.text, re.DOTALL)[0])
            done = subprocess.run(
                ["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True
            )
            assert json.loads(done.stdout)["text"] == "Ana moved to Lisbon in March 2024"
            assert "Ana moved to Lisbon" in words(
                http.get("/ui/memories", params={"user_id": user})
            )
