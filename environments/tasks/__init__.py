"""Tasks: environments over generated worlds, each testing one ability of a memory."""

from __future__ import annotations
