"""`langgraph dev` serves `examples/langgraph_dev`: schemas, and runs that remember."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from places import ROOT

pytest.importorskip("langgraph_api", reason='needs pip install "langgraph-cli[inmem]"')


@pytest.fixture
def server(tmp_path: Path) -> Iterator[httpx.Client]:
    folder = shutil.copytree(ROOT / "examples" / "langgraph_dev", tmp_path / "app")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    quiet = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"}
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("langgraph")),
                "dev",
                *("--no-browser", "--no-reload", "--allow-blocking"),
                *("--port", str(port)),
            ],
            cwd=folder,
            env={**os.environ, **quiet, "MEMAGENT_DB": str(tmp_path / "memory.db")},
            stdout=log,
            stderr=log,
        )
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False
            ) as http:
                deadline = time.monotonic() + 90
                while time.monotonic() < deadline and process.poll() is None:
                    try:
                        if http.get("/ok").status_code == 200:
                            break
                    except httpx.TransportError:
                        time.sleep(0.5)
                assert process.poll() is None, (tmp_path / "server.log").read_text()[-2000:]
                yield http
        finally:
            process.terminate()
            process.wait(30)


def test_the_development_server_shows_schemas_and_runs_the_example(server: httpx.Client) -> None:
    [assistant] = server.post("/assistants/search", json={}).json()
    name = assistant["assistant_id"]
    schemas = server.get(f"/assistants/{name}/schemas")
    assert schemas.status_code == 200 and "messages" in schemas.json()["input_schema"]["properties"]
    said: list[str] = []
    for text in ("My dog Rex is allergic to chicken.", "What is Rex allergic to?"):
        body = {"assistant_id": name, "input": {"messages": [{"role": "user", "content": text}]}}
        said.append(server.post("/runs/wait", json=body).json()["messages"][-1]["content"])
    assert "Nothing in memory" in said[0] and "allergic to chicken" in said[1]
