"""A policy for the worlds of `environments.gym_adapter`."""

from __future__ import annotations

import json
import re


def adding(shown: str) -> str:
    """Add every fact that a call shows."""
    part = shown.rpartition("<facts>")[2].partition("</facts>")[0]
    numbers = [int(number) for number in re.findall(r"(?m)^(\d+)\. ", part)]
    return json.dumps({"ops": [{"op": "ADD", "fact": number} for number in numbers]})
