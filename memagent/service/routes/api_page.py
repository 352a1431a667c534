"""The page `/docs`: every operation of the OpenAPI document as plain HTML, without a
script and without anything from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

STYLE: Final = """\
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1a1a1a;background:#fff}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{overflow:auto;background:#f4f4f4;padding:.6rem}
h2{margin-top:2.5rem;text-transform:capitalize}summary{cursor:pointer;padding:.35rem 0}b{display:inline-block;min-width:4.5rem}
table{border-collapse:collapse;width:100%}td{border-top:1px solid #ddd;padding:.3rem .6rem .3rem 0;vertical-align:top}
@media (prefers-color-scheme:dark){body{color:#e8e8e8;background:#181818}pre{background:#252525}td{border-color:#444}a{color:#8ab4f8}}
"""


def api_page(document: Mapping[str, Any]) -> str:
    """The document as one HTML page."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append("".join(_operation(path, method, operation)))
    sections = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in by_tag.items())
    schemas = "".join(
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<pre>{escape(json.dumps(schema, indent=1))}</pre></details>"
        for name, schema in document["components"]["schemas"].items()
    )
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/docs/style.css"></head>'
        f'<body><h1>{title}</h1><p>{escape(info.get("description", ""))}</p><p><a href="/openapi.json">openapi.json</a></p>'
        f"{sections}<h2>Schemas</h2>{schemas}</body></html>"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details><summary><b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation.get('summary', ''))}</summary>"
    yield f"<p>{escape(operation.get('description', ''))}</p><table>"
    for one in operation.get("parameters", ()):
        need = "required" if one.get("required") else ""
        yield _row(f"{one['in']} {one['name']}", f"{need} {one.get('description', '')}")
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield _row(f"body {kind}", _named(content.get("schema", {})))
    for status, response in operation.get("responses", {}).items():
        names = {
            _named(content.get("schema", {})) for content in response.get("content", {}).values()
        }
        yield _row(status, f"{response.get('description', '')} {' '.join(sorted(names - {''}))}")
    yield "</table></details>"


def _row(name: str, words: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td><td>{escape(words.strip())}</td></tr>"


def _named(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
