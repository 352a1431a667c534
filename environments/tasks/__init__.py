"""Tasks: environments over the same worlds as `synthetic`, each testing one ability of a
memory.
"""

from __future__ import annotations
