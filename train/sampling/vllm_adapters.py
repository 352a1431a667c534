"""LoRA adapters for vLLM: every version of every adapter has a name of its own.

An update writes each adapter to a folder and makes it known to vLLM as
`RUN-ADAPTER-vVERSION`. A request names the version that its row belongs to, so it is
answered with those weights or refused; there is no answer with other ones. A name used
twice could not say so: vLLM keeps the prompts that it has read by the adapter's name
(vllm-project/vllm issue 42125), and reads an adapter replaced in place anew at each
request (pull request 41482). TRL's asynchronous trainer names versions for the same
reasons.

The folders lie under the run's folder; a server on another machine must see the same
path. They outlive their version by one update, because vLLM reads them when the first
request comes.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from memagent.core.errors import ConfigError
from train.errors import TrainFault
from train.ranks import on_main

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM takes for `max_lora_rank`; it is an upper bound."""


class AdapterHost(Protocol):
    """Makes adapters known to vLLM."""

    def load(self, name: str, folder: Path) -> None:
        """Make an adapter known under a name that was never used before."""
        ...

    def unload(self, name: str) -> None:
        """Forget an adapter that no request names any more."""
        ...


class ServerAdapters:
    """Adapters of a vLLM server, over HTTP; only the main process has one."""

    def __init__(self, client: Any) -> None:
        """Use the session of a `trl.generation.vllm_client.VLLMClient`."""
        self._client = client

    def load(self, name: str, folder: Path) -> None:
        """Return when the server has the adapter.

        Raises `ConfigError` when it takes none, `TrainFault` when it refuses this one.
        """
        reply = self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        if reply.status_code == 404:
            raise ConfigError(
                f"the vLLM server at {self._client.base_url} takes no adapters: start it with "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora, and --max-loras of at least "
                "twice the number of adapters"
            )
        if reply.status_code != 200:
            raise TrainFault(f"vLLM refused adapter {name!r}: {reply.text}")

    def unload(self, name: str) -> None:
        """Forget an adapter; a server that has dropped it already is no error."""
        self._post("unload_lora_adapter", {"lora_name": name})

    def _post(self, verb: str, body: dict[str, str]) -> Any:
        return self._client.session.post(f"{self._client.base_url}/v1/{verb}", json=body)


class ColocatedAdapters:
    """Adapters of the vLLM engine in this process, as the requests that rows carry."""

    def __init__(self, request: Callable[[str, int, str], Any]) -> None:
        """Make requests with `vllm.lora.request.LoRARequest`."""
        self._request = request
        self._known: dict[str, Any] = {}
        self._numbers = 0

    def load(self, name: str, folder: Path) -> None:
        """Keep a request with a number that was never used before."""
        self._numbers += 1
        self._known[name] = self._request(name, self._numbers, str(folder))

    def unload(self, name: str) -> None:
        """Forget the request; vLLM drops the adapter used longest ago."""
        self._known.pop(name, None)

    def request(self, name: str | None) -> Any:
        """Return the request of a known adapter; None for the base model."""
        return None if name is None else self._known[name]


class AdapterVersions:
    """Publishes the adapters of a PEFT model, one version after the other."""

    def __init__(
        self,
        model: Any,
        host: AdapterHost | None,
        *,
        folder: Path,
        is_main: bool,
        wait: Callable[[], object],
    ) -> None:
        """Publish through the host.

        Every process has an object; with a server only the main process has a `host`. `wait`
        returns when all processes have come. Raises `ConfigError` for adapters that
        vLLM cannot serve.
        """
        for name, config in model.peft_config.items():
            check_servable(name, config)
        self._model, self._host, self._wait = model, host, wait
        self._folder, self._is_main = folder.resolve(), is_main
        self._run = on_main(lambda: f"memagent-{secrets.token_hex(4)}")
        self._adapters = sorted(model.peft_config)
        self._versions: list[int] = []

    def publish(self, version: int) -> None:
        """Give vLLM the present weights as a version; all processes call it together.

        No process returns before all of them may ask for it.
        """
        if self._is_main:
            self._write(version)
        self._wait()
        if self._host is not None:
            for adapter in self._adapters:
                self._host.load(self._name(adapter, version), self._place(adapter, version))
        self._wait()
        self._versions.append(version)
        if len(self._versions) > 1 and self._host is not None:
            for adapter in self._adapters:
                self._host.unload(self._name(adapter, self._versions[-2]))
        if len(self._versions) > 2 and self._is_main:
            past = self._versions.pop(0)
            for adapter in self._adapters:
                shutil.rmtree(self._place(adapter, past), ignore_errors=True)

    def served(self, adapter: str | None) -> str | None:
        """Return the name under which vLLM has an adapter's last published version.

        None for the base model. A model with one adapter always speaks with it.
        """
        if adapter is None and len(self._adapters) == 1:
            adapter = self._adapters[0]
        return None if adapter is None else self._name(adapter, self._versions[-1])

    def _name(self, adapter: str, version: int) -> str:
        return f"{self._run}-{adapter}-v{version}"

    def _place(self, adapter: str, version: int) -> Path:
        return self._folder / self._name(adapter, version)

    def _write(self, version: int) -> None:
        """Write the adapters; a folder appears under its name when it is whole."""
        half = self._folder / f".{self._run}-half"
        shutil.rmtree(half, ignore_errors=True)
        self._model.save_pretrained(half, selected_adapters=self._adapters)
        for adapter in self._adapters:
            # PEFT gives each adapter but "default" a folder of its own.
            (half if adapter == "default" else half / adapter).rename(self._place(adapter, version))
        shutil.rmtree(half, ignore_errors=True)


def check_servable(name: str, config: Any) -> None:
    """Raise `ConfigError` for an adapter that vLLM would serve in part only."""
    targets = config.target_modules or []
    targets = [targets] if isinstance(targets, str) else list(targets)
    trained = [each for each in targets if "lm_head" in each or "embed_tokens" in each]
    trained += list(config.modules_to_save or [])
    if trained or config.use_dora or config.bias != "none":
        what = ", ".join(trained) or ("DoRA" if config.use_dora else f"bias = {config.bias!r}")
        raise ConfigError(
            f"vLLM cannot serve adapter {name!r} ({what}): adapt linear layers of the body only, "
            "or set use_vllm = false"
        )


def served_rank(model: Any) -> int:
    """Return the least `max_lora_rank` that vLLM takes for the adapters of a model."""
    ranks = [
        rank
        for config in model.peft_config.values()
        for rank in (config.r, *config.rank_pattern.values())
    ]
    fitting = [rank for rank in RANKS if rank >= max(ranks)]
    if not fitting:
        raise ConfigError(f"vLLM serves adapters of rank {RANKS[-1]} at most; this is {max(ranks)}")
    return fitting[0]
