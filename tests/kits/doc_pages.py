"""The code of a page: run it as a reader would, and compare what it prints.

Blocks of a page run from top to bottom in one folder: ```python blocks share their names, and ```console blocks hold `$ memagent ...` commands with their output below
each. The output of a python block is the ```text block that follows it. A block with a
title is written to the file of that name, and a python block marked `notest` does not run.

As a script it writes the outputs of pages anew: python tests/kits/doc_pages.py PAGE...
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmark_files import write_locomo
from docs_model import docs_model
from places import KITS_PATH, ROOT
from scripted_server import ScriptedServer

OLLAMA = "http://localhost:11434"
"""The address of a local model on the pages; the stand-in answers in its place."""
BLOCK = re.compile(
    r"^```(?P<language>python|console)(?P<mark>[^\n]*)\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
TITLED = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
VARYING = {
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}": "UUID",
    r"\b20(?:2[6-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+\+00:00": "NOW",
    r"\b(mem|ses|evt|th|thr|thread|job)_[0-9a-f]{8,}": r"\1_ID",
    r"\b\d+ (?:(?:November|December) 2026|[A-Z][a-z]+ 20(?:2[7-9]|[3-9]\d))": "TODAY",
    r"\b20(?:26-1[12]|2[7-9]-\d\d|[3-9]\d-\d\d)-\d\d(?: \d\d:\d\d)?": "TODAY",
    r"\d+\.\d+ (?:ms|s)\b|[\d.,]+ turns/s": "TIME",
    r"\bchat-[0-9a-f]{12}": "THREAD",
    r"process \d+": "process",
}
RUNNER = Path(__file__).with_name("doc_runner.py")


@dataclass(frozen=True)
class Block:
    """A block that runs; `output` is what the page says it prints, "" for nothing."""

    language: str
    code: str
    output: str
    line: int
    heading: str
    """The heading of its section."""


@dataclass(frozen=True)
class Outcome:
    """What the blocks of a page printed and how long they took, as far as they ran.

    `fault` is a traceback or "".
    """

    outputs: list[str]
    seconds: list[float]
    fault: str


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page that run, in order."""
    return [
        Block(
            language=match["language"],
            code=match["code"],
            output=match["code"] if match["language"] == "console" else match["output"] or "",
            line=page.count("\n", 0, match.start()) + 2,
            heading=HEADING.findall("\n## \n" + page[: match.start()])[-1],
        )
        for match in BLOCK.finditer(page)
        if not match["mark"].strip()
    ]


def played(pages: Mapping[str, str], folder: Path, *, model_url: str) -> dict[str, Outcome]:
    """Run the blocks of pages, by name, in one process; each page has a folder of its own."""
    jobs: list[object] = []
    for number, page in enumerate(pages.values()):
        place = folder / str(number)
        _write_files(page, place)
        code = [
            [block.language, block.code.replace(f"{OLLAMA}/v1", model_url), block.line]
            for block in blocks_of(page)
        ]
        jobs.append([str(place), code])
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MEMAGENT_")
    }
    environment |= {
        "PYTHONPATH": KITS_PATH,
        "OPENAI_API_KEY": "not-a-key",
        "OPENAI_BASE_URL": model_url,
        "COLUMNS": "80",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.rpartition("\n")[2])
    return {name: Outcome(*one) for name, one in zip(pages, told, strict=True)}


def _write_files(page: str, folder: Path) -> None:
    """Write what a page's code needs: its titled blocks, and the sample data."""
    for data in (ROOT / "examples" / "data").iterdir():
        for place in (folder, folder / "examples" / "data"):
            place.mkdir(parents=True, exist_ok=True)
            (place / data.name).write_bytes(data.read_bytes())
    write_locomo(folder / "locomo").rename(folder / "locomo10.json")
    for name, text in TITLED.findall(page):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def comparable(output: str) -> list[str]:
    """Return the words of an output without what differs from run to run, and the wrapping."""
    for pattern, name in VARYING.items():
        output = re.sub(pattern, name, output)
    return output.split()


def renewed(page: str, outcome: Outcome) -> str:
    """Return the page with what its blocks printed, where that differs in substance."""
    outputs = iter(outcome.outputs)

    def block(match: re.Match[str]) -> str:
        if match["mark"].strip():
            return match[0]
        output, shown = next(outputs), match["output"] or ""
        shown = match["code"] if match["language"] == "console" else shown
        if comparable(output) == comparable(shown):
            return match[0]
        if match["language"] == "console":
            return f"```console\n{output}```\n"
        fence = f"\n```text\n{output}```\n" if output else ""
        return f"```python\n{match['code']}```\n{fence}"

    return BLOCK.sub(block, page)


def main(names: list[str]) -> None:
    """Write the outputs of the named pages anew; a page whose code fails stays as it is."""
    pages = {name: Path(name).read_text(encoding="utf-8") for name in names}
    with ScriptedServer(docs_model) as server, tempfile.TemporaryDirectory() as folder:
        outcomes = played(pages, Path(folder).resolve(), model_url=server.url)
    for name, page in pages.items():
        if outcomes[name].fault:
            sys.stderr.write(f"{name}: {outcomes[name].fault}\n")
        else:
            Path(name).write_text(renewed(page, outcomes[name]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
