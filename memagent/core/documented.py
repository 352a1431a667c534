"""Models whose fields are documented below them, at no cost before anybody asks.

The docstring below a field is its description in JSON Schema. Pydantic can read these
docstrings too, but it parses the source of each class when the class is made, which
took as long as all the rest of an import. Here a schema reads them when it is asked
for. Validators are built at first use as well: a command uses a few models of many.

The surprise: models are made with `defer_build` and do not keep it in their settings.
There it would reach every `TypeAdapter` over a model too, and FastAPI, which builds
its adapters with a warning turned off, would see that warning at the first request.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class _Deferring(type(BaseModel)):
    """Makes model classes whose validators are built at first use."""

    def __new__(cls, *args: Any, **kwargs: Any) -> type:
        made: Any = super().__new__(cls, *args, defer_build=True, **kwargs)
        made.model_config.pop("defer_build")
        return made


class Documented(BaseModel, metaclass=_Deferring):
    """Base of models with documented fields; validators are built at first use."""

    @classmethod
    def trusted(cls, values: dict[str, Any]) -> Self:
        """Make a model of values for all its fields that need no check; it keeps the dict.

        For what our own code made a moment ago: a tenth of the time that checks take.
        Raises `TypeError` when there are more or fewer values than fields.
        """
        if len(values) != len(cls.__pydantic_fields__):
            raise TypeError(f"{cls.__name__} has other fields than {sorted(values)}")
        made = cls.__new__(cls)
        assign = object.__setattr__
        assign(made, "__dict__", values)
        assign(made, "__pydantic_fields_set__", set(values))
        assign(made, "__pydantic_extra__", None)
        assign(made, "__pydantic_private__", None)
        return made

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """Return the JSON Schema, with the docstrings of fields as descriptions."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        model: type[BaseModel] = cls
        for name, description in field_docstrings(model).items():  # pyright: ignore[reportArgumentType] - cached
            field = cls.model_fields.get(name)
            key = name if field is None else field.serialization_alias or field.alias or name
            if key in properties and (field is None or field.description is None):
                properties[key].setdefault("description", description)
        return schema


@cache
def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a model's fields by name, inherited ones included.

    A field that a subclass declares again has no docstring but its new one.
    """
    found: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if parent is not BaseModel and issubclass(parent, BaseModel):
            for name in vars(parent).get("__annotations__", {}):
                found.pop(name, None)
            found.update(_own_docstrings(parent))
    return found


def _own_docstrings(model: type[BaseModel]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(model))
        (definition,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError):  # made where no source file is
        return {}
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
