"""Write docs/rest.md from docs/openapi.json: every operation and every schema.

python scripts/rest_page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DOCUMENT = Path("docs/openapi.json")
PAGE = Path("docs/rest.md")


def rest_page(document: Mapping[str, Any]) -> str:
    """Return the page."""
    lines = [
        "# REST reference",
        "",
        f"Version {document['info']['version']}; made from [openapi.json](openapi.json).",
        "Keys, idempotency, errors and limits are told in [the service](service.md).",
        "",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += _operation(path, method, operation)
    lines += ["## Schemas", ""]
    for name, schema in document["components"]["schemas"].items():
        lines += _schema(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {method.upper()} `{path}`"
    yield ""
    yield _line(operation.get("description") or operation.get("summary") or "")
    yield ""
    rows = [
        (
            f"{one['in']} `{one['name']}`",
            _type(one.get("schema", {})),
            "required" if one.get("required") else "",
            one.get("description", ""),
        )
        for one in operation.get("parameters", ())
    ]
    rows += [
        ("body", _type(content.get("schema", {})), "required", kind)
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
    ]
    if rows:
        yield "| takes | type | | |"
        yield "| --- | --- | --- | --- |"
        for row in rows:
            yield f"| {' | '.join(_line(cell) for cell in row)} |"
        yield ""
    yield "| gives | type | |"
    yield "| --- | --- | --- |"
    for status, response in operation.get("responses", {}).items():
        kinds = " or ".join(
            f"{_type(content.get('schema', {}))} as {kind}"
            for kind, content in response.get("content", {}).items()
        )
        yield f"| {status} | {_line(kinds)} | {_line(response.get('description', ''))} |"
    yield ""


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if schema.get("description"):
        yield _line(schema["description"])
        yield ""
    fields = schema.get("properties", {})
    if fields:
        needed = set(schema.get("required", ()))
        yield "| field | type | | |"
        yield "| --- | --- | --- | --- |"
        for field, value in fields.items():
            required = "required" if field in needed else ""
            about = _line(value.get("description", ""))
            yield f"| `{field}` | {_type(value)} | {required} | {about} |"
        yield ""
    elif "enum" in schema:
        yield f"One of {', '.join(f'`{one}`' for one in schema['enum'])}."
        yield ""


def _type(schema: Mapping[str, Any]) -> str:
    """Describe a schema in a word or two."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[key]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def _line(text: str) -> str:
    """Text fit for a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Write the page."""
    PAGE.write_text(rest_page(json.loads(DOCUMENT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
