"""Write the reference of the settings, `docs/settings.md`, from the records of the settings.

python scripts/settings_page.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memagent.config import AgentSettings

PAGE = Path(__file__).resolve().parents[1] / "docs/settings.md"
_HEAD = """\
# Settings

`memagent.toml` in the current folder, or the file that `--config` names, holds the
settings; `memagent init` writes a commented one. Variables win over the file: a key `b`
of the table `[a]` is `MEMAGENT_A__B`, such as `MEMAGENT_MODEL__BASE_URL`. Options of a
command win over both. An unknown key is an error. In Python `load_settings(path)` of
`memagent.config` reads the same file and variables.

```toml
[model]
model = "openai/qwen3"
base_url = "http://127.0.0.1:8000/v1"   # any OpenAI-compatible server
max_usd = 1.0                           # a hard budget
redact = true                           # mask addresses and numbers before the model reads them
```

`base_url` was called `api_base`; files with that name are still read.
"""


def settings_page() -> str:
    """Return the page: the keys of each table, with type, default and meaning."""
    schema = AgentSettings.model_json_schema()
    known: dict[str, Any] = schema["$defs"]
    tables = _tables(schema, known)
    parts = [_HEAD, _section("Top level", "", schema, known)]
    for name, table in tables.items():
        about = " ".join(table.get("description", "").split())
        parts.append(_section(name, about, table, known))
    return "\n".join(parts)


def _tables(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables of a settings file by their headings."""
    tables: dict[str, dict[str, Any]] = {}
    for name, field in schema["properties"].items():
        for table in _records(field, known):
            kind = table["properties"].get("type", {}).get("const")
            place = f"[{name}.ROLE]" if "additionalProperties" in field else f"[{name}]"
            tables[f"`{place}`" + (f' with `type = "{kind}"`' if kind else "")] = table
    return tables


def _records(field: Any, known: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tables that a field may be."""
    if isinstance(field, list):
        return [table for part in field for table in _records(part, known)]
    if not isinstance(field, dict):
        return []
    if "$ref" in field:
        table = known[field["$ref"].rpartition("/")[2]]
        return [table] if "properties" in table else []
    inner = [field.get(name) for name in ("anyOf", "oneOf", "additionalProperties", "allOf")]
    return _records(inner, known)


def _section(title: str, about: str, table: dict[str, Any], known: dict[str, Any]) -> str:
    if title == "`[roles.ROLE]`":
        return f"## {title}\n\nThe keys of `[model]`, for one role.\n"
    required = table.get("required", ())
    rows = [
        f"| `{name}` | {_kind(field, known)} | {_default(field, required=name in required)} "
        f"| {_meaning(field)} |"
        for name, field in table["properties"].items()
        if name != "type"
    ]
    head = ["", "| key | value | default | meaning |", "| --- | --- | --- | --- |"] if rows else []
    return "\n".join([f"## {title}", *(["", about] if about else []), *head, *rows, ""])


def _kind(field: dict[str, Any], known: dict[str, Any]) -> str:
    if "$ref" in field:
        target = known[field["$ref"].rpartition("/")[2]]
        return "a table" if "properties" in target else _kind(target, known)
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    choices = field.get("anyOf") or field.get("oneOf") or ()
    kinds = [_kind(choice, known) for choice in choices if choice.get("type") != "null"]
    plain = {"object": "a table", "array": "a list", "boolean": "true, false"}
    kind = str(field.get("type", "any"))
    return " or ".join(dict.fromkeys(kinds)) if kinds else plain.get(kind, kind)


def _default(field: dict[str, Any], *, required: bool) -> str:
    value = field.get("default")
    if value is None or isinstance(value, dict):
        return "required" if required else ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _meaning(field: dict[str, Any]) -> str:
    return " ".join(field.get("description", "").split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
