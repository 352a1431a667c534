"""A step's rows are read back by verifiers itself as we wrote them, without torch."""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from worker_kit import Characters, worked_step

from train.report.verifiers_traces import write_traces

verifiers = pytest.importorskip("verifiers.v1", reason="needs pip install verifiers")


async def test_verifiers_reads_what_we_wrote(tmp_path: Path) -> None:
    from verifiers.v1.utils.trace_store import read_episodes

    if importlib.util.find_spec("torch") is None:
        step = await worked_step()  # a worker needs no learning library
    else:
        pytest.skip("an environment with torch proves less")
    write_traces(tmp_path, step, name="run/3", decode=Characters().decode)
    episodes = read_episodes(tmp_path, verifiers.WireTrace)
    assert [(episode.id, episode.ok) for episode in episodes] == [
        ("run/3/3/e0", True),
        ("run/3/3/e1", True),
    ]
    read = [trace for episode in episodes for trace in episode.traces]
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
