"""Check that training works on this machine's GPU.

It tries what the shipped settings use: bf16, one adapter a role, gradient checkpointing,
two passes over a batch, and a stop with a resume between two batches. Then it measures
how wide to sample.

    python scripts/gpu_check.py                  a model of four million parameters made here
    python scripts/gpu_check.py --model FOLDER   your own model, a folder or a hub id
    python scripts/gpu_check.py --device cpu     a check of the script itself, without bf16

Without a GPU it says so and ends with status 0, so that it may stand in any pipeline;
`--require` makes that status 1. A failed check is status 1 always. Results go to
standard output as JSON, progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

WIDTHS = (1, 4, 16, 64, 256)
PROMPT, REPLY = 256, 64
"""Tokens of each row of the table."""


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def four_updates(folder: Path, *, model: str | None, gpu: bool) -> dict[str, Any]:
    """Run a warm start and four updates of both roles, and return the last one's figures.

    Each role has an adapter of its own. The run is stopped after the first two updates,
    which share a batch, and goes on from their checkpoint.
    """
    from train.run.runs import train_run
    from train.settings.run import checked_run

    part: dict[str, Any] = {"lora": {"r": 8, "alpha": 16, "per_role": True}}
    part |= {"path": model} if model else {"size": "4m", "context_tokens": 512}
    values: dict[str, Any] = {
        "folder": str(folder),
        "model": part,
        "environment": {"episodes": 4, "turns": 4, "asks": ["now", "who"]},
        "trainer": {
            "roles": "both",
            "num_generations": 4,
            "steps_per_generation": 4,
            "gradient_accumulation_steps": 4,
            "num_iterations": 2,
            "reruns": 2,
            "answer_members": 4,
            "answer_questions": 2,
            "max_completion_length": 64 if model is None else 256,
            "use_cpu": not gpu,
            "bf16": gpu,
            "gradient_checkpointing": True,
            "save_steps": 2,
        },
        "stage": [{"sessions": 2, "steps": 4}],
        "validation": {"every": 1, "episodes": 1, "test_episodes": 0},
    }
    if model is None:
        values["warmup"] = {"episodes": 16, "sessions": 2, "epochs": 1}
    began = perf_counter()
    settings = checked_run(values)
    try:
        train_run(settings, say=stopped_at_checkpoint(folder))
    except KeyboardInterrupt:
        say("stopped after two updates; going on")
    train_run(settings, resume=True, say=say)
    logs = [
        json.loads(line)["logs"]
        for line in (folder / "stage0" / "log.jsonl").read_text().splitlines()
    ]
    updates = [each for each in logs if "loss" in each]
    update = updates[-1]
    shown = {
        name: update.get(name)
        for name in ("loss", "grad_norm", "kl", "rows/real", "tokens/completion", "step_time")
    }
    return {
        **shown,
        "updates": len(updates),
        "adapters": _adapters(folder / "stage0" / "best"),
        "seconds": round(perf_counter() - began, 1),
    }


def stopped_at_checkpoint(folder: Path) -> Callable[[str], None]:
    """Return a `say` that stops a run when its first checkpoint is complete."""

    def say_or_stop(line: str) -> None:
        say(line)
        if (folder / "stage0" / "checkpoint-2" / "experience.json").is_file():
            raise KeyboardInterrupt

    return say_or_stop


def _adapters(folder: Path) -> list[str]:
    """Return the adapters that were saved."""
    return sorted(config.parent.name for config in folder.glob("*/adapter_config.json"))


def width_table(folder: Path, *, model: str | None, gpu: bool) -> list[dict[str, Any]]:
    """Measure tokens a second and peak memory at several widths, until one does not fit."""
    import torch
    from transformers import AutoModelForCausalLM

    from train.sampling.batcher import Job
    from train.sampling.generation import TransformersEngine

    dtype = torch.bfloat16 if gpu else torch.float32
    source = model or str(folder / "init")
    loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    loaded = loaded.to("cuda" if gpu else "cpu").eval()
    engine = TransformersEngine(
        loaded, eos_ids=[-1], pad_id=0
    )  # no end token: every reply has its full length
    rows: list[dict[str, Any]] = []
    for width in WIDTHS:
        jobs = [
            Job(
                key=str(row),
                prompt_ids=tuple(5 + (row + at) % 40 for at in range(PROMPT)),
                max_tokens=REPLY,
                seed=row,
            )
            for row in range(width)
        ]
        try:
            if gpu:
                torch.cuda.reset_peak_memory_stats()
                engine.generate(jobs[:1])
                torch.cuda.synchronize()
            began = perf_counter()
            engine.generate(jobs)
            seconds = perf_counter() - began
        except torch.cuda.OutOfMemoryError:
            say(f"width {width}: does not fit")
            break
        row = {
            "width": width,
            "tokens_per_s": round(width * REPLY / seconds, 1),
            "seconds": round(seconds, 3),
        }
        if gpu:
            row["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        say("  ".join(f"{name} {value}" for name, value in row.items()))
        rows.append(row)
    return rows


def main() -> int:
    """Run the checks; gives the exit status."""
    flags = argparse.ArgumentParser(description="Whether training works on this machine's GPU.")
    flags.add_argument("--model", help="a folder or a hub id; a small model is made by default")
    flags.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    flags.add_argument("--require", action="store_true", help="status 1 where there is no GPU")
    args = flags.parse_args()
    import torch

    gpu = args.device == "cuda"
    if gpu and not torch.cuda.is_available():
        print(json.dumps({"gpu": None, "torch": torch.__version__, "checked": False}))
        say(
            "no GPU: torch sees no CUDA device here, so nothing was checked "
            "(--device cpu checks the script itself)"
        )
        return int(args.require)
    from train.run.validation import hush

    hush()
    name = torch.cuda.get_device_name() if gpu else "cpu"
    bf16 = gpu and torch.cuda.is_bf16_supported()
    say(f"{name}, torch {torch.__version__}, bf16 {'yes' if bf16 else 'no'}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        update = four_updates(folder, model=args.model, gpu=gpu)
        table = width_table(folder, model=args.model, gpu=gpu)
    problems = []
    if gpu and not bf16:
        problems.append("the GPU has no bf16")
    if update["updates"] != 4:
        problems.append(
            f"a run that was stopped made {update['updates']} updates in the end, not 4"
        )
    if not update["grad_norm"]:
        problems.append("the update had no gradient")
    if update["adapters"] != ["answerer", "manager"]:
        problems.append(f"adapters of both roles were to be saved; there are {update['adapters']}")
    found = {
        "gpu": name if gpu else None,
        "bf16": bf16,
        "torch": torch.__version__,
        "update": update,
        "widths": table,
    }
    print(json.dumps({**found, "checked": True, "problems": problems}, indent=1))
    for problem in problems:
        say(f"failed: {problem}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
