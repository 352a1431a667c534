"""The page `/docs`: the OpenAPI document as plain HTML, without scripts or foreign files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader

STYLE: Final = (files("memagent.service.routes") / "templates" / "api.css").read_text("utf-8")


def api_page(document: Mapping[str, Any]) -> str:
    """Return the document as one HTML page, its operations grouped by their tags."""
    tags: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            tags.setdefault(tag, []).append((path, method, operation))
    schemas = document["components"]["schemas"]
    template = _environment().get_template("api.html")
    return template.render(info=document["info"], tags=tags, schemas=schemas)


@cache
def _environment() -> Environment:
    return Environment(loader=PackageLoader("memagent.service.routes"), autoescape=True)
