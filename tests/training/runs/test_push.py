"""The best model of a run goes to a hub, through the hub's own client."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memagent.core.errors import ConfigError
from train.run.command import app

Hub = dict[str, dict[str, bytes]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Generator[Hub]:
    """A hub on loopback: the files of each model by name; it takes models of `ana` only."""
    models: Hub = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self._body()
            if self.path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                if asked["organization"] != "ana":
                    return self._send(403, {"error": "not yours"})
                assert asked["visibility"] == "private"
                models.setdefault(name, {})
                return self._send(200, {"url": f"https://huggingface.co/{name}"})
            name = "/".join(self.path.split("/")[3:5])
            if "/preupload/" in self.path:
                files = json.loads(body)["files"]
                modes = [
                    {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for f in files
                ]
                return self._send(200, {"files": modes})
            for line in body.decode().splitlines():
                part = json.loads(line)
                if part["key"] == "file":
                    value = part["value"]
                    models[name][value["path"]] = base64.b64decode(value["content"])
            return self._send(
                200, {"commitUrl": f"https://huggingface.co/{name}", "commitOid": "0" * 40}
            )

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers["Content-Length"]))
            parts: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def do_GET(self) -> None:
            name = self.path.removeprefix("/api/models/")
            if name not in models and not name.startswith("ana/memory/"):
                return self._send(404, {"error": "no such model"})
            return self._send(200, {"id": "ana/memory", "sha": "0" * 40, "siblings": []})

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield models
        server.shutdown()


def _run(folder: Path) -> Path:
    (folder / "best").mkdir(parents=True)
    for name, text in (("best/config.json", "{}"), ("best/model.safetensors", "weights")):
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("settings.json", "summary.json"):
        (folder / name).write_text('{"seed": 1}', encoding="utf-8")
    return folder


def test_the_best_model_is_pushed_with_its_settings(tmp_path: Path, hub: Hub) -> None:
    done = CliRunner().invoke(app, ["push", str(_run(tmp_path / "run")), "ana/memory"])
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["model"] == "ana/memory"
    files = hub["ana/memory"]
    assert files.keys() == {"config.json", "model.safetensors", "settings.json", "summary.json"}
    assert files["model.safetensors"] == b"weights"


def test_a_refusal_and_a_run_that_has_not_ended_are_told(tmp_path: Path, hub: Hub) -> None:
    run = _run(tmp_path / "run")
    refused = CliRunner().invoke(app, ["push", str(run), "ben/memory"])
    assert isinstance(refused.exception, ConfigError)
    assert "the hub did not take ben/memory" in str(refused.exception)
    early = CliRunner().invoke(app, ["push", str(tmp_path), "ana/memory"])
    assert "has not ended" in str(early.exception)
    assert hub == {}
