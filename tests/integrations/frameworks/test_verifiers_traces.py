"""A step's rows are read back by verifiers itself as we wrote them, without torch."""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.util
import json

import pytest
from worker_kit import Characters, worked_step

from train.report.verifiers_traces import verifiers_traces

trace_module = pytest.importorskip("verifiers.v1.trace", reason="needs pip install verifiers")


async def test_verifiers_reads_what_we_wrote() -> None:
    if importlib.util.find_spec("torch") is None:
        step = await worked_step()  # a worker needs no learning library
    else:
        pytest.skip("an environment with torch proves less")
    read = [
        trace_module.WireTrace.model_validate(json.loads(json.dumps(trace)))
        for trace in verifiers_traces(step, name="run/3", decode=Characters().decode)
    ]
    seen: set[str] = set()
    for trace in read:
        responses = {int(place): key for place, key in trace.info["responses"].items()}
        for branch in trace.branches:
            place = next(p for p, node in enumerate(trace.nodes) if node is branch.nodes[-1])
            key = responses[place]
            row, advantage = step.traces[key], step.credit.advantages[key]
            prompt, said = len(row.prompt_ids), len(row.completion_ids)
            assert branch.trainable
            assert branch.token_ids == [*row.prompt_ids, *row.completion_ids]
            assert branch.sampled_mask == [False] * prompt + [True] * said
            assert branch.logprobs == pytest.approx([0.0] * prompt + [*row.logprobs], abs=1e-9)
            expected = [0.0] * prompt + [advantage] * said
            assert branch.advantages == pytest.approx(expected, abs=1e-9)
            seen.add(key)
    assert seen == set(step.credit.advantages)
