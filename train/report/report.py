"""A training run as one HTML page: plots as inline SVG, figures as tables, style
inside; no script, nothing loaded from anywhere.

The page is about what `train.report.run_data` reads. It is written for a run that has
ended, is still going or was stopped; what is not there yet is left out. Intervals are
95 % bootstrap intervals over episodes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean

from environments.evaluation.html_report import STYLE, fold, section
from train.report.plots import (
    Line,
    dot_plot,
    grouped_plot,
    legend,
    line_plot,
    number,
    share,
    stacked_plot,
)
from train.report.run_data import PHASES, Json, Point, RunData, correlation, read_run

_OWN_STYLE = """
:root { --c0: #3d5bd9; --c1: #0d8a76; --c2: #c27a12; --c3: #c4456b; --c4: #7d55c7; --c5: #8a93a3; }
@media (prefers-color-scheme: dark) { :root { --c0: #8aa0ff; --c1: #4fd0ba; --c2: #f0b35a; --c3: #f48bab; --c4: #bd9df5; --c5: #98a1b0; } }
.c0 { --own: var(--c0); } .c1 { --own: var(--c1); } .c2 { --own: var(--c2); } .c3 { --own: var(--c3); } .c4 { --own: var(--c4); }
.c5 { --own: var(--c5); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(19rem, 100%), 1fr)); gap: 1.4rem 1.6rem; margin-top: .9rem; }
.plots.pairs { grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
.plots figure { margin: 0; min-width: 0; } .plots figcaption { font-weight: 550; }
.plots figcaption .soft { display: block; font-weight: 400; font-size: 12px; min-height: 1.5em; }
.plots svg { min-width: 0; max-width: 28rem; margin-top: .35rem; overflow: visible; }
.plots svg text.soft { font-size: 11px; } .none { padding: 1.6rem 0; }
.line { fill: none; stroke: var(--own); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.band { fill: var(--own); opacity: .16; } .part { fill: var(--own); } .speck { fill: var(--own); opacity: .45; }
svg .dot { fill: var(--own); stroke: var(--paper); stroke-width: 1.5; } svg .dot.ring { stroke: var(--ink); stroke-width: 2; }
.border { stroke: var(--soft); stroke-dasharray: 3 3; opacity: .7; }
.legend { list-style: none; padding: 0; margin: .3rem 0 0; display: flex; flex-wrap: wrap; gap: .15rem .9rem; font-size: 12px;
  color: var(--soft); }
.legend li::before { content: ""; display: inline-block; width: .65rem; height: .65rem; border-radius: 3px; background: var(--own);
  margin-right: .4rem; vertical-align: -1px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 1.2rem; margin-top: .9rem; }
.pair > div { min-width: 0; } h3 { font-size: .88rem; margin: 0 0 .35rem; } h3 .soft { font-weight: 400; }
ol.memory { margin: 0 0 .8rem; padding-left: 1.5rem; } ol.memory li { overflow-wrap: anywhere; }
.said { font: 12px/1.5 ui-monospace, Menlo, Consolas, monospace; background: var(--ground); border-radius: 8px; padding: .45rem .65rem;
  margin: .35rem 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.said b { color: var(--soft); font-weight: 600; } .status { color: var(--best); font-weight: 600; }
.tile em { font-style: normal; font-size: 1rem; color: var(--soft); }
"""
_CURVES = (
    ("f1", "F1", "answers from memory, against the gold answers"),
    ("overwritten", "Overwritten facts", "share of revised facts answered as they are now"),
    ("lost", "Lost evidence (M-Fail)", "share of gold turns that no note cites; less is better"),
    ("memory_share", "Memory share", "tokens of memory by tokens of dialogue"),
)
_OPS = ("add", "update", "delete", "noop", "rejected")
_BRANCHES = ("global", "local", "answer")
_TESTED = (
    "f1",
    "exact",
    "overwritten",
    "lost",
    "memory_share",
    "add",
    "update",
    "delete",
    "noop",
    "rejected",
    "failed",
)
_LESS_IS_BETTER = frozenset({"lost", "failed"})
_MEANT = frozenset({"f1", "exact", "overwritten", "lost"})
"""Figures of which the best is marked."""


def write_report(folder: Path, out: Path) -> Path:
    """Write the page about a run and give its path.

    Raises `ConfigError` when the folder holds no run.
    """
    page = training_page(read_run(Path(folder)))
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
    return out


def training_page(run: RunData) -> str:
    """The page as text."""
    style = STYLE + _OWN_STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = escape(f"memagent-train: {run.folder.resolve().name}")
    parts = [
        _head(run),
        _tiles(run),
        _part("Validation", _validation_note(run), _validation(run), wide=True),
        _test(run),
        _part(
            "Reward and ops",
            "of the rollouts that are learned from, sampled at the training temperature",
            _learning(run),
        ),
        _part(
            "Groups and credit",
            "what there is to compare, and whether the two comparisons agree",
            _credit(run),
        ),
        _part("Time", _time_note(run), _time(run)),
        _part("The update", "as the trainer logs it", _update(run)),
        _samples(run),
        _spoken(run),
        fold(
            "Settings and versions",
            "",
            f"<pre>{escape(json.dumps(run.settings | {'versions': run.versions}, indent=2))}</pre>",
        ),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{title}</title><style>{style}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


# -- top -------------------------------------------------------------------------------


def _head(run: RunData) -> str:
    settings = run.settings
    model, world = settings["model"], settings["environment"]
    ended = '<span class="status">finished</span>' if run.summary else "not finished"
    said = [
        model["path"] or f"a model of {model['size']} parameters from scratch",
        f"design {settings['agent']['design']}",
        f"{world['kind']} {world['level'] if world['kind'] == 'synthetic' else ''}".strip(),
        " then ".join(f"{stage.sessions} sessions" for stage in run.stages),
        f"seed {settings['seed']}",
    ]
    told = escape(", ".join(one for one in said if one))
    return f'<header><h1>memagent-train: {escape(run.folder.resolve().name)}</h1><p class="soft">{told}; {ended}</p></header>'


def _tiles(run: RunData) -> str:
    measure = run.settings["validation"]["measure"]
    told: list[tuple[str, str]] = []
    points, best = run.validated(measure)[0], run.best()
    if points and best:
        value = best[1]["figures"].get(measure, float("nan"))
        told.append(
            (
                f"<em>{points[0][1]:.3f} →</em> {value:.3f}",
                f"validation {measure}, start and best (step {best[0]})",
            )
        )
    logged = run.logged("loss")
    told.append((f"{max((step for step, _ in logged), default=0):,.0f}", "updates"))
    tokens = sum(value for _, value in run.figure("tokens/completion"))
    told.append((number(tokens), "tokens generated to learn from"))
    spent = sum(value for _, value in run.figure("time/generation"))
    if spent:
        told.append((number(tokens / spent), "tokens a second while generating"))
    seconds = sum(value for _, value in run.logged("step_time"))
    told.append(
        (
            f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min",
            "in updates, validation not counted",
        )
    )
    tiles = "".join(
        f'<div class="tile"><b>{value}</b><span class="soft">{escape(label)}</span></div>'
        for value, label in told
    )
    return f'<div class="tiles">{tiles}</div>'


# -- parts -----------------------------------------------------------------------------


def _validation_note(run: RunData) -> str:
    count = len(run.validations[0][1]["episodes"]) if run.validations else 0
    note = f"played greedily on {count} episodes; bands are 95 % bootstrap intervals over episodes; the ring is the best"
    return f"{note}; dashed lines begin a stage" if run.borders else note


def _validation(run: RunData) -> str:
    best = run.best()
    marked = float(best[0]) if best else None
    figures: list[str] = []
    for colour, (name, title, note) in enumerate(_CURVES):
        points, bands = run.validated(name)
        line = Line(name=title, points=points, bands=bands, colour=colour, dots=True)
        plot = line_plot([line], title=title, low=0.0, borders=run.borders, marked=marked)
        figures.append(_figure(title, note, plot))
    return "".join(figures)


def _learning(run: RunData) -> str:
    rewards = _by_branch(run, "reward/{}")
    ops = [
        (float(step), [one["figures"].get(f"ops/{name}", 0.0) for name in _OPS])
        for step, one in run.steps
        if "ops/add" in one["figures"]
    ]
    early = run.by_place("global", first=0.0, last=1 / 3)
    late = run.by_place("global", first=2 / 3, last=1.0)
    places = sorted(set(early) | set(late))
    labels, pair = [str(place + 1) for place in places], ("first third of the run", "last third")
    sessions = grouped_plot(
        labels, [(early.get(at), late.get(at)) for at in places], pair, title="Reward by session"
    )
    return "".join(
        [
            _figure(
                "Reward by branch",
                "",
                line_plot(rewards, title="Reward by branch", borders=run.borders),
                _named(rewards),
            ),
            _figure(
                "Ops",
                "shares of what was decided",
                stacked_plot(ops, _OPS, title="Ops", shown=share, high=1.0),
                legend(_OPS),
            ),
            _figure(
                "Reward by session", "global reward by the session's place", sessions, legend(pair)
            ),
        ]
    )


def _credit(run: RunData) -> str:
    flat, spread = _by_branch(run, "groups/{}_flat"), _by_branch(run, "groups/{}_spread")
    anchors = [(x, y) for x, y in run.anchors() if x or y]
    r = correlation(anchors)
    said = (
        f"r = {r:.2f} over {len(anchors)} runs" if r is not None else "too few differ to correlate"
    )
    return "".join(
        [
            _figure(
                "Flat groups",
                "share in which all earned the same",
                line_plot(
                    flat, title="Flat groups", low=0.0, high=1.0, shown=share, borders=run.borders
                ),
                _named(flat),
            ),
            _figure(
                "Spread",
                "standard deviation within a group",
                line_plot(spread, title="Spread", low=0.0),
                _named(spread),
            ),
            _figure(
                "Credit of the anchors",
                f"global advantage to the right, local upward; {said}",
                dot_plot(anchors, title="Credit of the anchors"),
            ),
        ]
    )


def _time_note(run: RunData) -> str:
    phases = run.phases()
    if not phases:
        return "seconds of an update by what they were spent on"
    sums = [sum(parts[place] for _, parts in phases) for place in range(len(PHASES))]
    neither = 1 - (sums[0] + sums[3]) / (sum(sums) or 1)
    return f"seconds of an update by what they were spent on; {share(neither)} is neither generation nor loss"


def _time(run: RunData) -> str:
    seconds = dict(run.figure("time/generation"))
    speed = [
        (x, value / seconds[x]) for x, value in run.figure("tokens/completion") if seconds.get(x)
    ]
    return (
        _figure(
            "Seconds",
            "by phase",
            stacked_plot(run.phases(), PHASES, title="Seconds"),
            legend(PHASES),
        )
        + _figure(
            "Tokens a second",
            "generated, while generating",
            _plain(run, speed, "Tokens a second", 1),
        )
        + _figure(
            "Batch width",
            "model calls answered together",
            _plain(run, run.figure("batches/width"), "Batch width", 2),
        )
    )


def _update(run: RunData) -> str:
    shown = (
        ("loss", "Loss", ""),
        ("grad_norm", "Gradient norm", "before clipping"),
        ("kl", "KL", "to where the run began"),
        ("clip_ratio/region_mean", "Clipped", "share of rows whose ratio is clipped"),
        ("entropy", "Entropy", "of the replies, nats a token"),
        ("tokens/cut", "Cut replies", "share that ran into the length limit"),
    )
    return "".join(
        _figure(title, note, _plain(run, run.logged(name), title, place % 5))
        for place, (name, title, note) in enumerate(shown)
    )


# -- tables and text -------------------------------------------------------------------


def _test(run: RunData) -> str:
    tested: Json = (run.summary or {}).get("test") or {}
    if not tested:
        return ""
    kept = [name for name in _TESTED if any(name in one for one in tested.values())]
    best: dict[str, float] = {}
    for name in kept:
        values = [one[name]["mean"] for one in tested.values() if name in one]
        top = min(values) if name in _LESS_IS_BETTER else max(values)
        if name in _MEANT and 2 * values.count(top) <= len(values):
            best[name] = top
    rows: list[str] = []
    for key, one in tested.items():
        name, _, sessions = key.rpartition("@")
        stage, _, which = name.partition("/")
        label = f"{which} of {stage}" if which else "the start"
        cells = "".join(_cell(one.get(figure), best.get(figure)) for figure in kept)
        rows.append(
            f'<tr><th scope="row">{escape(label)}</th><td>{escape(sessions)}</td>{cells}</tr>'
        )
    heads = "".join(
        f'<th scope="col">{escape(name)}</th>' for name in ("policy", "sessions", *kept)
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    part = run.settings["validation"]
    words = (
        "words and names of training"
        if part.get("test_split") == "validation"
        else "words and names of their own"
    )
    return section(
        "Test",
        f"{part['test_episodes']} held-out episodes each, with {words}; means and 95 % intervals",
        table,
    )


def _cell(figure: Json | None, best: float | None) -> str:
    if figure is None:
        return '<td class="soft">-</td>'
    low, high = figure["interval"]
    mark = ' class="best"' if best is not None and figure["mean"] == best else ""
    return f"<td{mark}>{figure['mean']:.3f}<small>{low:.3f} to {high:.3f}</small></td>"


def _samples(run: RunData) -> str:
    """Memory and replies of one validation episode at the start and at the best validation."""
    with_samples = [(step, one) for step, one in run.validations if one.get("shown")]
    best = run.best()
    if not with_samples or best is None:
        return ""
    before, after = with_samples[0], best if best[1].get("shown") else with_samples[-1]
    sides = (
        [("Before", before), ("After", after)]
        if after[0] != before[0]
        else [("At the start, which is still the best", before)]
    )
    body = "".join(
        f"<div>{_shown(title, step, record['shown'][0])}</div>" for title, (step, record) in sides
    )
    note = '<p class="soft">one validation episode, played greedily</p>'
    return f'<section><h2>Before and after</h2>{note}<div class="pair">{body}</div></section>'


def _shown(title: str, step: int, shown: Json) -> str:
    held = "".join(f"<li>{escape(text)}</li>" for text in shown["memory"][:12])
    more = len(shown["memory"]) - 12
    held += f'<li class="soft">and {more} more</li>' if more > 0 else ""
    said = "".join(
        f'<p class="said"><b>{escape(role)}</b> {escape(text)}</p>'
        for role, text in shown["replies"]
    )
    notes = f'<ol class="memory">{held}</ol>' if held else '<p class="soft">nothing was kept</p>'
    return (
        f'<h3>{escape(title)} <span class="soft">step {step}; {len(shown["memory"])} memories of {escape(shown["episode"])}</span></h3>'
        f"{notes}<h3>First replies</h3>{said}"
    )


def _spoken(run: RunData) -> str:
    """Some of what was learned from, with its advantage."""
    steps = run.steps
    if not steps:
        return ""
    chosen = list(dict.fromkeys((0, len(steps) // 2, len(steps) - 1)))
    parts: list[str] = []
    for place in chosen:
        step, record = steps[place]
        parts.append(f"<h3>Step {step}</h3>")
        parts += [
            f'<p class="said"><b>{escape(one["role"])}, advantage {one["advantage"]:+.2f}</b> {escape(one["text"])}</p>'
            for one in record["samples"]
        ]
    return f"<section><details><summary>Replies that were learned from</summary>{''.join(parts)}</details></section>"


# -- pieces ----------------------------------------------------------------------------


def _part(title: str, note: str, figures: str, *, wide: bool = False) -> str:
    said = f'<p class="soft">{escape(note)}</p>' if note else ""
    return f'<section><h2>{escape(title)}</h2>{said}<div class="plots{" pairs" if wide else ""}">{figures}</div></section>'


def _figure(title: str, note: str, plot: str, below: str = "") -> str:
    said = f'<span class="soft">{escape(note)}</span>'
    return f"<figure><figcaption>{escape(title)} {said}</figcaption>{plot}{below}</figure>"


def _named(lines: Sequence[Line]) -> str:
    return (
        legend([line.name for line in lines], colours=[line.colour for line in lines])
        if lines
        else ""
    )


def _by_branch(run: RunData, pattern: str) -> list[Line]:
    return [
        Line(name=branch, points=_smooth(points), colour=colour)
        for colour, branch in enumerate(_BRANCHES)
        if (points := run.figure(pattern.format(branch)))
    ]


def _plain(run: RunData, points: Sequence[Point], title: str, colour: int) -> str:
    return line_plot(
        [Line(name=title, points=_smooth(points), colour=colour)], title=title, borders=run.borders
    )


def _smooth(points: Sequence[Point]) -> list[Point]:
    """Means over neighbours, a fortieth of the run wide; short runs stay as they are."""
    reach = len(points) // 80
    return [
        (x, fmean([y for _, y in points[max(0, place - reach) : place + reach + 1]]))
        for place, (x, _) in enumerate(points)
    ]
