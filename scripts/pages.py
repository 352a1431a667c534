"""Count the pages and words of the documentation, and write generated parts of a page.

    python scripts/pages.py            # pages and words, and the ten longest pages
    python scripts/pages.py --check    # fails above a ceiling of budgets.toml

A word holds a letter or a digit. Pages and parts that a program writes are not counted: the
references of REST, the settings and the command line, and what stands between two marks
`<!-- NAME -->` and `<!-- /NAME -->`, or `<!-- NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
GENERATED = ("rest.md", "settings.md", "command-line.md")
_PART = re.compile(r"^<!-- ([\w -]+) -->\n.*?^<!-- (?:/\1|end) -->$", re.MULTILINE | re.DOTALL)


def words_of(text: str) -> int:
    """Return how many words of a page are written by hand."""
    return sum(re.search(r"\w", word) is not None for word in _PART.sub("", text).split())


def count_words() -> dict[str, int]:
    """Return the words of each page by its path in `docs/`; 0 for a generated page."""
    return {
        name: 0 if name in GENERATED else words_of(page.read_text(encoding="utf-8"))
        for page in sorted(DOCS.rglob("*.md"))
        for name in [page.relative_to(DOCS).as_posix()]
    }


def write_part(page: Path, name: str, text: str) -> None:
    """Replace what stands between a page's marks `<!-- name -->` and `<!-- /name -->`."""
    marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    old = page.read_text(encoding="utf-8")
    if len(marks.findall(old)) != 1:
        raise SystemExit(f"{page} needs <!-- {name} --> and <!-- /{name} --> once")
    new = marks.sub(lambda match: f"{match[1]}{text.strip()}\n{match[2]}", old)
    page.write_text(new, encoding="utf-8")


def main() -> int:
    """Print the counts; return 1 when --check finds one above its ceiling."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail above a ceiling")
    check = parser.parse_args().check
    ceilings = tomllib.loads((ROOT / "budgets.toml").read_text(encoding="utf-8"))["docs"]
    words = count_words()
    counts = {"pages": len(words), "words": sum(words.values())}
    for name, count in counts.items():
        print(f"{name} of the documentation: {count:,} of at most {ceilings[name]:,}")
    if not check:
        longest = sorted(words, key=lambda page: -words[page])[:10]
        print(*(f"{words[page]:>8,} {page}" for page in longest), sep="\n")
    return int(check and any(counts[name] > ceilings[name] for name in counts))


if __name__ == "__main__":
    sys.exit(main())
