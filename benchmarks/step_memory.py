"""Benchmark of the memory that an update of a policy takes, by the number of sessions.

A real update of a policy of 30 million weights learns from the calls of 8 and of 32
sessions, with one token budget for its passes and with none. Counted are the bytes that
a forward pass keeps for its backward pass, at most at one time, and the peak of the
process's memory. Each condition runs in a process of its own.

Promise: with the budget, 32 sessions take at most 1.2 times the memory of 8.

    python benchmarks/step_memory.py [--size 30m] [--unbounded]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from measured import report

BUDGET = 1_024
"""Tokens of a pass."""
SESSIONS = (8, 32)


def measure(sessions: int, tokens: int, size: str) -> dict[str, float]:
    """Return what one update of the calls of two rollouts takes."""
    import torch

    from memagent.core.exchange import TokenTrace
    from train.credit.advantages import Credit
    from train.rollouts.allocation import SuccessHistory
    from train.rollouts.anchors import SessionSpread
    from train.rollouts.experience import Step
    from train.run.models import new_model
    from train.run.runs import stage_config
    from train.run.task import TrainingTask, demonstrate
    from train.run.trainer import LoGoGRPOTrainer
    from train.settings.run import checked_run

    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    settings = checked_run(
        {
            "folder": folder,
            "model": {"size": size, "context_tokens": 512},
            "environment": {"level": "tiny", "friends": 0, "turns": 4, "episodes": 2},
            "warmup": {"episodes": 1, "sessions": sessions, "answers": False},
            "trainer": {
                "num_generations": 2,
                "steps_per_generation": 2,
                "gradient_accumulation_steps": 2,
                "num_iterations": 1,
                "beta": 0.0,
                "micro_batch_tokens": tokens,
                "report_to": [],
                "save_strategy": "no",
                "use_cpu": True,
                "bf16": False,
                "gradient_checkpointing": False,
            },
            "stage": [{"sessions": sessions, "steps": 1}],
        }
    )
    shown = asyncio.run(demonstrate(settings))
    model, tokenizer = new_model(settings, shown)
    draws, traces = random.Random(0), {}
    for place, each in enumerate(shown):
        *prompt, reply = each.chat()["messages"]
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        said = tokenizer(reply["content"], add_special_tokens=False)["input_ids"]
        traces[str(place)] = TokenTrace(
            prompt_ids=tuple(tokenizer(text, add_special_tokens=False)["input_ids"]),
            completion_ids=(*said, tokenizer.eos_token_id),
            logprobs=(-1.0,) * (len(said) + 1),
            policy_version=0,
        )
    step = Step(
        credit=Credit(advantages={key: draws.gauss(0, 1) for key in traces}),
        traces=traces,
        roles=dict.fromkeys(traces, shown[0].role),
        groups=(),
        rollouts=(),
        metrics={},
        seconds={"rollout": 0.0, "score": 0.0, "credit": 0.0},
    )

    class Given:
        """In the place of an `Experience`."""

        def __init__(self) -> None:
            self.collector, self.read_entropies, self.read_logps = self, None, None
            self.spread, self.history = SessionSpread(), SuccessHistory()

        async def gather(self, episodes: Any, *, step: int) -> Step:
            """Return the step."""
            del episodes, step
            return given

    given = step
    task = TrainingTask.of(settings, sessions=sessions)
    trainer = LoGoGRPOTrainer(
        model,
        args=stage_config(settings, settings.stage[0], Path(folder)),
        episodes=task.episodes("train", 2),
        experience=lambda _: Given(),  # type: ignore[arg-type,return-value]
        processing_class=tokenizer,
    )
    before = _peak()
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        trainer.train()
    return {
        "weights": sum(each.numel() for each in model.parameters()),
        "rows": len(traces),
        "tokens": sum(len(t.prompt_ids) + len(t.completion_ids) for t in traces.values()),
        "kept_mb": round(Kept.most / 1e6, 1),
        "peak_rss_mb": round(_peak(), 1),
        "peak_rss_before_mb": round(before, 1),
    }


class Kept:
    """A tensor that a backward pass waits for; its storage counts until the last one goes."""

    now = most = 0
    users: ClassVar[Counter[int]] = Counter()

    def __init__(self, tensor: Any) -> None:
        """Count the tensor's storage, unless another tensor has done so or it is a weight."""
        self.tensor = tensor
        storage = tensor.untyped_storage()
        self.place, self.size = storage.data_ptr(), storage.nbytes()
        if not tensor.is_leaf or not tensor.requires_grad:
            Kept.users[self.place] += 1
            if Kept.users[self.place] == 1:
                Kept.now += self.size
                Kept.most = max(Kept.most, Kept.now)
        else:
            self.size = 0

    def __del__(self) -> None:
        """Stop counting it."""
        if self.size:
            Kept.users[self.place] -= 1
            if not Kept.users[self.place]:
                Kept.now -= self.size


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure each condition and report."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("--size", default="30m")
    flags.add_argument("--unbounded", action="store_true", help="measure without a budget too")
    flags.add_argument("--one", nargs=2, type=int, metavar=("SESSIONS", "TOKENS"))
    args = flags.parse_args()
    if args.one:
        print("@ " + json.dumps(measure(args.one[0], args.one[1], args.size)))
        return
    budgets = {f"passes of {BUDGET} tokens": BUDGET}
    if args.unbounded:
        budgets["passes without a budget"] = 10**9
    results: dict[str, Any] = {}
    for name, tokens in budgets.items():
        for sessions in SESSIONS:
            command = [sys.executable, __file__, "--size", args.size, "--one", str(sessions)]
            done = subprocess.run([*command, str(tokens)], capture_output=True, text=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith("@ ")]
            if not lines:
                raise SystemExit(done.stderr[-2_000:])
            results.setdefault(name, {})[f"{sessions} sessions"] = json.loads(lines[0][2:])
    few, many = (results[f"passes of {BUDGET} tokens"][f"{each} sessions"] for each in SESSIONS)
    promises = {
        f"32 sessions over 8, {name}": (round(many[name] / few[name], 3), 1.2)
        for name in ("kept_mb", "peak_rss_mb")
    }
    report("step_memory", results, promises=promises)


if __name__ == "__main__":
    main()
