r"""Tables and curves of docs/research/results.md from the summaries of the experiments.

    python examples/experiments/credit.py --out runs/credit \
        --summary docs/research/results/credit.json
    python scripts/results_page.py

Each `docs/research/results/NAME.json` fills what stands between `<!-- results NAME -->` and
`<!-- /results NAME -->` and draws `docs/research/results/NAME.svg`: validation F1 over generated
tokens, mean of the seeds with the range of their middle 95 %.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from memagent.pages.charts import Axes, Curve, line_chart
from train.run.plans import bootstrap

RESULTS = Path("docs/research/results")
PAGE = Path("docs/research/results.md")
COLUMNS = {
    "f1": "F1",
    "overwritten": "overwritten right",
    "memory_share": "notes / dialogue",
    "lost": "M-Fail",
    "add": "ADD",
    "update": "UPDATE",
    "delete": "DELETE",
    "noop": "NOOP",
}
COLOURS = ("#3366cc", "#c2410c", "#15803d", "#7e22ce", "#64748b", "#b45309")
STYLE = (
    "text{font:10px system-ui,sans-serif;fill:#444}.axis,.grid,line{stroke:#bbb;stroke-width:.5}"
    "polyline{fill:none;stroke-width:1.6}"
)


def tables(summary: Mapping[str, Any]) -> str:
    """Format one table per test length: means over seeds, with 95 % bootstrap intervals.

    Intervals stand where there is room for them.
    """
    parts: list[str] = []
    for length, arms in sorted(summary["test"].items(), key=lambda one: int(one[0])):
        parts.append(f"Test at {length} sessions:\n")
        names = [name for name in COLUMNS if any(name in entry for entry in arms.values())]
        rows = [["arm", "seeds", *(COLUMNS[name] for name in names), "F1 over base, paired"]]
        rows.append(["---"] * len(rows[0]))
        rows += [_row(arm, entry, names) for arm, entry in arms.items()]
        parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n")
    return "\n".join(parts)


def _row(arm: str, entry: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    cells = [f"`{arm}`", str(len(entry["seeds"]))]
    for name in names:
        value = entry.get(name)
        if value is None:
            cells.append("-")
        elif name in ("f1", "overwritten"):
            cells.append(
                f"{value['mean']:.3f} [{value['interval'][0]:.3f}, {value['interval'][1]:.3f}]"
            )
        else:
            cells.append(f"{value['mean']:.2f}")
    over = entry.get("over_base")
    cells.append(
        f"{over['mean']:+.3f} [{over['interval'][0]:+.3f}, {over['interval'][1]:+.3f}]"
        if over
        else ""
    )
    return cells


def curves(summary: Mapping[str, Any]) -> str:
    """Draw validation F1 of every arm over tokens as an SVG file without a style sheet."""
    lines: list[Curve] = []
    for place, (arm, by_seed) in enumerate(summary["curves"].items()):
        runs = [points for points in by_seed.values() if points]
        last = min(points[-1][0] for points in runs)
        marks = [last * step / 20 for step in range(21)]
        at = [[_held(points, mark) for points in runs] for mark in marks]
        bands = (
            [(mark, *bootstrap(values)) for mark, values in zip(marks, at, strict=True)]
            if len(runs) > 1
            else ()
        )
        means = [(mark, fmean(values)) for mark, values in zip(marks, at, strict=True)]
        lines.append(Curve(name=arm, points=means, bands=bands, tone=place))
    picture = line_chart("Validation F1 over generated tokens", lines, Axes(across="tokens")).svg
    rules = STYLE + "".join(
        f".tone{place}{{stroke:{colour};fill:none}}.band.tone{place}{{fill:{colour};fill-opacity:.12;stroke:none}}"
        for place, colour in enumerate(COLOURS)
    )
    names = "".join(
        f'<text x="{52 + 100 * (place % 3)}" y="{234 + 13 * (place // 3)}" '
        f'style="fill:{COLOURS[place % len(COLOURS)]}">{line.name}</text>'
        for place, line in enumerate(lines)
    )
    picture = re.sub(
        r"<svg[^>]*>",
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 255" width="720" height="510">'
        f'<style>{rules}</style><rect width="360" height="255" fill="#fff"/>',
        picture,
        count=1,
    )
    return picture.replace("</svg>", f"{names}</svg>")


def _held(points: Sequence[Sequence[float]], mark: float) -> float:
    """Interpolate the value at a number of tokens between the points around it."""
    for (x0, y0, *_), (x1, y1, *_) in pairwise(points):
        if x0 <= mark <= x1:
            return y0 if x1 == x0 else y0 + (y1 - y0) * (mark - x0) / (x1 - x0)
    return points[-1][1]


def main() -> int:
    """Renew the page and its pictures."""
    page = PAGE.read_text(encoding="utf-8")
    for path in sorted(RESULTS.glob("*.json")):
        summary, name = json.loads(path.read_text(encoding="utf-8")), path.stem
        if "test" not in summary:
            continue
        marks = re.compile(rf"(<!-- results {name} -->\n).*?(<!-- /results {name} -->)", re.DOTALL)
        if len(marks.findall(page)) != 1:
            print(
                f"{PAGE} needs <!-- results {name} --> and <!-- /results {name} --> once",
                file=sys.stderr,
            )
            return 1
        picture = path.with_suffix(".svg")
        picture.write_text(curves(summary), encoding="utf-8")
        shown = (
            f"{tables(summary)}\n![Validation F1 over generated tokens](results/{picture.name})\n"
        )
        page = marks.sub(lambda found, shown=shown: f"{found[1]}{shown}{found[2]}", page)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
