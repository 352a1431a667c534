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
from memagent.core.exchange import ModelRequest
from memagent.testing.models import FunctionModel

MEMORIES = ("Ana has a cat called Bolt", "Bolt is black", "Ana bakes bread on Sundays")


def reply(request: ModelRequest) -> str:
    """Answer with the first memory shown as evidence; fail when asked to."""
    shown = request.messages[-1].content
    if "broken" in shown:
        raise ModelTimeout("late")
    cited = shown.partition("[mem_")[2].split("]")[0]
    return json.dumps({"citations": [f"mem_{cited}"], "answer": "Bolt.", "abstain": False})


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
    page = words(send(http, "/ui/ask", "/ui/ask", text="Who is Bolt?"))
    answer = page.partition("Answer ")[2]
    assert answer.startswith("supported Bolt. Why The evidence below supports it.")
    why, _, retrieved = answer.partition("What was found")
    assert any(text in why for text in MEMORIES)
    assert "1 model call, " in why and "prompt tokens" in why
    shares = [int(share) for share in re.findall(r"(\d+) % of what was shown", retrieved)]
    assert len(shares) == len(MEMORIES) and 98 <= sum(shares) <= 102
    assert retrieved.count("cited") == 1


def test_an_answer_without_a_model_says_so_and_quotes_its_evidence() -> None:
    with serving(":memory:", design="verbatim") as running, running.http() as http:
        turns = [{"speaker": "Ana", "text": "I moved to Porto in May."}]
        body = {"id": "s1", "at": "2024-06-01T10:00:00Z", "turns": turns}
        assert http.post("/v1/sessions?wait=true", json=body).is_success
        page = send(http, "/ui/ask", "/ui/ask", text="Where did Ana move to?")
        told = words(page)
        evidence = told.partition("Why ")[2].partition("What was found")[0]
        assert "Ana 2024-06-01 10:00" in evidence and "I moved to Porto in May." in evidence
        assert "No model was asked" in told
        assert any(link.startswith("/ui/turns/session?id=s1&turn=") for link in links(page))
        search = next(link for link in links(page) if link.startswith("/ui/turns/question?"))
        assert "I moved to Porto" in words(http.get(search))
        assert "Your question" in words(http.get("/ui"))


def test_questions_of_a_thread_stand_above_each_other_the_latest_first(
    http: httpx.Client,
) -> None:
    first = send(http, "/ui/ask", "/ui/ask", text="Who is Bolt?")
    second = ask_on(http, first, "Who bakes <b>bread</b>?")
    third = ask_on(http, second, "What colour is Bolt?")
    told = words(third)
    places = [told.index(text) for text in ("What colour is", "Who bakes <b>", "Who is Bolt?")]
    assert places == sorted(places) and "Earlier in this thread" in told
    assert "<b>bread" not in third.text
    assert "Who is Bolt?" not in words(http.get("/ui/ask"))


def ask_on(http: httpx.Client, page: httpx.Response, text: str, **more: str) -> httpx.Response:
    """Ask in the thread of a page."""
    sealed = re.findall(r'name="thread" value="([^"]+)"', page.text)
    fields = {"csrf": token(page), "text": text, "thread": html.unescape(sealed[0]), **more}
    origin = {"Origin": str(http.base_url).rstrip("/")}
    return http.post("/ui/ask", data=fields, headers=origin, params=dict(page.url.params))


def test_a_thread_is_taken_from_nobody_else_and_from_no_other_memory(
    http: httpx.Client,
) -> None:
    page = send(http, "/ui/ask", "/ui/ask", text="Who is Bolt?")
    for forged in ("nonsense", "W10.nonsense"):
        answer = words(ask_on(http, page, "What colour is Bolt?", thread=forged))
        assert "Who is Bolt?" not in answer
    sealed = html.unescape(re.findall(r'name="thread" value="([^"]+)"', page.text)[0])
    fields = {"csrf": token(page), "text": "What colour?", "thread": sealed}
    origin = {"Origin": str(http.base_url).rstrip("/")}
    other = http.post("/ui/ask?user_id=ben", data=fields, headers=origin)
    assert other.status_code == 200 and "Who is Bolt?" not in words(other)


def test_a_thread_carries_on_only_so_much(http: httpx.Client) -> None:
    page = send(http, "/ui/ask", "/ui/ask", text="first " + "long " * 3_000)
    for number in range(13):
        page = ask_on(http, page, f"question {number}")
    told = words(page)
    assert "question 1 " in told and "first long" not in told
    assert len(page.content) < 100_000


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
