"""Write the findings and the table of `docs/how-good.md`, and draw its charts.

    python scripts/good_page.py

No figure is written here: they come from the files of `docs/research/results` and from the
tables of the pages about measurements and about the reader.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from pages import write_part

ROOT = Path(__file__).resolve().parents[1]
RESEARCH = ROOT / "docs/research"
PAGE = ROOT / "docs/how-good.md"
ARMS = {
    "verbatim": "memagent without a model",
    "bm25_window": "BM25 over turns with neighbours",
    "bm25": "BM25",
    "dense": "vectors",
    "rag": "vectors over chunks (RAG)",
}
CONTRASTS = {
    "session - random_reward": "rewards over random ones",
    "session - start": "trained over its start",
    "session - terminal": "credit by session over one credit",
    "session_logo - session": "LoGo's reruns over none",
}
ARMS_OF_LESSONS = {
    "no memory": "no memory",
    "exp_rag": "every trial kept (ExpRAG)",
    "mem_rl": "cases by their value (MemRL)",
    "newest": "the newest trial alone, a rule",
    "untrained": "policy, untrained",
    "random_reward": "policy, random rewards",
    "terminal": "trained by the whole chain",
    "gain": "trained by gain",
    "local": "trained by the whole chain and reruns",
}
SETS_OF_LESSONS = {"tiny_shop": "shop", "hidden_rule": "lab", "tiny_house": "house"}
FINDINGS = """\
- **Search finds what was said.** On LoCoMo, without a model, {verbatim:.0%} of the evidence
  is among the ten best turns; plain BM25 finds {bm25:.0%}, vectors over chunks {rag:.0%}
  ([tables](research/measurements.md#every-arm-recall-by-category)).
- **It seldom claims what is wrong, and often says it is not sure.** On two LoCoMo
  conversations that nothing was fitted to, {supported:.0%} of the questions get a
  `supported` answer, and {supported_right:.0%} of these are right. It refuses only
  {unanswerable_refused:.0%} of the questions that have no answer; the others get the
  closest thing said, as "not sure", or a wrong answer
  ([answers](answers.md#how-sure-the-probability)).
- **The default knows some of the present.** Of hand-written statements that end an older
  one, its small trained reader makes {updates[1]} an update, and loses {lost[1]} of the
  facts that stay true. It answers {answered[1]} of the questions right, where rules alone
  answer {answered[0]}; {outdated[1]} of its answers are out of date and `supported`,
  against {outdated[0]}. In plain German and Spanish it finds a fifth of the
  updates ([the reader](research/learned.md)).
- **Training teaches; what LoGo's reruns add is open.** On a policy of 4,469 weights,
  rewards beat random ones by {random}; reruns of single sessions add {logo} to credit by
  session, in runs that were too short to decide it
  ([experiment](research/results.md#which-credit-teaches-more)).
- **What to write down after a task can be learned, in a world made for it.** Chains of
  eight tasks change their hidden procedure once. In the last third a policy of 965
  weights, trained by reruns of single tasks from one memory, solves {local}, untrained
  {untrained}, with random rewards {random_reward}. What it finds is nearly a rule: the
  newest trial kept alone gives {newest}. Every trial kept (ExpRAG) ends at {exp_rag},
  below no memory ({no_memory}): a player that repeats what once worked never finds the
  new procedure, so the margin over it ({over}) says less than that over the start
  ({better}) or over the rule ({rule}). Chains of a shop and a lab say the same; in a
  house, where an outdated case costs only steps, training finds what ExpRAG does
  ([tables](#lessons-from-tasks)). Reruns tell the sign of a lesson's effect for
  {signs_right:.0%} of the lessons where later tasks are tried 32 times on forks, and for
  {few_forks:.0%} where 8 times; success of the whole chain for {whole:.0%}. By signal to
  noise a token `gain` has {gain_snr:.1f} times, reruns {rerun_snr:.1f} times that of the
  whole chain ([chains](research/results.md#chains-of-tasks)).
- **A walk in the event graph brings no gain** in recall on LoCoMo: `compass_rules` finds
  {compass:.0%}, as `verbatim` does.
- **No large model was measured**: there is no LoCoMo or LongMemEval score with one, and no
  training run on a GPU. Nobody else's production has proven it yet.
"""


class Bar(NamedTuple):
    """A bar of a chart, with the ends of its interval where it has one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def cells(page: Path, row: str) -> list[str]:
    """Return the cells of the first table row of a page that begins with this cell."""
    [*_, line] = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", page.read_text("utf-8"), re.M)[:1]
    return [cell.strip() for cell in line.split(" | ")]


def recall(arm: str) -> float:
    """Return an arm's recall at 10 over the answerable questions of LoCoMo."""
    return float(cells(RESEARCH / "measurements.md", f"`{arm}`")[-1].split(" / ")[1])


def results(name: str) -> dict[str, Any]:
    """Return a file of results by its name."""
    return json.loads((RESEARCH / f"results/{name}.json").read_text("utf-8"))


def contrast(name: str) -> Bar:
    """Return a paired difference of the experiment on credit."""
    found = results("decisions")["contrasts"][name]
    return Bar(CONTRASTS[name], found["mean"], *found["interval"])


def told(bar: Bar) -> str:
    """Return a difference with its interval as words."""
    return f"{bar.value:+.3f} [{bar.low:+.3f}, {bar.high:+.3f}]"


def lesson_figures() -> dict[str, Any]:
    """Return the figures of the finding about lessons from tasks."""
    summary = results("chains")["summary"]
    arms, late = summary["arms"], summary["last third"]
    right = {name: each["mean"] for name, each in results("chains_signs")["right"].items()}
    snr = {row["credit"]: row["snr"][0] for row in results("chains_probe")["credits"]}
    return {
        **{
            name.replace(" ", "_"): f"{arms[name]['last third']['mean']:.2f}".lstrip("0")
            for name in ("local", "untrained", "random_reward", "exp_rag", "no memory", "newest")
        },
        **{
            word: told(Bar("", late[f"local - {arm}"]["mean"], *late[f"local - {arm}"]["interval"]))
            for word, arm in (("over", "exp_rag"), ("better", "untrained"), ("rule", "newest"))
        },
        "signs_right": right["local, 32 forks"],
        "few_forks": right["local, 8 forks"],
        "whole": right["global"],
        "gain_snr": snr["gain"] / snr["terminal"],
        "rerun_snr": snr["local"] / snr["terminal"],
    }


def lessons() -> str:
    """Return the table of what learning from tasks gave, by arm."""
    chains = results("chains")
    summary = chains["summary"]
    rows = [
        "| arm | success | last third | last third, less ExpRAG's |",
        "| --- | --- | --- | --- |",
    ]
    for name, label in ARMS_OF_LESSONS.items():
        if name not in summary["arms"]:
            continue
        arm, apart = summary["arms"][name], summary["last third"].get(f"{name} - exp_rag")
        figures = [
            f"{each['mean']:.3f} [{each['interval'][0]:.3f}, {each['interval'][1]:.3f}]"
            for each in (arm["success"], arm["last third"])
        ]
        figures.append(told(Bar("", apart["mean"], *apart["interval"])) if apart else "")
        rows.append(f"| {label} | {' | '.join(figures)} |")
    seeds, tests = summary["seeds"], chains["settings"]["test"]
    rows.append(
        f"\nMeans over {seeds} seeds of {tests} unseen chains each, 95 % intervals over seeds."
    )
    others = {name: results(f"chains_{name}")["summary"] for name in SETS_OF_LESSONS}
    [seeds] = {each["seeds"] for each in others.values()}
    rows += [
        f"\nThe last third in chains of the other sets, {seeds} seeds each:\n",
        f"| arm | {' | '.join(SETS_OF_LESSONS.values())} |",
        f"| --- |{' --- |' * len(others)}",
    ]
    for name, label in ARMS_OF_LESSONS.items():
        shown = [each["arms"].get(name, {}).get("last third") for each in others.values()]
        if None in shown:
            continue
        figures = [
            f"{one['mean']:.2f} [{one['interval'][0]:.2f}, {one['interval'][1]:.2f}]"
            for one in shown
        ]
        rows.append(f"| {label} | {' | '.join(figures)} |")
    return "\n".join(rows) + "\n"


def share(cell: str) -> Bar:
    """Return a cell such as `38 of 1,279 (.030)` as a bar without a name."""
    part, whole = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", cell)[:2])
    return Bar("", part / whole)


def findings() -> str:
    """Return the findings with today's figures."""
    answers = results("certainty")
    reader = RESEARCH / "learned.md"
    text = FINDINGS.format(
        **{arm: recall(arm) for arm in ("verbatim", "bm25", "rag")},
        **answers["conversations"],
        compass=recall("compass_rules"),
        updates=cells(reader, "updates found"),
        lost=cells(reader, "facts lost that stay true"),
        answered=cells(reader, "questions right"),
        outdated=cells(reader, "a statement that ended, and `supported`"),
        random=told(contrast("session - random_reward")),
        logo=told(contrast("session_logo - session")),
        **lesson_figures(),
    )
    return "".join(
        fill(
            " ".join(finding.split()),
            88,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
        for finding in re.split(r"\n(?=- )", text)
    )


def charts() -> dict[str, str]:
    """Return the three charts by file name."""
    reader = RESEARCH / "learned.md"
    rows = {
        "updates found": "updates found",
        "questions right": "questions right",
        "facts lost that stay true": "facts lost",
        "a statement that ended, and `supported`": "stale, and supported",
    }
    compared = [
        share(cell)._replace(name=f"{name}, {design}")
        for row, name in rows.items()
        for design, cell in zip(("verbatim", "learned"), cells(reader, row), strict=True)
    ]
    return {
        "good-search.svg": draw(
            "Recall of LoCoMo's evidence among ten turns",
            [Bar(ARMS[arm], recall(arm)) for arm in ARMS],
        ),
        "good-present.svg": draw("Hand-written dialogues, shares", compared),
        "good-credit.svg": draw(
            "Facts right, paired differences with 95 % intervals",
            [contrast(name) for name in CONTRASTS],
        ),
    }


def draw(title: str, bars: Sequence[Bar]) -> str:
    """Draw horizontal bars on one scale, which begins at zero or below."""
    ends = [end for bar in bars for end in (bar.value, bar.low, bar.high) if end is not None]
    low, high = min(0.0, *ends), max(ends)
    width, height, left = 640, 44 + 26 * len(bars), 250

    def x(value: float) -> float:
        return round(left + (value - low) / (high - low) * (width - left - 70), 1)

    parts = [f'<text x="12" y="22" font-weight="600">{escape(title)}</text>']
    for place, bar in enumerate(bars):
        y = 36 + 26 * place
        start, end = sorted((x(0), x(bar.value)))
        parts.append(
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(bar.name)}</text>'
        )
        parts.append(
            f'<rect x="{start}" y="{y + 2}" width="{end - start:.1f}" height="16" fill="#5468c4"/>'
        )
        if bar.low is not None and bar.high is not None:
            whisker = f"M{x(bar.low)} {y + 10}H{x(bar.high)}"
            parts.append(f'<path d="{whisker}" stroke="#1c2340" stroke-width="2"/>')
        figure = f"{bar.value:.2f}" if bar.low is None else f"{bar.value:+.2f}"
        parts.append(f'<text x="{max(end, x(bar.high or 0)) + 6}" y="{y + 14}">{figure}</text>')
    parts.append(f'<path d="M{x(0)} 32V{height - 6}" stroke="#8a92aa"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#1c2340">'
        f"<title>{escape(title)}</title>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#f7f8fb"/>{"".join(parts)}</svg>\n'
    )


def main() -> int:
    """Write the page's findings and its charts."""
    write_part(PAGE, "findings", findings())
    write_part(PAGE, "lessons", lessons())
    for name, chart in charts().items():
        (ROOT / "docs/images" / name).write_text(chart, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
