"""Commands whose options are the fields of records.

Typer reads one parameter per option. A command with many options takes a frozen
dataclass instead: each field, annotated with `typer.Option` or `typer.Argument`, is one
option of the command, and a field whose type is a dataclass again adds that one's fields.

    @dataclass(frozen=True, kw_only=True)
    class Paging:
        limit: Annotated[int, typer.Option(help="At most this many.")] = 20

    def show(name: str, paging: Paging) -> None: ...

    app.command()(spread_options(show))  # show NAME --limit 20
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeGuard, TypeVar

T = TypeVar("T")


def spread_options(command: Callable[..., T]) -> Callable[..., T]:
    """Return a function for Typer that takes every field of the command's records by keyword.

    The records' module must be able to evaluate the annotations of their fields.
    """

    def run(**values: Any) -> T:
        return call_with_options(command, values)

    return with_signature(run, command, list(option_parameters(command)))


def with_signature(
    run: Callable[..., T], command: Callable[..., object], parameters: list[inspect.Parameter]
) -> Callable[..., T]:
    """Give `run` the command's name and help and the parameters that Typer shall read."""
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return run


def option_parameters(command: Callable[..., object]) -> Iterator[inspect.Parameter]:
    """Yield one keyword parameter per option, with records replaced by their fields."""
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if _is_record(parameter.annotation):
            yield from option_parameters(parameter.annotation)
        else:
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def call_with_options(command: Callable[..., T], values: Mapping[str, Any]) -> T:
    """Build the command's records from the values of their fields and call it."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    return command(
        **{
            parameter.name: call_with_options(parameter.annotation, values)
            if _is_record(parameter.annotation)
            else values[parameter.name]
            for parameter in parameters
        }
    )


def _is_record(annotation: object) -> TypeGuard[type[Any]]:
    return isinstance(annotation, type) and is_dataclass(annotation)
