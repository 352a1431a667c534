"""Whole training runs, for one process or as one rank of several: run as a script it reads
the settings of each run from a file and prints what became of them as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any


def main(plan: Path, rank: int) -> None:
    """Run each entry of the plan: {name: {"settings": ..., "stop_at": step or null}}."""
    from train.run.runs import train_run
    from train.run.settings import checked_run

    outcomes: dict[str, Any] = {}
    for name, entry in json.loads(plan.read_text(encoding="utf-8")).items():
        settings = checked_run(entry["settings"])
        if entry.get("stop_at") is not None:
            with _Stopped(entry["stop_at"]):
                train_run(settings, say=lambda _: None)
        summary = train_run(settings, resume=entry.get("stop_at") is not None, say=lambda _: None)
        outcomes[name] = {
            "stages": summary["stages"],
            "test": summary["test"],
            "weights": _digests(Path(settings.folder)),
        }
    print("@outcomes " + json.dumps({"rank": rank, "outcomes": outcomes}), flush=True)


class _Stopped:
    """A run inside ends like one that Ctrl-C stops, at an optimizer step, on every rank."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __enter__(self) -> None:
        from train.run.validation import Validation

        self.before, stop = Validation.on_step_end, self.step

        def stopping(validation: Any, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.global_step == stop:
                raise KeyboardInterrupt
            self.before(validation, args, state, control, **rest)

        Validation.on_step_end = stopping  # type: ignore[method-assign]

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        from train.run.validation import Validation

        Validation.on_step_end = self.before  # type: ignore[method-assign]
        assert kind is KeyboardInterrupt, kind
        return True


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("stage*/last/**/*.safetensors"))
    }


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[3]
    sys.path[:0] = [str(root), str(root / "tests/kits"), str(root / "tests/kits/learning")]
    main(Path(sys.argv[1]), int(sys.argv[2]))
