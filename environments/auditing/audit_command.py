"""`memagent-eval audit`: the figures of a stored memory, and a verdict for scripts.

Exit status 0: audited and within every limit; 1: a limit was exceeded, or it could not
be audited; 2: wrong usage.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, cast

import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from environments.auditing.audit import AuditRules, audit, item_vectors, op_mix
from environments.auditing.measures import MEASURES, AuditReport, Finding, Measure
from environments.auditing.user_stores import (
    Db,
    SettingsOption,
    User,
    clean,
    output,
    reading,
    scope_of,
)
from environments.datasets.locomo import episode_of
from environments.errors import EnvironmentFault
from environments.options import command
from environments.records import Episode
from memagent.build import load_settings
from memagent.core.records import as_utc
from memagent.readers import read_conversation


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The options of the verb."""

    db: Db = None
    user: User = "default"
    settings: SettingsOption = None
    embedder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="By which near duplicates are found: static, minilm, hashing."
        ),
    ] = None
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--max", metavar="MEASURE=RATE", help="Exit with 1 when the rate is higher; repeatable."
        ),
    ] = None
    episode: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="An episode or conversation with gold evidence, for M-Fail."
        ),
    ] = None
    at: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="What counts as now, as 2024-05-31; by default the clock."
        ),
    ] = None
    cosine: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="From which cosine two items say the same.")
    ] = 0.95
    show: Annotated[int, typer.Option(min=0, help="Findings shown of each measure.")] = 5
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report with all findings as JSON.")
    ] = False


def audit_store(options: AuditOptions) -> None:
    """Audit a stored memory.

    It finds duplicates, contradictions, lost evidence, stale and empty items, and shows
    growth and ops.
    """
    limits = limits_of(options.limits or [])
    gold = read_episode(options.episode) if options.episode is not None else None
    if gold is None and (needs := [name for name in limits if name.startswith("m_fail")]):
        raise typer.BadParameter(f"{needs[0]} needs --episode", param_hint="--max")
    report = asyncio.run(_audit(options, gold))
    if options.as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        print_audit(report, limits=limits, show=options.show)
    over = report.over(limits)
    for name, (rate, limit) in over.items():
        typer.echo(f"memagent-eval: {name} is {rate:.4f}, above {limit:g}", err=True)
    if over:
        raise typer.Exit(1)


audit_command = command(AuditOptions, audit_store)


async def _audit(options: AuditOptions, episode: Episode | None) -> AuditReport:
    at = _moment(options.at) if options.at is not None else None
    settings = load_settings(options.settings)
    with reading(options.db, settings, embedder=options.embedder, check_embedder=False) as store:
        scope = await scope_of(store, options.user)
        bank = store.bank(scope)
        await bank.sync()
        memory = bank.snapshot()
        return audit(
            memory,
            now=at or store.clock(),
            vectors=await item_vectors(memory, store.embedder),
            ops=await op_mix(store.journal.since(scope, 0)),
            episode=episode,
            rules=AuditRules(min_cosine=options.cosine),
        )


def limits_of(texts: list[str]) -> dict[Measure, float]:
    """Return limits by measure, read from texts such as `duplicate=0.05`.

    Raises `typer.BadParameter`.
    """
    limits: dict[Measure, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in MEASURES:
            raise typer.BadParameter(
                f"no measure {name!r}; there are {', '.join(MEASURES)}", param_hint="--max"
            )
        try:
            limit = float(value)
        except ValueError:
            limit = -1.0
        if not 0.0 <= limit < float("inf"):
            raise typer.BadParameter(f"{text!r}: write {name}=0.05", param_hint="--max")
        limits[cast("Measure", name)] = limit
    return limits


def read_episode(path: Path) -> Episode:
    """Read an episode's JSON, or any conversation file with gold questions.

    Raises `EnvironmentFault`, `InputError`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFault(f"the episode {path} cannot be read: {error}") from error
    if '"probes"' not in text:
        return episode_of(read_conversation(path))
    try:
        return Episode.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise EnvironmentFault(f"{path} is no episode: {place}: {first['msg']}") from error


def print_audit(report: AuditReport, *, limits: dict[Measure, float], show: int = 5) -> None:
    """Print the report for people, on standard output."""
    console = output()
    console.print(
        f"{report.items:,} items ({report.memory_tokens:,} words and signs) from "
        f"{report.sessions} sessions "
        f"({report.dialogue_tokens:,} words and signs)"
    )
    if report.items_per_session is not None and report.tokens_per_session is not None:
        console.print(
            f"a session: {report.items_per_session:.1f} items, {report.tokens_per_session:.1f} "
            "words and signs"
        )
    if report.ops:
        console.print(
            "ops: " + ", ".join(f"{count:,} {name}" for name, count in report.ops.items())
        )
    table = Table(
        "measure",
        "rate",
        "limit",
        "found",
        "what it is",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    counts: dict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        counts[finding.measure].append(finding)
    over = report.over(limits)
    for name, what in MEASURES.items():
        if name not in report.rates:
            continue
        rate = report.rates[name]
        table.add_row(
            name,
            Text("-" if rate is None else f"{rate:.4f}", style="bold red" if name in over else ""),
            f"{limits[name]:g}" if name in limits else "",
            "" if name == "size" else f"{len(counts[name]):,}",
            what,
        )
    console.print(table)
    for name in MEASURES:
        for finding in counts[name][:show] if name != "unsourced" else ():
            console.print(
                Text(f"{name}  {clean(', '.join(finding.ids))}  {clean(finding.why)}"),
                soft_wrap=True,
            )
        if name != "unsourced" and len(counts[name]) > show > 0:
            console.print(
                f"{name}  ... and {len(counts[name]) - show:,} more; --show or --json lists them"
            )


def _moment(text: str) -> datetime:
    try:
        return as_utc(datetime.fromisoformat(text))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no date; write 2024-05-31", param_hint="--at"
        ) from None
