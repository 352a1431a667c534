"""The report of a training run: the lines it is made of, its figures, and its HTML page.

A run writes a line of `steps.jsonl` for each step (`step_record`); `keep_lines` takes lines
out again. `phases`, `anchors` and so on make figures of the lines that only the report
shows. The page (`write_report`) has charts, tables and what was said. It is written for a
run that has ended, is still going or was stopped; what is not there yet is left out.
Intervals are 95 % bootstrap intervals over episodes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from environments.evaluation.report_page import (
    figure_cells,
    figures,
    fold,
    report_page,
    section,
    table,
    tiles,
)
from environments.rewards.metrics import ratio_interval
from memagent.core.errors import ConfigError
from memagent.pages.charts import (
    Axes,
    Chart,
    Point,
    Row,
    column_chart,
    dot_chart,
    number as in_few_letters,
    share,
)
from memagent.pages.run_folders import (
    Json,
    Run,
    branch_chart,
    lines_of_file,
    plain_chart,
    read_run,
    reward_charts,
    update_charts,
    validation_charts,
)

if TYPE_CHECKING:
    from train.rollouts.experience import Step  # which needs torch; reading a run's files does not


# -- lines -----------------------------------------------------------------------------

SAMPLES = 4
"""Replies kept of a step."""


def step_record(step: Step, *, number: int, figures: Mapping[str, float]) -> dict[str, Any]:
    """Return the line of `steps.jsonl` for a step, as plain JSON values.

    It has figures, the rewards of groups, the advantages of anchors, and sampled replies.
    """
    calls = {
        call.response.id: call
        for group in step.rollouts
        for run in (*group.rollouts, *(one for local in group.locals for one in local.reruns))
        for call in run.calls
    }
    shown = [key for key in step.credit.advantages if key in calls]
    spaced = shown[:: max(1, len(shown) // SAMPLES)][:SAMPLES]
    return {
        "step": number,
        "figures": {name: round(value, 6) for name, value in figures.items()},
        "groups": [
            {
                "branch": group.key.branch,
                "role": group.key.role.value,
                "episode": group.key.episode_id,
                "session": group.key.session,
                "question": group.key.question_id,
                "rewards": [
                    None if one.reward is None else round(one.reward, 6) for one in group.members
                ],
            }
            for group in step.groups
        ],
        "anchors": _anchor_advantages(step),
        "samples": [
            {
                "role": calls[key].role.value,
                "session": calls[key].step.session_id,
                "advantage": round(step.credit.advantages[key], 6),
                "text": calls[key].response.text[:2_000],
            }
            for key in spaced
        ],
    }


def _anchor_advantages(step: Step) -> list[list[float]]:
    """Return the [global, local] advantages of each anchor.

    An anchor is the run of a session that was compared in both ways: with other rollouts
    of the episode, and with reruns of the same session.
    """
    by_branch = step.credit.by_branch
    global_, local = by_branch.get("global", {}), by_branch.get("local", {})
    first_responses = [
        member.response_ids[0]
        for group in step.groups
        if group.key.branch == "local"
        for member in group.members
        if member.response_ids
    ]
    return [
        [round(global_[key], 4), round(local[key], 4)]
        for key in first_responses
        if key in global_ and key in local
    ]


def keep_lines(path: Path, keeps: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a file of lines with those that `keeps` accepts.

    A run that goes on from a checkpoint takes out the lines that came after it.
    """
    if path.is_file():
        lines = [line for line in lines_of_file(path) if keeps(line)]
        fresh = path.with_suffix(".fresh")
        fresh.write_text(
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8"
        )
        fresh.replace(path)


# -- figures ---------------------------------------------------------------------------

PHASES = (
    "generation",
    "agent and scoring",
    "log-probabilities",
    "loss and optimizer",
    "credit and packing",
)
"""The phases of an update. The last is the rest of the time that making experience took."""


def phases(run: Run) -> list[Row]:
    """Return (update, seconds of each of `PHASES`) for every batch of experience."""
    seconds = dict(run.logged("step_time"))
    rows: list[Row] = []
    for stage in run.stages:
        starts = [line["step"] for line in stage.steps]
        span = starts[1] - starts[0] if len(starts) > 1 else 1
        ends = [*starts[1:], *(at + span for at in starts[-1:])]
        for line, until in zip(stage.steps, ends, strict=True):
            updates = range(stage.first + line["step"] + 1, stage.first + until + 1)
            if not updates or any(update not in seconds for update in updates):
                continue
            time = {name.removeprefix("time/"): value for name, value in line["figures"].items()}
            playing, agent, logps = time["generation"], time["agent"], time["logps"]
            credit = max(0.0, time["experience"] - playing - agent)
            whole = sum(seconds[update] for update in updates)
            learning = max(0.0, whole - time["experience"] - logps)
            rows.append((updates[0], playing, agent, logps, learning, credit))
    return rows


def anchors(run: Run) -> list[Point]:
    """Return the (global, local) advantages of each anchor, unless both are 0."""
    pairs = [(float(x), float(y)) for _, line in run.steps for x, y in line.get("anchors", ())]
    return [(x, y) for x, y in pairs if x or y]


def rewards_by_session(run: Run, *, first: float, last: float) -> dict[int, float]:
    """Return the mean global reward by a session's place over a part of the run.

    The part goes from `first` to `last`, in shares of the run's batches.
    """
    steps = run.steps
    start = int(first * len(steps))
    rewards: dict[int, list[float]] = {}
    for _, line in steps[start : max(start + 1, int(last * len(steps)))]:
        for group in line["groups"]:
            if group["branch"] == "global" and group["session"] is not None:
                earned = [reward for reward in group["rewards"] if reward is not None]
                rewards.setdefault(group["session"], []).extend(earned)
    return {place: fmean(values) for place, values in sorted(rewards.items()) if values}


def correlation(points: Sequence[Point]) -> float | None:
    """Return Pearson's r; None for fewer than three points or no variance."""
    if len(points) < 3:
        return None
    mean_x, mean_y = fmean([x for x, _ in points]), fmean([y for _, y in points])
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    if not xx or not yy:
        return None
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / (xx * yy) ** 0.5


_TESTED = (
    "f1",
    "facts",
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
_BEST = {"f1": max, "exact": max, "overwritten": max, "facts": max, "lost": min}
"""The choice of the best value of a figure; of others none is marked."""
_MOST_MEMORIES = 12


def write_report(folder: Path, out: Path, *, control: Path | None = None) -> Path:
    """Write the page about a run and return its path; `control` is a run to show beside it.

    Raises `ConfigError` when a folder holds no run.
    """
    run = _opened(Path(folder))
    beside = _opened(Path(control)) if control is not None else None
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(training_page(run, control=beside), encoding="utf-8")
    return out


def _opened(folder: Path) -> Run:
    run = read_run(folder)
    if run is None:
        raise ConfigError(f"{folder} holds no training run: it has no settings.json")
    return run


def training_page(run: Run, *, control: Run | None = None) -> str:
    """Return the page as text."""
    state = '<span class="status">finished</span>' if run.finished else "not finished"
    words = escape(f"{run.subject}, seed {run.settings.get('seed')}")
    return report_page(f"memagent-train: {run.name}", f"{words}; {state}", _parts(run, control))


def _parts(run: Run, control: Run | None) -> Iterator[str]:
    """Yield the parts of the page, top to bottom."""
    reward, ops, flat_groups = reward_charts(run)
    yield tiles(_tiles(run))
    charts = validation_charts(
        run, lambda values: ratio_interval([[(value, 1.0)] for value in values]), control=control
    )
    yield section("Validation", _validation_note(run, control), figures(charts))
    yield from _test_section(run, control)
    note = "of the rollouts that are learned from, sampled at the training temperature"
    yield section("Reward and ops", note, figures([reward, ops, _session_chart(run)]))
    note = "what there is to compare, and whether the two comparisons agree"
    spread_note = "standard deviation within a group"
    spread = branch_chart(run, "Spread", "groups/{}_spread", spread_note, Axes(low=0.0))
    yield section("Groups and credit", note, figures([flat_groups, spread, _anchor_chart(run)]))
    yield section("Time", _time_note(run), figures(_time_charts(run)))
    yield section("The update", "as the trainer logs it", figures(update_charts(run)))
    yield from _before_and_after(run)
    yield from _learned_replies(run)
    settings = json.dumps(run.settings | {"versions": run.versions}, indent=2)
    yield fold("Settings and versions", "", f"<pre>{escape(settings)}</pre>")


def _tiles(run: Run) -> Iterator[tuple[str, str]]:
    points, best = run.validated(run.measure)[0], run.best()
    if points and best is not None:
        words = f"validation {run.measure}, start and best (step {best[0]})"
        yield f"<em>{points[0][1]:.3f} →</em> {best[1]:.3f}", words
    yield f"{run.updates:,}", "updates"
    tokens = sum(value for _, value in run.figure("tokens/completion"))
    yield in_few_letters(tokens), "tokens generated to learn from"
    generating = sum(value for _, value in run.figure("time/generation"))
    if generating:
        yield in_few_letters(tokens / generating), "tokens a second while generating"
    seconds = sum(value for _, value in run.logged("step_time"))
    words = f"{seconds:,.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"
    yield words, "in updates, validation not counted"


# -- charts ----------------------------------------------------------------------------


def _validation_note(run: Run, control: Run | None) -> str:
    count = len(run.validations[0][1]["episodes"]) if run.validations else 0
    note = (
        f"played greedily on {count} episodes; bands are 95 % bootstrap intervals over "
        "episodes; the ring is the best"
    )
    if control is not None:
        note += "; in grey the control, trained without the reward's meaning"
    return f"{note}; dashed lines begin a stage" if run.borders else note


def _session_chart(run: Run) -> Chart:
    early = rewards_by_session(run, first=0.0, last=1 / 3)
    late = rewards_by_session(run, first=2 / 3, last=1.0)
    rows = [
        (place + 1, early.get(place, math.nan), late.get(place, math.nan))
        for place in sorted({*early, *late})
    ]
    return column_chart(
        "Reward by session",
        rows,
        ("first third of the run", "last third"),
        Axes(across="session"),
        grouped=True,
        note="global reward by the session's place",
    )


def _anchor_chart(run: Run) -> Chart:
    points = anchors(run)
    r = correlation(points)
    words = (
        f"r = {r:.2f} over {len(points)} runs" if r is not None else "too few differ to correlate"
    )
    axes = Axes(across="global advantage", up="local advantage")
    return dot_chart("Credit of the anchors", [(x, y, "") for x, y in points], axes, note=words)


def _time_note(run: Run) -> str:
    note = "seconds of an update by what they were spent on"
    rows = [row for _, *row in phases(run)]
    if not rows:
        return note
    sums = [sum(column) for column in zip(*rows, strict=True)]
    # `PHASES[0]` is generation, `PHASES[3]` loss and optimizer.
    other_share = 1 - (sums[0] + sums[3]) / (sum(sums) or 1)
    return f"{note}; {share(other_share)} is neither generation nor loss"


def _time_charts(run: Run) -> list[Chart]:
    seconds = dict(run.figure("time/generation"))
    tokens = run.figure("tokens/completion")
    speed = [(x, value / seconds[x]) for x, value in tokens if seconds.get(x)]
    width = run.figure("batches/width")
    return [
        column_chart("Seconds", phases(run), PHASES, Axes(low=0.0), note="by phase"),
        plain_chart(run, "Tokens a second", "generated, while generating", speed, tone=1),
        plain_chart(run, "Batch width", "model calls answered together", width, tone=2),
    ]


# -- tables and text -------------------------------------------------------------------


def _test_section(run: Run, control: Run | None) -> Iterator[str]:
    tests = list(run.tests(_TESTED))
    if control is not None:
        name = control.setting("trainer", "control") or control.name
        tests += [
            (f"{name}: {policy}", sessions, cells)
            for policy, sessions, cells in control.tests(_TESTED)
        ]
    if not tests:
        return
    names = [name for name in _TESTED if any(name in cells for *_, cells in tests)]
    columns = [[f"<td>{escape(sessions)}</td>" for _, sessions, _ in tests]]
    columns += [
        figure_cells([cells.get(name) for *_, cells in tests], _BEST.get(name)) for name in names
    ]
    body = table("Test", ["policy", "sessions", *names], [policy for policy, *_ in tests], columns)
    same = run.setting("validation", "test_split") == "validation"
    words = "words and names of training" if same else "words and names of their own"
    episodes = run.setting("validation", "test_episodes")
    note = f"{episodes} held-out episodes each, with {words}; means and 95 % intervals"
    yield section("Test", note, body)


def _before_and_after(run: Run) -> Iterator[str]:
    """Yield memory and replies of one validation episode, at the start and at the best."""
    shown = [(step, record) for step, record in run.validations if record.get("shown")]
    best = run.best()
    if not shown or best is None:
        return
    step, _, record = best
    # The validation at the best step, or the last one that kept what it showed.
    before, after = shown[0], ((step, record) if record.get("shown") else shown[-1])
    sides = [("Before", *before), ("After", *after)]
    if after[0] == before[0]:
        sides = [("At the start, which is still the best", *before)]
    body = "".join(
        f"<div>{_side(title, step, record['shown'][0])}</div>" for title, step, record in sides
    )
    note = "one validation episode, played greedily"
    yield section("Before and after", note, f'<div class="pair">{body}</div>')


def _side(title: str, step: int, sample: Json) -> str:
    memory = sample["memory"]
    lines = "".join(f"<li>{escape(text)}</li>" for text in memory[:_MOST_MEMORIES])
    more = len(memory) - _MOST_MEMORIES
    lines += f'<li class="soft">and {more} more</li>' if more > 0 else ""
    notes = f'<ol class="memory">{lines}</ol>' if lines else '<p class="soft">nothing was kept</p>'
    head = f"step {step}; {len(memory)} memories of {sample['episode']}"
    replies = "".join(_reply(role, text) for role, text in sample["replies"])
    return (
        f'<h3>{escape(title)} <span class="soft">{escape(head)}</span></h3>{notes}'
        f"<h3>First replies</h3>{replies}"
    )


def _learned_replies(run: Run) -> Iterator[str]:
    """Yield some of the replies that were learned from, with their advantages."""
    steps = run.steps
    if steps:
        parts: list[str] = []
        for place in dict.fromkeys((0, len(steps) // 2, len(steps) - 1)):
            step, record = steps[place]
            parts.append(f"<h3>Step {step:g}</h3>")
            parts += [
                _reply(f"{reply['role']}, advantage {reply['advantage']:+.2f}", reply["text"])
                for reply in record["samples"]
            ]
        yield fold("Replies that were learned from", "", "".join(parts))


def _reply(head: str, text: str) -> str:
    return f'<p class="said"><b>{escape(head)}</b> {escape(text)}</p>'
