"""Replies as a weak model might give them."""

from __future__ import annotations

import json
import random
from typing import Any

from environments.demonstrations.prompts import compact_json, entries_of


def spoil(rng: random.Random, reply: str) -> str:
    """Spoil a right reply: cut it off, drop an entry, double one, or add everything.

    The result is never the reply itself.
    """
    has_entries = entries_of(json.loads(reply))
    kinds = ["cut", "missing", "twice", "added"] if has_entries else ["cut"]
    rng.shuffle(kinds)
    return next(text for kind in kinds if (text := _spoil_as(kind, rng, reply)) != reply)


def _spoil_as(kind: str, rng: random.Random, reply: str) -> str:
    value: dict[str, Any] = json.loads(reply)
    entries = entries_of(value)
    if kind == "cut":
        return reply[: rng.randrange(1, len(reply))]
    if kind == "missing":
        del entries[rng.randrange(len(entries))]
    elif kind == "twice":
        entries.append(rng.choice(entries))
    elif "ops" in value:
        value["ops"] = [
            {name: entry[name] for name in entry if name in ("op", "fact")} | {"op": "ADD"}
            for entry in entries
        ]
    return compact_json(value)
