"""A reader of the points of qdrant's local mode, as plain values.

That mode keeps each point as a pickle, and unpickling a file that someone else wrote
may run anything. This reader unpickles nothing: it goes through the opcodes as data and
builds dicts, lists, texts and numbers; what a stream names (a class, a function) stays
a name and is never imported or called. An opcode that plain points do not need is
refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, cast

_MARK = object()
_SKIPPED = frozenset({"PROTO", "FRAME"})
_VALUES = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT UNICODE BINUNICODE "
    "SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8".split()
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list,
}  # fmt: skip
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})


class _Object:
    """An object that a stream makes by a class or function: its name and its state."""

    def __init__(self, name: object) -> None:
        self.name = name
        self.state: dict[str, Any] = {}


def read_point(blob: bytes) -> dict[str, Any]:
    """Return the fields of a point (`id`, `vector`, `payload`).

    Raises `ValueError` for a stream that is no point.
    """
    point = _read(blob)
    if not isinstance(point, _Object) or "PointStruct" not in str(point.name):
        raise ValueError("it holds no PointStruct")
    fields: object = point.state.get("__dict__", point.state)
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}


def _read(blob: bytes) -> object:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for opcode, argument, _ in pickletools.genops(blob):
            if opcode.name == "STOP":
                return stack.pop()
            _step(opcode.name, argument, stack, memo)
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeError) as exc:
        raise ValueError(f"its opcodes do not fit together: {type(exc).__name__}") from exc
    raise ValueError("it ends early")


def _step(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in _SKIPPED:
        return
    if name in _VALUES:
        stack.append(argument)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name]())
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in _PUTS:
        memo[int(argument)] = stack[-1]
    elif name in _GETS:
        stack.append(memo[int(argument)])
    elif name == "MARK":
        stack.append(_MARK)
    elif name == "GLOBAL":
        stack.append(_Object(argument))
    else:
        _combine(name, stack)


def _combine(name: str, stack: list[Any]) -> None:
    match name:
        case "SETITEM" | "SETITEMS":
            parts = _take(stack, 2 if name == "SETITEM" else None)
            stack[-1].update(zip(parts[::2], parts[1::2], strict=True))
        case "APPEND" | "APPENDS" | "ADDITEMS":
            parts = _take(stack, 1 if name == "APPEND" else None)
            stack[-1].extend(parts)
        case "TUPLE1" | "TUPLE2" | "TUPLE3" | "TUPLE" | "LIST":
            parts = _take(stack, int(name[-1]) if name[-1].isdigit() else None)
            stack.append(tuple(parts) if name != "LIST" else parts)
        case "DICT":
            parts = _take(stack, None)
            stack.append(dict(zip(parts[::2], parts[1::2], strict=True)))
        case "STACK_GLOBAL":
            stack.append(_Object(" ".join(map(str, _take(stack, 2)))))
        case "NEWOBJ" | "REDUCE":
            maker, _ = _take(stack, 2)
            stack.append(_Object(maker.name))
        case "BUILD":
            state = stack.pop()
            stack[-1].state = dict(state)
        case _:
            raise ValueError(f"it uses the opcode {name}, which no plain point needs")


def _take(stack: list[Any], count: int | None) -> list[Any]:
    """Take the topmost values off; without a count all down to the mark, and the mark."""
    marks = int(count is None)
    if count is None:
        depths = (depth for depth, value in enumerate(reversed(stack)) if value is _MARK)
        count = next(depths, len(stack))
    start = len(stack) - count
    if start < marks:
        raise IndexError
    values = stack[start:]
    del stack[start - marks :]
    return values
