"""What became of a pretrained model: losses, samples, F1 and consolidation, before and after.

    memagent-train examples/training/smollm2.toml
    python examples/experiments/smollm2.py examples/training/smollm2.toml --out smollm2.json

Plays the run's test worlds, whose names and forms training never shows, with the model
as it came, after the warm start and after training, and puts the run's logs beside it.
A policy that has been tested is not tested again, so the command can be given while the
run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

from memagent.core.exchange import Sampling
from train.sampling.policy import SampledCall, SamplerHook

SHOWN = (
    "f1", "exact", "facts", "facts_as_of", "overwritten", "lost", "memory_share", "add",
    "update", "delete", "noop", "rejected", "unreadable", "failed",
)  # fmt: skip


class Counter(SamplerHook):
    """Counts the calls and their prompts, and changes nothing."""

    def __init__(self) -> None:
        self.calls = self.prompt_tokens = 0

    def sampling(self, call: SampledCall, planned: Sampling, /) -> Sampling:
        """Return the sampling as planned."""
        self.calls, self.prompt_tokens = self.calls + 1, self.prompt_tokens + call.prompt_tokens
        return planned


def tested(plan: Any, path: str, episodes: int) -> dict[str, Any]:
    """Return figures, intervals, samples and speed of a policy on the test worlds."""
    from train.run.task import TrainingTask
    from train.sampling.checkpoints import load_policy

    sampling = Sampling(temperature=0.0, max_tokens=plan.trainer["max_completion_length"])
    policy = load_policy(path, sampling=sampling)
    policy.hook = counter = Counter()
    task = TrainingTask.of(plan, sessions=plan.stage[0].sessions)
    began = process_time()
    found = task.evaluate(policy, "test", episodes)
    seconds = process_time() - began
    return {
        "episodes": episodes,
        "figures": {
            name: {
                "mean": round(found.figures[name], 4),
                "interval": [round(edge, 4) for edge in found.interval(name)],
            }
            for name in SHOWN
            if name in found.figures
        },
        "calls": counter.calls,
        "prompt_tokens": counter.prompt_tokens,
        "processor_seconds": round(seconds, 1),
        "samples": [
            {"episode": one.episode_id, "replies": one.replies, "memory": one.memory}
            for one in found.episodes[:2]
        ],
    }


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log; [] where there is none yet."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def logs_of(folder: Path) -> dict[str, Any]:
    """Return what the run has logged so far: warm start, updates, validations."""
    stage, kept = folder / "stage0", ("loss", "mean_token_accuracy", "num_tokens", "grad_norm")
    figures = ("reward/global", "reward/local", "tokens/completion", "rows/learned")
    return {
        "warm_start": [
            {"step": line["step"], **{k: line["logs"][k] for k in kept if k in line["logs"]}}
            for line in lines_of(folder / "init" / "run" / "log.jsonl")
            if "loss" in line["logs"]
        ],
        "updates": [
            {"step": line["step"], **line["logs"]} for line in lines_of(stage / "log.jsonl")
        ],
        "steps": [
            {name: value for name, value in line["figures"].items()
             if name in figures or name.startswith(("seconds", "groups", "ops"))}
            for line in lines_of(stage / "steps.jsonl")
        ],
        "validations": [
            {"step": line["step"], "figures": line["figures"]}
            for line in lines_of(folder / "validation.jsonl")
        ],
    }  # fmt: skip


def main() -> None:
    """Test what is there and has not been tested, and write everything."""
    import torch

    from train.run.validation import hush
    from train.settings.run import load_run

    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("config", type=Path)
    flags.add_argument("--out", type=Path, default=Path("runs/smollm2.json"))
    flags.add_argument("--folder", type=Path, help="of the run, if not the settings' own")
    flags.add_argument("--policies", default="base,init,stage0/last")
    flags.add_argument("--episodes", type=int, default=6)
    args = flags.parse_args()
    hush()
    torch.set_num_threads(1)
    plan = load_run(args.config)
    folder = args.folder or Path(plan.folder)
    found = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {"test": {}}
    for name in args.policies.split(","):
        path = Path(plan.model.path or "") if name == "base" else folder / name
        if name not in found["test"] and path.is_dir():
            print(f"testing {name}", file=sys.stderr, flush=True)
            found["test"][name] = tested(plan, str(path), args.episodes)
        found |= {"settings": plan.model_dump(mode="json"), **logs_of(folder)}
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
