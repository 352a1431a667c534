"""Output of measurements: a table for people, one line of JSON for machines, the promises."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def report(
    name: str,
    results: Mapping[str, Any],
    *,
    promises: Mapping[str, float | tuple[float, float]] | None = None,
) -> None:
    """Print the results.

    `promises` maps a result's name to its upper bound, or a label to (value, upper
    bound).
    """
    _rows(results, 0)
    kept: dict[str, bool] = {}
    for label, bound in (promises or {}).items():
        value, most = bound if isinstance(bound, tuple) else (float(results[label]), bound)
        kept[label] = value <= most
        sys.stdout.write(
            f"  promise: {label}: {value:g} of at most {most:g}: "
            f"{'kept' if kept[label] else 'MISSED'}\n"
        )
    sys.stdout.write(json.dumps({"benchmark": name, "results": results, "kept": kept}) + "\n")


def _rows(results: Mapping[str, Any], depth: int) -> None:
    for key, value in results.items():
        if isinstance(value, Mapping):
            sys.stdout.write(f"{'  ' * depth}{key}\n")
            _rows(value, depth + 1)
        else:
            sys.stdout.write(f"{'  ' * depth}{key:<42} {value}\n")
