"""Time every compiled pattern of the package on long texts made to be slow.

Each pattern is searched for in texts of one repeated piece, pieces being single
characters, words, and fragments of the pattern itself. Prints the slowest as JSON lines,
and exits with 1 if one takes longer than the limit.

    python scripts/pattern_times.py --chars 100000 --limit-ms 20
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import re
import signal
import sys
import time
from collections.abc import Iterator

import memagent

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


class _TooLong(Exception):
    pass


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield (place, pattern) of every pattern kept by a module or a class, each once."""
    seen: set[int] = set()
    for info in pkgutil.walk_packages(memagent.__path__, "memagent."):
        try:
            module = importlib.import_module(info.name)
        except Exception as exc:  # an optional part that is not installed
            print(json.dumps({"skipped": info.name, "why": type(exc).__name__}))
            continue
        spaces = [vars(module), *(vars(v) for v in vars(module).values() if isinstance(v, type))]
        for space in spaces:
            for name, value in list(space.items()):
                values = value if isinstance(value, list | tuple) else [value]
                values = list(value.values()) if isinstance(value, dict) else values
                for one in values:
                    for pattern in one if isinstance(one, tuple) else (one,):
                        text = isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str)
                        if text and id(pattern) not in seen:
                            seen.add(id(pattern))
                            yield f"{info.name}.{name}", pattern


def longest_ms(pattern: re.Pattern[str], chars: int, cap_s: float) -> tuple[float, str]:
    """Return the slowest time of the pattern in milliseconds, and the piece of that text."""
    words = re.findall(r"[A-Za-z]{2,12}", pattern.pattern)[:12]
    worst, slowest = 0.0, ""
    for piece in (*PIECES, *(f"{word} " for word in words)):
        text = (piece * (chars // len(piece) + 1))[:chars] + "\x00"
        signal.setitimer(signal.ITIMER_REAL, cap_s)
        began = time.thread_time()
        try:
            pattern.search(text)
            pattern.fullmatch(text)
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
    times = [
        (*longest_ms(pattern, options.chars, options.cap_s), place, pattern.pattern[:80])
        for place, pattern in patterns()
    ]
    slow = sorted((row for row in times if row[0] > options.limit_ms), reverse=True)
    for took, piece, place, text in slow:
        print(json.dumps({"ms": round(took, 1), "piece": piece, "at": place, "pattern": text}))
    worst = max(times)
    print(json.dumps({"patterns": len(times), "slow": len(slow), "worst_ms": round(worst[0], 1)}))
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
