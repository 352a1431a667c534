"""Whole training runs, for one process or as one rank of several: run as a script it reads
the settings of each run from a file and prints what became of them as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any


def main(plan: Path, rank: int) -> None:
    """Run each entry of the plan: {name: {"settings": ..., "stop_at": step or null}}.

    `late_s` lets each rank begin so many seconds later. A rank beyond the first that
    claims the run's folder does so last, when it is taken.
    """
    from train.run import runs
    from train.run.runs import train_run
    from train.settings.run import checked_run

    if rank:
        runs.claim = _late(runs.claim)
    outcomes: dict[str, Any] = {}
    for name, entry in json.loads(plan.read_text(encoding="utf-8")).items():
        settings = checked_run(entry["settings"])
        sleep(entry.get("late_s", {}).get(str(rank), 0.0))
        if entry.get("stop_at") is not None:
            with _stopped(entry["stop_at"]):
                train_run(settings, say=lambda _: None)
        summary = train_run(settings, resume=entry.get("stop_at") is not None, say=lambda _: None)
        outcomes[name] = {
            "stages": summary["stages"],
            "test": summary["test"],
            "weights": _digests(Path(settings.folder)),
        }
    sys.stdout.write("@outcomes " + json.dumps({"rank": rank, "outcomes": outcomes}) + "\n")


def _late(claim: Any) -> Any:
    """Claim after the other rank has; one that is told of the folder never calls this."""

    def claim_late(*given: Any, **named: Any) -> None:
        sleep(1.0)
        claim(*given, **named)

    return claim_late


@contextmanager
def _stopped(step: int) -> Generator[None]:
    """End a run inside at an optimizer step, on every rank, as Ctrl-C would."""
    from train.run.validation import Validation

    before = Validation.on_step_end

    def stopping(validation: Any, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if state.global_step == step:
            raise KeyboardInterrupt
        before(validation, args, state, control, **rest)

    Validation.on_step_end = stopping  # type: ignore[method-assign]
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        Validation.on_step_end = before  # type: ignore[method-assign]
    raise AssertionError(f"the run ended before step {step}")


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("stage*/last/**/*.safetensors"))
    }


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[3]
    sys.path += [str(root), str(root / "tests/kits"), str(root / "tests/kits/learning")]
    from ranks_kit import fork_ranks

    sys.exit(fork_ranks(main, Path(sys.argv[1]), Path(sys.argv[2])))
