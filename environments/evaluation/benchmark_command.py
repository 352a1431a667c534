"""Verbs that play a benchmark with several arms: options, configuration, run, report.

A `Material` is played, read from files or generated; everything after that is the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from environments.datasets.locomo import LoCoMo
from environments.datasets.longmemeval import LongMemEval
from environments.errors import EnvironmentFault
from environments.evaluation.arms import (
    IDEAL,
    TURN_ARMS,
    default_arms,
    read_arms,
    second_embedder_for,
)
from environments.evaluation.config import (
    FROM_SETTINGS,
    EvalConfig,
    embedder_named,
    prompts_of,
    settings_digest,
    weights_of,
)
from environments.evaluation.figures import Report, report_of
from environments.evaluation.html_report import html_report
from environments.evaluation.judge import STEADY, build_judge, judge_config, judge_scores
from environments.evaluation.known_worlds import Worlds
from environments.evaluation.runs import Progress, load_config, plan, run_evaluation, write_score
from environments.evaluation.tables import print_report
from environments.options import command
from environments.records import Episode
from memagent.build import AgentSettings, load_settings
from memagent.core.exchange import Role
from memagent.core.records import content_id
from memagent.plugins import available

Benchmark = LoCoMo | LongMemEval


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of every verb that plays arms."""

    arms: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: arms and design names, or LABEL=DESIGN@MODEL for a design with "
            "a model of its own; see docs/evaluation.md."
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run's folder; by default one under runs/ named by its configuration."
        ),
    ] = None
    config: Annotated[
        Path | None, typer.Option("--config", help="A config.json of an earlier run, to repeat it.")
    ] = None
    workers: Annotated[
        int, typer.Option(min=1, help="Processes; each plays one conversation at a time.")
    ] = 1
    model: Annotated[
        str | None,
        typer.Option(
            help="litellm name of a model for all roles, or hf:FOLDER; none answers by rules."
        ),
    ] = None
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            help="The agent's TOML: embedder, models of roles, sampling, addresses, keys.",
        ),
    ] = None
    embedder: Annotated[
        str | None, typer.Option(help="static, minilm, hashing, or a plug-in's name.")
    ] = None
    categories: Annotated[
        str | None, typer.Option(help="Comma-separated categories to ask; all by default.")
    ] = None
    judge: Annotated[
        str | None,
        typer.Option(
            help="litellm name of a model that judges the answers, leniently and strictly."
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False

    def earlier(self) -> EvalConfig | None:
        """Load the configuration of `--config`. Raises `EnvironmentFault`."""
        return load_config(self.config) if self.config is not None else None

    def changes(self, **others: object) -> dict[str, object]:
        """Return the fields of a configuration that the options set, and `others`.

        Raises `EnvironmentFault` for words that are no arms.
        """
        values: dict[str, object] = {
            "model": self.model,
            "embedder": self.embedder,
            "categories": words(self.categories),
            "judge": judge_config(self.judge) if self.judge is not None else None,
            **others,
        }
        if arms := words(self.arms):
            names, own = read_arms(arms)
            check_names((name for name in names if name not in own), turn_arms=(*TURN_ARMS, IDEAL))
            check_names((arm.design for arm in own.values()), turn_arms=())
            values["arms"], values["own_models"] = names, own
        return {name: value for name, value in values.items() if value is not None}


def check_names(names: Iterable[str], *, turn_arms: Iterable[str]) -> None:
    """Raise `EnvironmentFault` for a name that is no design and none of the turn arms.

    A dotted path is checked when it is loaded.
    """
    arms, designs = tuple(turn_arms), available("designs")
    for name in names:
        if ":" in name or name in arms or name in designs:
            continue
        near = " or ".join(get_close_matches(name, (*arms, *designs), n=2))
        hint = f" (did you mean {near}?)" if near else ""
        listed = f"turn arms: {', '.join(arms)}; " if arms else ""
        raise EnvironmentFault(
            f"no {'arm or design' if arms else 'design'} is named {name!r}{hint}; {listed}"
            f"designs: {', '.join(designs)}; or give 'package.module:attribute'"
        )


@dataclass(frozen=True, kw_only=True)
class _Data:
    path: Annotated[
        Path,
        typer.Argument(help="The benchmark's file, or a folder of such files.", show_default=False),
    ]


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(RunOptions, _Data):
    """The options of a verb that plays a benchmark."""

    limit: Annotated[int | None, typer.Option(min=1, help="Play only this many conversations.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class Material:
    """The data that an evaluation plays."""

    name: str
    """The benchmark's, or `synthetic`."""
    what: str
    """Its name in a complaint about a configuration of other data."""
    digest: str
    """SHA-256 of the data, 64 hex digits."""
    episodes: Callable[[], Iterable[Episode]]
    worlds: Worlds | None = None
    """The generated worlds; None for data of files."""


def benchmark_verb(env_class: type[Benchmark], summary: str) -> Callable[..., None]:
    """Return the verb that evaluates arms on a benchmark; `summary` is its help."""

    def evaluate(options: BenchmarkOptions) -> None:
        env = env_class(options.path)
        material = Material(
            name=env.name,
            what=str(env.source.path),
            digest=env.source.digest(),
            episodes=env.episodes,
        )
        run_verb(material, options, options.changes(limit=options.limit), options.earlier())

    evaluate.__doc__ = summary
    return command(BenchmarkOptions, evaluate)


def run_verb(
    material: Material,
    options: RunOptions,
    changes: dict[str, object],
    earlier: EvalConfig | None,
) -> None:
    """Configure, play, and print the report.

    `changes` are set on top of the earlier run's configuration, or of the defaults.
    """
    settings = load_settings(options.settings) if options.settings is not None else None
    config = configuration(material, changes, settings=settings, earlier=earlier)
    identity = content_id("run", config.model_dump_json(exclude={"judge"}))[4:12]
    folder = options.out or Path("runs") / f"{material.name}-{identity}"
    report = _evaluate(material, config, settings=settings, folder=folder, workers=options.workers)
    if options.as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        print_report(report)


def configuration(
    material: Material,
    changes: dict[str, object],
    *,
    settings: AgentSettings | None,
    earlier: EvalConfig | None,
) -> EvalConfig:
    """Return the configuration to run.

    It is an earlier run's or the defaults, with the changes on top. Raises
    `EnvironmentFault` when the earlier run was of other data, or of agent settings that
    are not given now.
    """
    digest = settings_digest(settings) if settings is not None else None
    values: dict[str, object] = {
        "benchmark": material.name,
        "data_digest": material.digest,
        "worlds": material.worlds,
    }
    if settings is not None:
        values["embedder"] = FROM_SETTINGS
        values["model"] = settings.model.model if settings.model is not None else None
    if earlier is not None:
        _check_earlier(earlier, material, digest)
        values = earlier.model_dump(exclude={"memagent"})
    values |= changes
    name, model = str(values.get("embedder", "static")), values.get("model") is not None
    embedder_id = embedder_named(name, settings).id
    second = second_embedder_for(embedder_id)
    values |= {"embedder_id": embedder_id, "second_embedder": second, "settings_digest": digest}
    if not values.get("arms"):
        design = settings.design if settings is not None else "auto"
        arms = default_arms(model=model, second_embedder=second is not None, design=design)
        values["arms"] = (IDEAL, *arms) if material.worlds is not None else arms
    try:
        config = EvalConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise EnvironmentFault(
            f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        ) from error
    if IDEAL in config.arms and config.worlds is None:
        raise EnvironmentFault(
            f"arm {IDEAL!r} needs a world whose truth is known; it plays in  memagent-eval "
            "synthetic"
        )
    models = {own.model for own in config.own_models.values()}
    if config.model is not None:
        models.add(config.model)
    return config.model_copy(
        update={
            "prompts": prompts_of(config.arms, model=model, own=config.own_models),
            "weights": weights_of(sorted(models)),
        }
    )


def _check_earlier(earlier: EvalConfig, material: Material, digest: str | None) -> None:
    if earlier.benchmark != material.name or earlier.data_digest != material.digest:
        raise EnvironmentFault(f"the configuration is of other data than {material.what}")
    if earlier.settings_digest != digest:
        remedy = "the same --settings" if earlier.settings_digest else "no --settings"
        raise EnvironmentFault(
            f"the configuration was run with other agent settings; give {remedy}"
        )


def _evaluate(
    material: Material,
    config: EvalConfig,
    *,
    settings: AgentSettings | None,
    folder: Path,
    workers: int,
) -> Report:
    """Play, judge, and write the report into the folder."""
    if workers > 1:
        # For the processes: more threads than cores only slow each other.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    # This fails before anything is played.
    judge = build_judge(config.judge, settings) if config.judge is not None else None
    episodes = plan(material.episodes(), config)
    questions = sum(count for _, count in episodes)
    if not questions and (config.categories or config.worlds is not None):
        raise EnvironmentFault(
            "no question is asked: none of the episodes has one of the chosen kinds"
        )
    with Progress(questions * len(config.arms)) as progress:
        progress.say(
            f"{material.name}: {len(episodes)} conversations, {questions:,} questions, "
            f"{len(config.arms)} arms into {folder}"
        )
        progress.say(f"arms: {', '.join(config.arms)}")
        scores = run_evaluation(
            config,
            material.episodes(),
            out=folder,
            workers=workers,
            settings=settings,
            progress=progress,
        )
        judging = None
        if config.judge is not None and judge is not None:
            progress.say(f"judging with {config.judge.model}")
            sampling = settings.sampling.get(Role.JUDGE, STEADY) if settings is not None else STEADY
            scores, judging = asyncio.run(
                judge_scores(
                    scores, config=config.judge, model=judge, folder=folder, sampling=sampling
                )
            )
            for arm, arm_scores in scores.items():
                for score in arm_scores:
                    write_score(folder, arm, score)
    report = report_of(config, scores, judging)
    (folder / "report.json").write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(html_report(report), encoding="utf-8")
    _say_failures(report, progress)
    return report


def _say_failures(report: Report, progress: Progress) -> None:
    judging = report.judging
    for arm in report.arms:
        if arm.failed:
            progress.say(
                f"{arm.arm}: {arm.failed} questions or episodes failed and are in no figure; run "
                "again to retry them"
            )
    if judging is not None and judging.failed:
        progress.say(
            f"{judging.failed} verdicts failed and are in no figure; run again to retry them. "
            f"{judging.reason}"
        )


def words(text: str | None) -> tuple[str, ...] | None:
    """Return the words of an option, each once; None when it is not given."""
    if text is None:
        return None
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
