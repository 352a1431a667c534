"""Run blocks of pages in this process; `doc_pages` starts it and says how.

The blocks come as JSON on standard input, the outputs go as one line of JSON to standard
output.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import time
import traceback

PROMPT = "$ "


def python(code: str, line: int, names: dict[str, object]) -> str:
    """Run a python block with the names of those before it and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        # Newlines keep the line numbers of the page in a traceback.
        exec(compile("\n" * (line - 1) + code, "page", "exec"), names)
    return printed.getvalue()


def console(code: str) -> str:
    """Run the commands of a console block and return the block with what they print now."""
    from command_line_kit import run

    parts: list[str] = []
    for command in re.findall(r"^\$ .*", code, re.MULTILINE):
        said, _, last = command.removeprefix(PROMPT).rpartition(" | ")
        says = shlex.split(said)[1].encode().decode("unicode_escape") + "\n" if said else None
        result = run(*shlex.split(last)[1:], says=says)
        if result.exit_code not in (0, 1):
            raise RuntimeError(f"{command}\n{result.output}")
        lines = (text.rstrip() for text in result.output.splitlines())
        parts.append("".join(f"{text}\n" for text in (command, *lines)))
    return "\n".join(parts)


def page(folder: str, blocks: list[tuple[str, str, int]]) -> tuple[list[str], list[float], str]:
    """Run the blocks of a page in its folder.

    Returns their outputs, their seconds, and the fault, if any.
    """
    os.chdir(folder)
    os.environ["XDG_DATA_HOME"] = f"{folder}/home"
    names: dict[str, object] = {"__name__": "__main__"}
    outputs: list[str] = []
    seconds: list[float] = []
    for language, code, line in blocks:
        began = time.perf_counter()
        try:
            outputs.append(python(code, line, names) if language == "python" else console(code))
        except Exception:
            return outputs, seconds, f"block of line {line}\n{traceback.format_exc()}"
        seconds.append(time.perf_counter() - began)
    return outputs, seconds, ""


def main() -> None:
    """Run the pages that standard input holds."""
    outcomes = [page(folder, blocks) for folder, blocks in json.load(sys.stdin)]
    sys.stdout.write("\n" + json.dumps(outcomes))


if __name__ == "__main__":
    main()
