"""Chat programs before the service: their recorded requests, task prompts, and many users.

`tests/data/programs` holds requests as eight programs write them. The provider's model
answers from a script.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_kit import Served, serving

from memagent.config import ProgramSettings, ServiceSettings, load_settings
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest
from memagent.testing.models import FunctionModel

FOLDER = Path(__file__).parents[1] / "data" / "programs"
PROGRAMS = {path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")}


def filled(request: Any, *, words: str, user: str, chat: str) -> Any:
    """The request of a user who says these words in a conversation."""
    digits = hashlib.sha256(user.encode()).hexdigest()
    uuid = f"{chat.encode().hex():0>8}-0000-4000-8000-000000000000"
    text = json.dumps(request)
    for name, value in {
        "words": words,
        "user": user,
        "chat": chat,
        "hex": digits,
        "uuid": uuid,
    }.items():
        text = text.replace("{{" + name + "}}", json.dumps(value)[1:-1])
    return json.loads(text)


def owner_of(program: str, user: str) -> str:
    """The name by which the service knows a user of a program."""
    return hashlib.sha256(user.encode()).hexdigest() if program == "claude_code" else user


def send(http: httpx.Client, request: Any) -> httpx.Response:
    return http.post(request["path"], json=request["body"], headers=request["headers"])


def remembered(http: httpx.Client, user: str) -> list[str]:
    sessions = http.get("/v1/sessions", params={"user_id": user}).json()["items"]
    return [turn["text"] for session in sessions for turn in session["turns"]]


class Provider(FunctionModel):
    """A model that has others beside it."""

    async def model_names(self) -> tuple[str, ...] | None:
        return ("test-model", "org/other")


def shown(request: ModelRequest) -> str:
    """The texts of a request to the provider."""
    return "\n".join(message.content for message in request.messages)


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider(lambda _: "Understood")


@pytest.fixture(scope="module")
def served(provider: Provider) -> Iterator[Served]:
    with serving(model=provider, design="verbatim") as running:
        yield running


def test_there_are_eight_programs_and_forty_task_prompts() -> None:
    kinds = [request["kind"] for program in PROGRAMS.values() for request in program["requests"]]
    assert len(PROGRAMS) == 8 and kinds.count("task") >= 40
    assert all(program["version"] and program["source"] for program in PROGRAMS.values())


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_recorded_requests_are_answered_and_only_a_persons_words_are_remembered(
    served: Served, provider: Provider, program: str
) -> None:
    words = "I keep eleven otters in Aveiro."
    around = ("<environment", "<user_instructions", "<system-reminder", "<context>", "<task>")
    with served.http(served.key(None)) as http:
        for recorded in PROGRAMS[program]["requests"]:
            name = recorded["name"]
            user = f"{program}-{name.replace(' ', '-')}"
            before = len(provider.requests)
            answer = send(http, filled(recorded, words=words, user=user, chat="c1"))
            assert answer.status_code == 200 and '"error": {' not in answer.text, name
            kept = remembered(http, owner_of(program, user)) + remembered(http, "default")
            if recorded["kind"] == "count":
                assert answer.json()["input_tokens"] > 0 and len(provider.requests) == before
            else:
                assert "Understood" in answer.text, name
            if recorded["kind"] == "person":
                assert words in kept, f"{name}: one's own words, without what the program adds"
                assert not any(mark in text for text in kept for mark in around), name
            else:
                assert kept == [], name


def test_a_task_prompt_goes_to_the_provider_as_it_came(served: Served, provider: Provider) -> None:
    key = served.key("ana")
    [title] = [each for each in PROGRAMS["open_webui"]["requests"] if each["name"] == "title"]
    asked = filled(title, words="Who keeps otters?", user="ana", chat="c2")
    with served.http(key) as http:
        http.post("/v1/memories", json={"text": "Ana keeps otters in a shed."})
        assert send(http, asked).status_code == 200
        assert "shed" not in shown(provider.requests[-1])
        assert shown(provider.requests[-1]) == asked["body"]["messages"][0]["content"]
        chat = {"model": "memagent", "messages": [{"role": "user", "content": "Who keeps otters?"}]}
        assert http.post("/v1/chat/completions", json=chat).status_code == 200
        assert "in a shed" in shown(provider.requests[-1])


def test_two_users_behind_one_key_never_see_each_others_words(
    served: Served, provider: Provider
) -> None:
    people = [
        (program, request)
        for program, recorded in sorted(PROGRAMS.items())
        for request in recorded["requests"]
        if request["kind"] == "person"
    ]
    secrets = {"left": "malachite", "right": "tourmaline"}
    prompts = leaks = recalls = 0
    with served.http(served.key(None)) as http:
        for number in range(6):
            for program, request in people:
                for user, secret in secrets.items():
                    words = f"My gem number {number} is a {secret}. Which gem is mine?"
                    chat = f"{number}"
                    asked = filled(request, words=words, user=f"{program}-{user}", chat=chat)
                    assert send(http, asked).status_code == 200
                    prompt = shown(provider.requests[-1])
                    [other] = set(secrets.values()) - {secret}
                    prompts += 1
                    leaks += other in prompt
                    recalls += prompt.count(secret) > 1
    assert prompts >= 200 and leaks == 0
    assert recalls > prompts / 2, "memory was at work"


def told(request: ModelRequest) -> str:
    """What the provider answers in the transcript of the page: it knows what it is shown."""
    text = shown(request)
    if "title" in text:
        return "Otters in Aveiro"
    if "Where do I keep" not in text:
        return "I will remember that."
    return "In Aveiro." if "eleven otters in Aveiro" in text else "You have not told me."


TRANSCRIPT = (
    ("open_webui", "a chat", "ana", "I keep eleven otters in Aveiro."),
    ("open_webui", "title", "ana", "I keep eleven otters in Aveiro."),
    ("codex", "a request", "ana", "Where do I keep my otters?"),
    ("librechat", "a chat", "ben", "Where do I keep my otters?"),
)


def test_the_page_shows_what_becomes_of_requests_of_programs() -> None:
    lines: list[str] = []
    with (
        serving(model=FunctionModel(told), design="verbatim") as running,
        running.http(running.key(None)) as http,
    ):
        for number, (program, name, user, words) in enumerate(TRANSCRIPT):
            [recorded] = [each for each in PROGRAMS[program]["requests"] if each["name"] == name]
            asked = filled(recorded, words=words, user=user, chat=f"{number}")
            asked["headers"]["X-Memagent-User"] = user
            before = remembered(http, user)
            asked["body"]["stream"] = False
            answer = send(http, asked).json()
            gained = remembered(http, user)[len(before) :]
            said = answer.get("choices") or answer["output"][0]["content"]
            lines += [
                f"{program}, {name} of {user}: {words}",
                f"  the model says: {said[0].get('text') or said[0]['message']['content']}",
                f"  memory gains:   {' | '.join(gained) or 'nothing'}",
            ]
    page = (Path(__file__).parents[2] / "docs/integrations/index.md").read_text("utf-8")
    assert "```text\n{}\n```".format("\n".join(lines)) in page, "\n".join(lines)


def test_an_operators_key_needs_a_user_for_words_and_none_for_models(served: Served) -> None:
    hello = {"model": "memagent", "messages": [{"role": "user", "content": "Hello"}]}
    with served.http(served.key(None)) as http:
        refused = http.post("/v1/chat/completions", json=hello)
        assert refused.status_code == 400 and "?user_id=" in refused.json()["error"]["message"]
        assert http.get("/v1/models").status_code == 200
        texts = {"model": "memagent", "input": "tea"}
        assert http.post("/v1/embeddings", json=texts).status_code == 200
        headers = {"X-Memagent-User": "cleo"}
        assert http.post("/v1/chat/completions", json=hello, headers=headers).status_code == 200
        assert "Hello" in remembered(http, "cleo")
    with served.http(served.key("dora")) as http:
        assert http.post("/v1/chat/completions", json=hello, headers=headers).status_code == 200
        sessions = http.get("/v1/sessions").json()["items"]
        assert sessions[0]["turns"][0]["text"] == "Hello", "a bound key is about its own user"


def test_models_pass_through_and_a_suffix_or_a_header_turns_memory_off(
    served: Served, provider: Provider
) -> None:
    question = [{"role": "user", "content": "I keep bees, and where?"}]
    path = "/v1/chat/completions"
    with served.http(served.key("bea")) as http:
        names = [entry["id"] for entry in http.get("/v1/models").json()["data"]]
        assert names == ["memagent", "test-model", "org/other"]
        assert http.get("/v1/models/org/other").json()["id"] == "org/other"
        chosen = http.post(path, json={"model": "test-model", "messages": question}).json()
        assert chosen["model"] == "test-model" and chosen["memagent"]["thread"]
        assert (provider.requests[-1].options or {})["model"] == "test-model"
        missing = http.post(path, json={"model": "no-model", "messages": question})
        assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"
        kept = len(http.get("/v1/sessions").json()["items"])
        for model, headers in (
            ("memagent:nomemory", {}),
            ("test-model:nomemory", {}),
            ("memagent", {"X-Memagent-Memory": "off"}),
        ):
            said = [{"role": "user", "content": f"Off with {model}{headers}"}]
            off = http.post(path, json={"model": model, "messages": said}, headers=headers).json()
            assert off["memagent"]["thread"] is None
            assert shown(provider.requests[-1]) == said[0]["content"]
        assert len(http.get("/v1/sessions").json()["items"]) == kept
        wrong = http.post(
            path,
            json={"model": "memagent", "messages": question},
            headers={"X-Memagent-Memory": "perhaps"},
        )
        assert wrong.status_code == 400 and "X-Memagent-Memory" in wrong.text


def test_a_program_of_ones_own_is_added_in_the_settings() -> None:
    table = {"client": "^quarry/", "user": ["header:x-quarry-user"], "tasks": ["Name this talk"]}
    own = ProgramSettings.model_validate(table)
    settings = ServiceSettings(drain_s=2.0, programs={"quarry": own})
    with (
        serving(
            model=FunctionModel(lambda _: "fine"), design="verbatim", settings=settings
        ) as running,
        running.http(
            running.key(None), **{"User-Agent": "quarry/1", "X-Quarry-User": "mo"}
        ) as http,
    ):
        for text in ("Name this talk: stones", "I like stones."):
            body = {"model": "memagent", "messages": [{"role": "user", "content": text}]}
            assert http.post("/v1/chat/completions", json=body).status_code == 200
        assert remembered(http, "mo") == ["I like stones.", "fine"]


def test_a_pattern_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "memagent.toml"
    file.write_text("[service.programs.quarry]\ntasks = ['(']\n")
    with pytest.raises(ConfigError, match=r"service\.programs\.quarry\.tasks\.0"):
        load_settings(file)


def test_odd_names_and_bodies_are_no_fault_of_the_service(served: Served) -> None:
    hello = {"model": "memagent", "messages": [{"role": "user", "content": "Hello"}]}
    path = "/v1/chat/completions"
    with served.http(served.key("odd")) as http:
        answers = [
            http.post(path, json=hello, headers={"X-OpenWebUI-Chat-Id": "c" * length})
            for length in (256, 257, 4_000)
        ]
        threads = {answer.json()["memagent"]["thread"] for answer in answers}
        assert len(threads) == 3 and all(len(thread) <= 256 for thread in threads)
        nested = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        sent = {"Content-Type": "application/json"}
        assert 400 <= http.post(path, content=nested, headers=sent).status_code < 500
        for body in ({"messages": 7}, {"messages": [7, {"role": []}], "metadata": [], "user": {}}):
            assert http.post(path, json=body).status_code == 400
            assert http.post("/v1/messages", json=body).status_code == 400
    with served.http(served.key(None)) as http:
        long = http.post(path, json=hello, headers={"X-Memagent-User": "u" * 300})
        assert long.status_code == 400
