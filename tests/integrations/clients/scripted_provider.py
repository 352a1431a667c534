"""A hosted model that plays its part of the checks: a script over a real socket.

It answers by the words of the last message: it calls the offered tools, follows a
schema, cites the memories that it is shown, refuses, or repeats what it was told.
"""

from __future__ import annotations

import json
import re
from typing import Any

from scripted_server import Body, Reply

from memagent.core.exchange import ToolCall

MEMORY = re.compile(r"^\[(mem_\w+)\].*called Bolt", re.MULTILINE)
CITY = json.dumps({"city": "Lisbon"})
QUOTA = "You exceeded your current quota"
TOKEN: Any = {"token": "Yes", "logprob": -0.25, "bytes": [89, 101, 115], "top_logprobs": []}


def provider(body: Body, index: int) -> Reply:
    """Answer one request to the hosted model."""
    messages: Any = body["messages"]
    last = messages[-1]
    words = last["content"] if isinstance(last["content"], str) else last["content"][0]["text"]
    said = words.rpartition("</memories>")[2].strip()
    if "too fast" in said:
        return Reply(status=429, error=QUOTA, error_code="insufficient_quota")
    if "break off" in said:
        return Reply(text="Half of", unended=True)
    if "refuse me" in said:
        return Reply.failing(400, error="temperature must be below 1")
    if body.get("logprobs"):
        return Reply(text="Yes", logprobs={"content": [TOKEN]})
    if last["role"] == "tool":
        results = [each["content"] for each in messages if each["role"] == "tool"]
        return Reply(text=f"It is {' and '.join(results)}.{_cited(messages)}")
    if called := _calls(body, said, index):
        return Reply(tool_calls=called)
    if body.get("response_format"):
        return Reply(text=CITY)
    if "cat called" in said:
        return Reply(text=f"Your cat is called Bolt.{_cited(messages)}")
    return Reply(text=f"You said: {said}")


def _calls(body: Body, said: str, index: int) -> tuple[ToolCall, ...]:
    """Call a tool that has to be called, or one for each city that is asked about."""
    tools: Any = body.get("tools") or []
    forced = body.get("tool_choice") not in (None, "auto")
    if not tools or not (forced or "weather" in said):
        return ()
    name = tools[0]["function"]["name"]
    cities = ["Lisbon", "Porto"] if "Porto" in said else ["Lisbon"]
    return tuple(
        ToolCall(id=f"call_{index}_{at}", name=name, arguments=json.dumps({"city": city}))
        for at, city in enumerate(cities)
    )


def _cited(messages: Any) -> str:
    shown = MEMORY.findall(
        "\n".join(str(each.get("content")) for each in messages).replace("\\n", "\n")
    )
    return f" [{shown[0]}]" if shown else ""
