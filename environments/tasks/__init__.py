"""Generators: environments over the same world as `synthetic`, each asking for one
thing that a memory must be able to do.
"""

from __future__ import annotations
