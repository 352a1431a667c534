"""Write what the service shows of its API: `/openapi.json`, and the page `/docs`.

The page is the document as plain HTML, with a form that tries each call.

python scripts/api_page.py

The page loads its own style sheet and script and nothing else. Without scripts it shows
each call as a line for a shell. What holds for every route is said once: the errors, and
the parameters that name the memory.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from jinja2 import Environment

from memagent.service.app import create_app
from memagent.service.routes.memories import API_ADDRESS, API_PAGE

TEMPLATE: Final = Path(__file__).with_suffix(".html")
PROBLEM: Final = "application/problem+json"
COMMON: Final = ("user_id", "agent_id", "run_id", "Idempotency-Key")
"""Parameters that nearly every route has."""
_WORDS: Final = {
    "text": "Ana moved to Lisbon in March 2024",
    "texts": "Ana moved to Lisbon in March 2024",
    "content": "Where does Ana live?",
    "role": "user",
    "speaker": "Ana",
    "model": "memagent",
}
"""Examples of texts by the name of their field."""
_ASKED: Final = "Where does Ana live?"
_ASKING: Final[Mapping[str, Schema]] = {
    "Question": {"text": _ASKED},
    "ChatRequest": {"text": _ASKED},
    "SearchRequest": {"text": _ASKED},
    "ContextRequest": {"text": _ASKED},
    "ChatMessage": {"content": _ASKED},
    "AnthropicMessage": {"content": _ASKED},
    "SourceFilter": {"speakers": ["Ana"]},
}
"""The field of a question, by the schema; it is shown where it is optional as well."""
_DEEPEST: Final = 6
Schema = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One route and method, ready to show."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[Schema, ...]
    """Its own parameters."""
    common: tuple[str, ...]
    """The names of those of `COMMON` that it takes."""
    body_type: str
    body_schema: str
    example: str
    """A body to begin with; "" for none."""
    responses: tuple[tuple[str, str, str], ...]
    """(status, description, schema) of what is no problem."""
    curl: str


def api_page(document: Schema) -> str:
    """Return the document as one HTML page, its operations grouped by their tags."""
    tags: dict[str, list[Operation]] = {}
    problems: dict[str, str] = {}
    common: dict[str, Schema] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            tags.setdefault(tag, []).append(_operation(document, method, path))
            for status, response in operation["responses"].items():
                if PROBLEM in response.get("content", {}):
                    problems[status] = response["description"]
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in COMMON:
                    common[parameter["name"]] = parameter
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(TEMPLATE.read_text("utf-8")).render(
        info=document["info"],
        tags=tags,
        problems=sorted(problems.items()),
        common=list(common.values()),
        schemas=document["components"]["schemas"],
    )
    return page + "\n"


def _operation(document: Schema, method: str, path: str) -> Operation:
    entry = document["paths"][path][method]
    parameters: list[Schema] = entry.get("parameters", [])
    bodies: dict[str, Schema] = entry.get("requestBody", {}).get("content", {})
    body_type = next(iter(bodies), "")
    schema: Schema = bodies.get(body_type, {}).get("schema", {})
    example = ""
    if body_type == "application/json":
        example = json.dumps(example_of(schema, document["components"]["schemas"]), indent=2)
    own = [each for each in parameters if each["name"] not in COMMON]
    return Operation(
        method=method,
        path=path,
        summary=entry.get("summary", ""),
        description=entry.get("description", ""),
        parameters=tuple(own),
        common=tuple(each["name"] for each in parameters if each["name"] in COMMON),
        body_type=body_type,
        body_schema=_name(schema),
        example=example,
        responses=tuple(_good_responses(entry["responses"])),
        curl=_curl(method, API_ADDRESS + path, body_type, example),
    )


def _good_responses(responses: Schema) -> Iterator[tuple[str, str, str]]:
    """Yield (status, description, schema) of the responses that are no problem."""
    for status, response in sorted(responses.items()):
        content: dict[str, Schema] = response.get("content", {})
        if PROBLEM not in content:
            schemas = [body.get("schema", {}) for body in content.values()]
            yield status, response["description"], _name(schemas[0]) if schemas else ""


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _curl(method: str, address: str, body_type: str, example: str) -> str:
    """Return the call as a line for a shell."""
    parts = ["curl"] + (["-X", method.upper()] if method != "get" else [])
    parts.append(shlex.quote(address))
    if example:
        short = json.dumps(json.loads(example))
        parts += ["-H", shlex.quote(f"Content-Type: {body_type}"), "-d", shlex.quote(short)]
    return " ".join(parts)


def example_of(schema: Schema, schemas: Schema, name: str = "", depth: int = 0) -> Any:
    """Return a small value that fits a schema: the required fields, and texts that speak."""
    reference = _name(schema)
    if reference:
        value = example_of(schemas[reference], schemas, name, depth + 1)
        return value | _ASKING.get(reference, {})
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return example_of(schema[key][0], schemas, name, depth + 1)
    if "const" in schema or "enum" in schema:
        values = schema.get("enum") or [schema.get("const")]
        return _WORDS[name] if _WORDS.get(name) in values else values[0]
    match schema.get("type"):
        case "object":
            fields = cast("Mapping[str, Schema]", schema.get("properties", {}))
            required: list[str] = schema.get("required", []) if depth < _DEEPEST else []
            return {
                field: example_of(fields[field], schemas, field, depth + 1) for field in required
            }
        case "array":
            return [example_of(schema.get("items", {}), schemas, name, depth + 1)]
        case "integer" | "number":
            return max(schema.get("minimum", 1), 1)
        case "boolean":
            return False
        case "string":
            return _WORDS.get(name, "string")
        case _:
            return None


def main() -> None:
    """Write the document and the page."""
    document = create_app().openapi()
    API_PAGE.with_name("openapi.json").write_text(json.dumps(document), encoding="utf-8")
    API_PAGE.write_text(api_page(document), encoding="utf-8")


if __name__ == "__main__":
    main()
