"""Rows and credit made by a worker without a learning library, as traces of verifiers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from worker_kit import Characters, worked_step

from train.credit.rows import rows_of
from train.report.verifiers_traces import verifiers_traces, write_traces

WITHOUT_TORCH = """
import asyncio, sys
from pathlib import Path
for name in ("torch", "transformers", "trl"):
    sys.modules[name] = None
from worker_kit import Characters, worked_step
from train.report.verifiers_traces import write_traces
step = asyncio.run(worked_step())
write_traces(Path(sys.argv[1]), step, name="run/3", decode=Characters().decode)
"""


def _rows_by_response(traces: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Prompt, reply, log-probabilities and advantages of each reply's branch."""
    rows: dict[str, tuple[Any, ...]] = {}
    for trace in traces:
        for place, key in trace["info"]["responses"].items():
            node = trace["nodes"][int(place)]
            prompt = trace["nodes"][node["parent"]]
            assert not any(prompt["mask"]) and all(node["mask"]) and node["sampled"]
            rows[key] = (
                prompt["token_ids"],
                node["token_ids"],
                node["logprobs"],
                node["advantages"],
            )
    return rows


async def test_each_row_is_a_branch_with_its_tokens_and_its_credit() -> None:
    step = await worked_step()
    traces = verifiers_traces(step, name="run/3", decode=Characters().decode)
    rows = rows_of(step.traces, step.credit.advantages)
    branches = _rows_by_response(json.loads(json.dumps(traces)))
    assert len(rows) == len(branches) > 10
    for key, row in zip(step.credit.advantages, rows, strict=True):
        assert branches[key] == (
            list(row.trace.prompt_ids),
            list(row.trace.completion_ids),
            list(row.trace.logprobs),
            [row.advantage] * len(row.trace.completion_ids),
        )
    assert any(row.advantage for row in rows)
    assert [trace["id"] for trace in traces] == ["run/3/3/e0", "run/3/3/e1"]


async def test_calls_with_the_same_prompt_share_its_node() -> None:
    """All rollouts hear the first session from an empty memory."""
    step = await worked_step()
    [first, _] = verifiers_traces(step, name="run/3", decode=Characters().decode)
    parents = [node["parent"] for node in first["nodes"] if "parent" in node]
    prompts = [tuple(node["token_ids"]) for node in first["nodes"] if "parent" not in node]
    assert len(set(prompts)) == len(prompts) < len(parents)
    assert max(map(parents.count, parents)) >= 4
    assert first["nodes"][0]["message"]["content"].startswith("Note")


async def test_a_worker_without_torch_makes_the_same_rows(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(tmp_path)], check=True, env=_paths())
    written = [json.loads(line) for line in (tmp_path / "traces.jsonl").read_text().splitlines()]
    write_traces(tmp_path, await worked_step(), name="run/3", decode=Characters().decode)
    again = [json.loads(line) for line in (tmp_path / "traces.jsonl").read_text().splitlines()]
    assert again[: len(written)] == again[len(written) :] == written != []


def _paths() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
