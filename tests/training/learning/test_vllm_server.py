"""TRL's real client and whole runs with two adapters against a server that speaks vLLM's
HTTP: each role is answered by its own adapter of the present version, or refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from adapter_kit import adapted_model
from policy_kit import policy_tokenizer
from training_kit import GivenSteps, made_step, saved_model, settings, trainer_of
from vllm_server import VLLMServer, base_of, running

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, TokenTrace
from train.errors import TrainFault
from train.rollouts.experience import Step
from train.sampling.batcher import Job
from train.sampling.generation import TransformersEngine
from train.sampling.vllm_adapters import AdapterVersions, ColocatedAdapters, ServerAdapters
from train.sampling.vllm_engine import ColocatedSender, ServerSender, VLLMEngine
from train.settings.run import LoRASettings

LORA = LoRASettings(r=2, alpha=4, targets=("q_proj", "v_proj"), per_role=True)
JOBS = [
    Job(key=name, prompt_ids=(6, 7, 8), max_tokens=6, seed=3, adapter=adapter)
    for name, adapter in (("m", "manager"), ("a", "answerer"), ("b", None))
]


@pytest.fixture
def client_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """TRL's client, which asks whether vLLM is there and needs nothing of it for this."""
    from trl.generation import vllm_client

    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda *_, **__: True)
    return lambda url: vllm_client.VLLMClient(base_url=url)


def _server(folder: Path, **options: Any) -> tuple[Any, Any, VLLMServer]:
    """The trainer's model, its tokenizer, and a server with the base of it."""
    model, tokenizer, _ = adapted_model(folder / "base", LORA)
    base = base_of(folder / "base")
    return model, tokenizer, VLLMServer(base, eos_id=tokenizer.eos_token_id, **options)


def _published(model: Any, host: Any, folder: Path, *, main: bool = True, wait: Any = int) -> Any:
    return AdapterVersions(model, host, folder=folder, is_main=main, wait=wait)


def test_each_role_is_answered_by_its_own_adapter(
    tmp_path: Path, client_of: Callable[[str], Any]
) -> None:
    """Tokens and log-probabilities are those of the trainer's own model."""
    model, tokenizer, server = _server(tmp_path)
    own = TransformersEngine(model, eos_ids=[tokenizer.eos_token_id], pad_id=tokenizer.pad_token_id)
    expected = own.generate(JOBS)
    with running(server):
        client = client_of(server.url)
        versions = _published(model, ServerAdapters(client), tmp_path / "vllm")
        engine = VLLMEngine(
            ServerSender(client),
            eos_ids=[tokenizer.eos_token_id],
            hand_over=versions.publish,
            served=versions.served,
        )
        said = engine.generate(JOBS)
    assert len({each["model"] for each in server.asked}) == 3
    assert [each.completion_ids for each in said] == [each.completion_ids for each in expected]
    for one, other in zip(said, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert len({each.logprobs for each in said}) == 3


def test_an_update_makes_new_names_and_forgets_old_ones(
    tmp_path: Path, client_of: Callable[[str], Any]
) -> None:
    model, _, server = _server(tmp_path)
    with running(server):
        versions = _published(model, ServerAdapters(client_of(server.url)), tmp_path / "vllm")
        names: list[str] = []
        for version in range(4):
            versions.publish(version)
            assert set(server.adapters) == {versions.served("manager"), versions.served("answerer")}
            names.append(versions.served("manager") or "")
    assert len(set(names)) == 4
    kept = {folder.name for folder in (tmp_path / "vllm").iterdir()}
    assert {names[-1], names[-2]} < kept
    assert not {names[0], names[1]} & kept


@pytest.mark.parametrize("barrier", [True, False])
def test_no_process_is_answered_with_other_weights_than_its_own(
    tmp_path: Path, client_of: Callable[[str], Any], barrier: bool
) -> None:
    """The second process asks at once while the server still loads what the first one
    sent. The barrier makes it wait; without one it is refused, and never answered by the
    version before.
    """
    model, tokenizer, server = _server(tmp_path, load_s=0.05 * barrier, loads_late=not barrier)
    gate, now = threading.Barrier(2), [0]
    wait = gate.wait if barrier else int
    with running(server):
        clients = [client_of(server.url) for _ in range(2)]
        engines: list[VLLMEngine] = []
        for rank, client in enumerate(clients):
            host = ServerAdapters(client) if rank == 0 else None
            versions = _published(model, host, tmp_path / "vllm", main=rank == 0, wait=wait)
            versions._run = "run"
            engines.append(
                VLLMEngine(
                    ServerSender(client),
                    eos_ids=[tokenizer.eos_token_id],
                    version=lambda: now[0],
                    hand_over=versions.publish,
                    served=versions.served,
                )
            )

        def ask(engine: VLLMEngine) -> str:
            try:
                engine.generate(JOBS[:1])
            except TrainFault as error:
                return str(error)
            return "answered"

        outcomes: list[str] = []
        with ThreadPoolExecutor(2) as pool:
            for now[0] in range(3):
                outcomes += pool.map(ask, engines)
    named = [each["model"] for each in server.asked]
    assert named.count("run-manager-v2") >= 1
    if barrier:
        assert outcomes == ["answered"] * 6
    else:
        assert [each != "answered" for each in outcomes] == [False, True] * 3
        assert "does not exist" in outcomes[1]


def test_weights_updated_while_vllm_answers_are_noticed(tmp_path: Path) -> None:
    version = [0]

    class Slow:
        def serve(self, jobs: Any, more: Any) -> None:
            version[0] += 1
            more({place: ([1], [-0.5]) for place, _ in enumerate(jobs)})

    engine = VLLMEngine(Slow(), eos_ids=[0], version=lambda: version[0])
    with pytest.raises(TrainFault, match=r"version 0 of the weights.*version 1 by now"):
        engine.generate([Job(key="a", prompt_ids=(1,), max_tokens=1)])


def _speaking(trainer: Any) -> GivenSteps:
    """Steps whose rows the trainer's policy samples itself, one row of each role."""
    engine = trainer.policy._engine
    source = GivenSteps([])

    async def gather(episodes: Any, *, step: int) -> Step:
        jobs = [
            Job(
                key=f"{step}.{place}",
                prompt_ids=(6, 7, 8 + place % 3),
                max_tokens=6,
                seed=place,
                adapter=("manager", "answerer")[place % 2],
            )
            for place in range(6)
        ]
        traces = {
            job.key: TokenTrace(
                prompt_ids=job.prompt_ids,
                completion_ids=said.completion_ids,
                logprobs=said.logprobs,
                policy_version=trainer.policy.version,
            )
            for job, said in zip(jobs, engine.generate(jobs), strict=True)
        }
        made = made_step(traces, {key: (-1.0) ** place for place, key in enumerate(traces)})
        roles = {job.key: (Role.MANAGER, Role.ANSWERER)[n % 2] for n, job in enumerate(jobs)}
        return Step(**{**vars(made), "roles": roles})

    source.gather = gather  # type: ignore[method-assign]
    return source


def _run(folder: Path, url: str, *, steps: int = 3) -> list[dict[str, float]]:
    """The log of a run with two adapters that samples from a server."""
    model, tokenizer, adapters = adapted_model(folder / "base", LORA)
    args = settings(
        folder / "run",
        use_vllm=True,
        vllm_mode="server",
        vllm_server_base_url=url,
        max_steps=steps,
        learning_rate=5e-2,
        gradient_checkpointing=True,
    )
    held = GivenSteps([])
    trainer = trainer_of(model, tokenizer, args, held, adapters=adapters)
    trainer.experience = _speaking(trainer)
    trainer.train()
    return [line for line in trainer.state.log_history if "sampling/ratio_mean" in line]


def test_a_run_with_two_adapters_samples_from_a_server_and_a_lagging_one_shows_in_the_log(
    tmp_path: Path, client_of: Callable[[str], Any]
) -> None:
    """An up-to-date server agrees with the trainer to rounding. One that keeps answering
    with the first weights does not, and the difference grows with each update.
    """
    apart: dict[bool, list[float]] = {}
    for stuck in (False, True):
        _, _, server = _server(tmp_path / str(stuck), stuck=stuck)
        with running(server):
            log = _run(tmp_path / str(stuck), server.url)
        apart[stuck] = [line["sampling/logp_difference_mean"] for line in log]
        assert len({each["model"] for each in server.asked}) == 6
    assert max(apart[False]) < 1e-4
    assert apart[True][0] < 1e-4
    assert 0.01 < apart[True][1] < apart[True][2]


def test_a_server_without_adapters_and_adapters_that_vllm_cannot_serve_are_named(
    tmp_path: Path, client_of: Callable[[str], Any]
) -> None:
    model, _, server = _server(tmp_path, takes_adapters=False)
    with running(server):
        versions = _published(model, ServerAdapters(client_of(server.url)), tmp_path / "vllm")
        with pytest.raises(ConfigError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"):
            versions.publish(0)
    model.peft_config["answerer"].modules_to_save = ["lm_head"]
    with pytest.raises(ConfigError, match=r"cannot serve adapter 'manager' .lm_head"):
        _published(model, None, tmp_path / "vllm")


def test_an_engine_in_this_process_is_given_one_request_a_row(tmp_path: Path) -> None:
    model, _, _ = adapted_model(tmp_path / "base", LORA)
    adapters = ColocatedAdapters(lambda *values: values)
    versions = _published(model, adapters, tmp_path / "vllm")
    asked: list[Any] = []

    class Engine:
        def __init__(self) -> None:
            self.held: list[str] = []

        def add_request(self, name: str, *_: Any, lora_request: Any) -> None:
            self.held.append(name)
            asked.append(lora_request)

        def has_unfinished_requests(self) -> bool:
            return bool(self.held)

        def step(self) -> Any:
            reply = SimpleNamespace(token_ids=[4], logprobs=[{4: SimpleNamespace(logprob=-1.0)}])
            names, self.held = self.held, []
            return [
                SimpleNamespace(request_id=name, finished=True, outputs=[reply]) for name in names
            ]

    llm = SimpleNamespace(llm_engine=Engine())
    sender = ColocatedSender(llm, sampling=dict, structured=dict, adapters=adapters)
    now = [0]
    engine = VLLMEngine(
        sender,
        eos_ids=[0],
        version=lambda: now[0],
        hand_over=versions.publish,
        served=versions.served,
    )
    for now[0] in range(2):
        engine.generate(JOBS)
    requests = [request for request in asked if request is not None]
    assert [asked[2], asked[5]] == [None, None]  # a role without an adapter
    assert len({number for _, number, _ in requests}) == len(requests) == 4
    assert all((Path(folder) / "adapter_config.json").is_file() for _, _, folder in requests)


def test_an_adapter_that_all_roles_share_speaks(tmp_path: Path) -> None:
    """Sampling from the base instead would train on what another policy said."""
    folder, tokenizer = tmp_path / "base", policy_tokenizer()
    saved_model(folder, tokenizer)
    model, _, adapters = adapted_model(folder, LORA.model_copy(update={"per_role": False}))
    assert adapters == {}
    engine = TransformersEngine(model, eos_ids=[0], pad_id=0)
    [said] = engine.generate([Job(key="a", prompt_ids=(6, 7, 8), max_tokens=6, seed=3)])
    ids = torch.tensor([[6, 7, 8, *said.completion_ids]])
    with torch.no_grad():
        logps = torch.log_softmax(model(input_ids=ids).logits[0, 2:-1].float(), -1)
    chosen = logps.gather(1, ids[0, 3:, None]).squeeze(1)
    assert list(said.logprobs) == pytest.approx(chosen.tolist(), abs=1e-4)
