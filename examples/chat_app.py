"""A chat app with long-term memory: one page, one endpoint, an agent a user.

Replies show the quotes that they rest on.

    pip install "memagent[service]"
    python examples/chat_app.py                   # http://127.0.0.1:8380, it quotes the memory
    python examples/chat_app.py --model openai/gpt-4o-mini      # a model talks

Everybody who knows the address may talk: it is an example to build on, with a name as
the user's id and no password.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from memagent.build import open_store
from memagent.config import AgentSettings
from memagent.core.errors import ModelError
from memagent.core.records import Scope

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Chat with memory</title>
<style>body{font:16px/1.5 system-ui;max-width:40rem;margin:2rem auto;padding:0 1rem}
p{margin:.4rem 0}small{color:#666;display:block}
input{font:inherit;padding:.4rem}#text{width:60%}</style>
<h1>Chat with memory</h1><form><label>You are <input id="user" value="ana" size="8"></label>
<label>and say <input id="text" autocomplete="off" autofocus></label> <button>Send</button></form>
<div id="said" aria-live="polite"></div>
<script>
const line = (tag, text) => {
  const p = document.createElement(tag);
  p.textContent = text; said.append(p);
};
document.forms[0].onsubmit = async (event) => {
  event.preventDefault();
  const body = JSON.stringify({ user: user.value, text: text.value });
  line("p", user.value + ": " + text.value); text.value = "";
  const headers = { "content-type": "application/json" };
  const response = await fetch("/say", { method: "POST", headers, body });
  const reply = await response.json();
  if (!response.ok) return line("small", "That did not work: " + reply.detail);
  line("p", "memagent: " + reply.text);
  for (const quote of reply.quotes) line("small", "\\u201c" + quote + "\\u201d");
};
</script></html>"""


class Message(BaseModel):
    """A message of a user."""

    user: Annotated[str, Field(min_length=1, max_length=64)]
    text: Annotated[str, Field(min_length=1, max_length=4_000)]


class Shown(BaseModel):
    """The reply and the quotes it rests on."""

    text: str
    quotes: list[str]


def chat_app(path: str, *, model: str | None = None) -> FastAPI:
    """Build the app on a store; a model answers, or without one the memory is quoted."""
    store = open_store(AgentSettings(), path=path)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        store.close()

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(PAGE)

    @app.post("/say")
    async def say(message: Message) -> Shown:
        """Reply in the conversation of this user, which is remembered."""
        agent = store.agent(Scope(user_id=message.user), model=model)
        try:
            reply = await agent.chat(message.text, thread="web")
        except ModelError as error:
            raise HTTPException(502, str(error)) from error
        quotes = [citation.quote for citation in reply.citations if citation.quote]
        return Shown(text=str(reply), quotes=quotes)

    return app


def main() -> None:
    """Serve it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--db", default=str(Path.home() / "memagent-chat.db"), help="file of the memory"
    )
    parser.add_argument(
        "--model", help="any model that litellm knows; its key comes from the environment"
    )
    parser.add_argument("--port", type=int, default=8380)
    args = parser.parse_args()
    uvicorn.run(chat_app(args.db, model=args.model), host="127.0.0.1", port=args.port)


if __name__ == "__main__":
    main()
