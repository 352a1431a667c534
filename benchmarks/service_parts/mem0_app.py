"""mem0 behind equal endpoints, with its local Qdrant store on disk.

Inference and telemetry are off; the embedder is our static one.

Run by an interpreter that can import mem0ai; FastAPI and uvicorn are taken from the
folder that `SITE` names where it has none. `FOLDER`, `USERS` and `MEMORIES` say where
and how much to store before anything is served. The memories are written through mem0's
own vector store with the payload that its `add` writes, since adding them one by one
would take hours. Its local store is not safe with threads, so the endpoints work in the
event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
import random
import sys
import uuid
import warnings
from pathlib import Path
from typing import Any

from memagent.embed.static import StaticEmbedder

try:
    import fastapi  # noqa: F401
except ModuleNotFoundError:
    sys.path.append(os.environ["SITE"])

from fastapi import FastAPI, Response
from load import sentence

from memagent.client.wire import NewMemory, SearchRequest

FOLDER = Path(os.environ["FOLDER"])
TABLE = StaticEmbedder()


class Same:
    """Our static table behind mem0's embedder interface."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:  # noqa: ARG002 (mem0's interface)
        """One vector."""
        return TABLE.encode([text])[0].tolist()

    def embed_batch(self, many: list[str], memory_action: str | None = None) -> list[list[float]]:  # noqa: ARG002 (mem0's interface)
        """Return a vector per text."""
        return TABLE.encode(many).tolist()


def opened() -> Any:
    """mem0's memory."""
    os.environ.update(
        MEM0_TELEMETRY="False", MEM0_DIR=str(FOLDER / "mem0"), OPENAI_API_KEY="unused"
    )
    warnings.simplefilter("ignore")
    store = {
        "collection_name": "bench",
        "embedding_model_dims": TABLE.dim,
        "path": str(FOLDER / "qdrant"),
        "on_disk": True,
    }
    memory: Any = importlib.import_module("mem0").Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": str(FOLDER / "history.db"),
        }
    )
    memory.embedding_model = Same()
    return memory


def fill(memory: Any, *, users: int, memories: int) -> None:
    """Store the memories, evenly over the users."""
    chance = random.Random(1)
    first = memory.add(sentence(chance), user_id="u0", infer=False)["results"][0]["id"]
    payload: dict[str, Any] = memory.vector_store.get(vector_id=first).payload
    for user in range(users):
        texts = [sentence(chance) for _ in range(memories // users)]
        more = [
            {
                **payload,
                "user_id": f"u{user}",
                "data": text,
                "hash": hashlib.md5(text.encode()).hexdigest(),
                "text_lemmatized": text.lower(),
            }
            for text in texts
        ]
        ids = [str(uuid.uuid4()) for _ in texts]
        memory.vector_store.insert(vectors=TABLE.encode(texts).tolist(), ids=ids, payloads=more)


app = FastAPI()
FILLED = FOLDER / "filled"
"""Stands when the memories are all there."""
MEMORY = opened()
if not FILLED.exists():
    fill(MEMORY, users=int(os.environ["USERS"]), memories=int(os.environ["MEMORIES"]))
    FILLED.touch()


@app.post("/v1/search")
async def search(body: SearchRequest, user_id: str) -> Response:
    """Return the best memories for a text."""
    found = MEMORY.search(body.text, filters={"user_id": user_id}, top_k=body.k)
    return Response(_json(found), media_type="application/json")


@app.post("/v1/memories", status_code=201)
async def add(body: NewMemory, user_id: str) -> Response:
    """Remember a text as it is."""
    return Response(
        _json(MEMORY.add(body.text, user_id=user_id, infer=False)),
        201,
        media_type="application/json",
    )


def _json(value: object) -> bytes:
    from pydantic_core import to_json

    return to_json(value)


def main() -> None:
    """Serve."""
    import uvicorn

    config = uvicorn.Config(app, port=int(sys.argv[1]), access_log=False, log_level="warning")
    asyncio.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
