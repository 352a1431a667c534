"""Commands for typer made of a dataclass: its fields become the options of the command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

R = TypeVar("R")


def command(record: type[R], body: Callable[[R], None]) -> Callable[..., None]:
    """Return a function for typer whose parameters are the fields of `record`.

    It makes the record and calls `body`, whose docstring is its help. A field's
    annotation holds its `typer.Option`. A field without a `default` is required; so is
    one that has only a `default_factory`.
    """
    hints = get_type_hints(record, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(record)  # pyright: ignore[reportArgumentType]
    ]

    def run(**values: Any) -> None:
        body(record(**values))

    run.__name__, run.__doc__ = body.__name__, body.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return run
