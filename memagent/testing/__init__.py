"""Fakes that say how they answer, and conformance kits for what others plug in.

`check_x` proves that an object keeps the promises of its protocol. The kits raise
`AssertionError` in plain words and need no test framework. Names are loaded on first
use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memagent.testing.kits import (
        check_design,
        check_embedder,
        check_reranker,
        check_vector_index,
    )
    from memagent.testing.models import FunctionModel, ScriptedModel, check_chat_model

__all__ = [
    "FunctionModel",
    "ScriptedModel",
    "check_chat_model",
    "check_design",
    "check_embedder",
    "check_reranker",
    "check_vector_index",
]

_HOMES = {
    "FunctionModel": "models",
    "ScriptedModel": "models",
    "check_chat_model": "models",
    "check_design": "kits",
    "check_embedder": "kits",
    "check_reranker": "kits",
    "check_vector_index": "kits",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
