"""Time every compiled pattern of the package on long texts made to be slow.

Each pattern is applied to texts of one repeated piece, pieces being single characters,
words, and fragments of the pattern itself. It is applied as the package applies it: by
the methods that its module calls (`search` where that cannot be seen), and to texts no
longer than what can reach it. Prints the slowest as JSON lines, and exits with 1 if one
takes longer than the limit.

    python scripts/pattern_times.py --chars 100000 --limit-ms 20
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import pkgutil
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import memagent
from memagent.core.answers import MAX_QUESTION_CHARS, MAX_RULED_CHARS
from memagent.embed import static
from memagent.memory.options import MAX_TEXT_CHARS
from memagent.timex.resolve import MAX_PHRASE_CHARS

PIECES = (
    *(" ", "\n", "\t", "a", "A", "1", ".", "-", "'", '"', "(", "[", "{", "<", "`", "é", "_"),
    *(
        "a ",
        "A ",
        "Aa ",
        "1 ",
        "a.",
        "1.",
        "a-",
        "a'",
        "\\",
        '\\"',
        '"a',
        "a,",
        "[a",
        "[[",
        "((",
        "x ",
    ),
    *("the ", "of the ", "in 2020 ", "2020-01-", "last ", "I'm ", "and ", "not ", "Aa Bb ", "a\n"),
    *("```", "<think>", "</think>", '{"a":', "[1,", "1st ", "may ", "A.B.", "week ", "'s "),
)


METHODS = ("match", "fullmatch", "search", "finditer", "findall", "split", "sub")
LONGEST = {
    "memagent.memory.question": MAX_RULED_CHARS,
    "memagent.graphs.chat": MAX_QUESTION_CHARS,
    "memagent.timex.resolve._WORTH_ASKING": MAX_PHRASE_CHARS,
    "memagent.designs.parts.rules": MAX_TEXT_CHARS,
    "memagent.memory.judging": MAX_TEXT_CHARS,
    "memagent.designs.parts.rules.statements": 1_000,
    "memagent.state.backing": MAX_TEXT_CHARS,
    "memagent.language.vocabulary": MAX_TEXT_CHARS,
    "memagent.pages.journal_words": MAX_TEXT_CHARS,
    "memagent.memory.graph_export": MAX_TEXT_CHARS,
    "memagent.search.cuts._FIXED": MAX_TEXT_CHARS,
    "memagent.embed.static": static.MAX_CHARS,
    "memagent.timex.phrases._INNER": 100,
    "memagent.timex.vocabulary": 100,
    "memagent.llm.litellm_errors._NO_MODEL": 10_000,
    "memagent.tracing.masking._LOCAL_PART": 64,
}
"""The longest text that reaches the patterns of a package, where that is below 100,000:
a question, a time phrase, a memory, the words around a time.
"""


def longest_text(place: str) -> int:
    """Return the most characters that reach a pattern."""
    return min((most for name, most in LONGEST.items() if place.startswith(name)), default=10**9)


class _TooLong(Exception):
    pass


def _ours(value: object) -> bool:
    return isinstance(value, type) and value.__module__.startswith("memagent")


@cache
def methods_of(module: str, name: str) -> tuple[str, ...]:
    """Return the methods that are called on a pattern by its name; `search` if none is."""
    tree = ast.parse(Path(importlib.import_module(module).__file__ or "").read_text())
    calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
    used = {
        call.attr
        for call in calls
        if isinstance(call, ast.Attribute)
        and getattr(call.value, "id", getattr(call.value, "attr", "")) == name
    }
    found = tuple(method for method in METHODS if method in used)
    return found if found and name.startswith("_") else tuple({"search": 1} | dict.fromkeys(found))


def patterns() -> Iterator[tuple[str, str, re.Pattern[str]]]:
    """Yield (module, name, pattern) of all that a module or a class keeps, each once."""
    seen: set[int] = set()
    for info in pkgutil.walk_packages(memagent.__path__, "memagent."):
        try:
            module = importlib.import_module(info.name)
        except Exception as exc:  # an optional part that is not installed
            print(json.dumps({"skipped": info.name, "why": type(exc).__name__}))
            continue
        spaces = [vars(module), *(vars(v) for v in vars(module).values() if _ours(v))]
        for space in spaces:
            for name, value in list(space.items()):
                values = value if isinstance(value, list | tuple) else [value]
                values = list(value.values()) if isinstance(value, dict) else values
                for one in values:
                    for pattern in one if isinstance(one, tuple) else (one,):
                        text = isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str)
                        if text and id(pattern) not in seen:
                            seen.add(id(pattern))
                            yield info.name, name, pattern


def apply(pattern: re.Pattern[str], methods: tuple[str, ...], text: str) -> None:
    """Apply a pattern to a whole text by each of the methods."""
    for method in methods:
        if method in ("match", "fullmatch", "search"):
            getattr(pattern, method)(text)
        else:
            deque(pattern.finditer(text), maxlen=0)


def longest_ms(
    pattern: re.Pattern[str], methods: tuple[str, ...], chars: int, cap_s: float
) -> tuple[float, str]:
    """Return the slowest time of the pattern in milliseconds, and the piece of that text."""
    words = re.findall(r"[A-Za-z]{2,12}", pattern.pattern)[:12]
    worst, slowest = 0.0, ""
    for piece in (*PIECES, *(f"{word} " for word in words)):
        text = (piece * (chars // len(piece) + 1))[:chars] + "\x00"
        signal.setitimer(signal.ITIMER_REAL, cap_s)
        began = time.thread_time()
        try:
            apply(pattern, methods, text)
        except _TooLong:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        took = (time.thread_time() - began) * 1000
        if took > worst:
            worst, slowest = took, piece
    return worst, slowest


def main() -> int:
    """Time all patterns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chars", type=int, default=100_000)
    parser.add_argument("--limit-ms", type=float, default=20.0)
    parser.add_argument("--cap-s", type=float, default=1.0)
    options = parser.parse_args()

    def stop(*_: object) -> None:
        raise _TooLong

    signal.signal(signal.SIGALRM, stop)
    times: list[tuple[float, str, str, str]] = []
    for module, name, pattern in patterns():
        methods = methods_of(module, name)
        chars = min(options.chars, longest_text(f"{module}.{name}"))
        took, piece = longest_ms(pattern, methods, chars, options.cap_s)
        for _ in range(2):
            if took > options.limit_ms:  # what disturbed one time seldom disturbs three
                took, piece = min((took, piece), longest_ms(pattern, methods, chars, options.cap_s))
        times.append((took, piece, f"{module}.{name} {methods}", pattern.pattern[:80]))
    slow = sorted((row for row in times if row[0] > options.limit_ms), reverse=True)
    for took, piece, place, text in slow:
        print(json.dumps({"ms": round(took, 1), "piece": piece, "at": place, "pattern": text}))
    worst = max(times)
    print(json.dumps({"patterns": len(times), "slow": len(slow), "worst_ms": round(worst[0], 1)}))
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
