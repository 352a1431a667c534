"""A server on loopback that speaks vLLM's HTTP as TRL's client does, over a tiny model
with real LoRA adapters: they are read from the folders that it is told of.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any

from peft import PeftModel

from train.sampling.batcher import Job, Sampled
from train.sampling.generation import TransformersEngine


@dataclass
class VLLMServer:
    """A base model and the adapters that it was told to load."""

    base: Any
    eos_id: int
    load_s: float = 0.0
    """Seconds that it takes to load an adapter."""
    loads_late: bool = False
    """Loads an adapter only after a request that named one which is not there yet."""
    stuck: bool = False
    """Serves each role's first weights under every later name: a server that lags."""
    takes_adapters: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)
    adapters: dict[str, str] = field(default_factory=dict)
    """The adapter of the model that speaks under each name."""
    url: str = ""
    _model: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _refused: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def load(self, name: str, folder: str) -> tuple[int, str]:
        if not self.takes_adapters:
            return 404, "Not Found"
        if name in self.adapters:
            return 400, f"The lora adapter '{name}' has already been loaded."
        sleep(self.load_s)
        if self.loads_late:
            self._refused.acquire(timeout=30)
        with self._lock:
            role = name.rpartition("-v")[0]
            known = [own for other, own in self.adapters.items() if other.startswith(role)]
            if self.stuck and known:
                self.adapters[name] = known[0]
            else:
                if self._model is None:
                    self._model = PeftModel.from_pretrained(self.base, folder, adapter_name=name)
                else:
                    self._model.load_adapter(folder, adapter_name=name)
                self.adapters[name] = name
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, name: str) -> tuple[int, str]:
        with self._lock:
            if self.adapters.pop(name, None) is None:
                return 404, f"The lora adapter '{name}' cannot be found."
        return 200, f"Success: LoRA adapter '{name}' removed successfully."

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            self.asked.append(body)
            if body["model"] != "base" and body["model"] not in self.adapters:
                self._refused.release(2)
                return 404, f"The model `{body['model']}` does not exist."
            engine = TransformersEngine(
                self._model or self.base, eos_ids=[self.eos_id], pad_id=self.eos_id
            )
            jobs = [
                Job(
                    key=str(place),
                    prompt_ids=tuple(prompt),
                    max_tokens=body["max_tokens"],
                    temperature=body["temperature"],
                    seed=body["seed"],
                    adapter=self.adapters.get(body["model"]),
                )
                for place, prompt in enumerate(body["prompt"])
            ]
            said = engine.generate(jobs)
        return 200, {"choices": [_choice(*pair) for pair in zip(jobs, said, strict=True)]}


def _choice(job: Job, sampled: Sampled) -> dict[str, Any]:
    return {
        "prompt_token_ids": list(job.prompt_ids),
        "token_ids": list(sampled.completion_ids),
        "logprobs": {
            "tokens": [f"token_id:{each}" for each in sampled.completion_ids],
            "token_logprobs": list(sampled.logprobs),
            "top_logprobs": [{} for _ in sampled.completion_ids],
        },
    }


@contextmanager
def running(server: VLLMServer) -> Generator[VLLMServer]:
    """Serve on a free port of the loopback interface; `server.url` is its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": "base"}]} if self.path == "/v1/models" else {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/v1/completions":
                self._send(*server.complete(body))
            elif self.path == "/v1/load_lora_adapter":
                self._send(*server.load(body["lora_name"], body["lora_path"]))
            else:
                self._send(*server.unload(body["lora_name"]))

        def _send(self, status: int, body: Any) -> None:
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        threading.Thread(target=http.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{http.server_port}"
        try:
            yield server
        finally:
            http.shutdown()


def base_of(folder: Path) -> Any:
    """The base model as a server loads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()
