"""Verbs that play a benchmark with several arms: the options they share, the
configuration that comes of them, the run and its report.

What is played is a `Material`, whether it was read from files or generated; everything
after that is the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from environments.datasets.locomo import LoCoMo
from environments.datasets.longmemeval import LongMemEval
from environments.errors import EnvironmentFault
from environments.evaluation.arms import IDEAL, default_arms, read_arms, second_embedder_for
from environments.evaluation.figures import Report, report_of
from environments.evaluation.html_report import html_report
from environments.evaluation.judge import STEADY, build_judge, judge_config, judge_scores
from environments.evaluation.known_worlds import Worlds
from environments.evaluation.progress import Progress
from environments.evaluation.runs import (
    FROM_SETTINGS,
    EvalConfig,
    embedder_named,
    load_config,
    plan,
    prompts_of,
    run_evaluation,
    settings_digest,
    weights_of,
    write_score,
)
from environments.evaluation.tables import print_report
from environments.records import Episode
from memagent.build import AgentSettings, load_settings
from memagent.core.exchange import Role
from memagent.core.records import content_id

Benchmark = LoCoMo | LongMemEval
DataPath = Annotated[
    Path,
    typer.Argument(help="The benchmark's file, or a folder of such files.", show_default=False),
]
Arms = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated: arms and design names, or LABEL=DESIGN@MODEL for a design with a model of its own; "
        "see docs/evaluation.md."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="The run's folder; by default one under runs/ named by its configuration."),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A config.json of an earlier run, to repeat it.")
]
Workers = Annotated[
    int, typer.Option(min=1, help="Processes; each plays one conversation at a time.")
]
Model = Annotated[
    str | None,
    typer.Option(
        help="litellm name of a model for all roles, or hf:FOLDER; none answers by rules."
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings", help="The agent's TOML: embedder, models of roles, sampling, addresses, keys."
    ),
]
EmbedderName = Annotated[
    str | None, typer.Option(help="static, minilm, hashing, or a plug-in's name.")
]
Categories = Annotated[
    str | None, typer.Option(help="Comma-separated categories to ask; all by default.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Play only this many conversations.")]
Judge = Annotated[
    str | None,
    typer.Option(help="litellm name of a model that judges the answers, leniently and strictly."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


@dataclass(frozen=True, kw_only=True)
class Material:
    """What an evaluation plays."""

    name: str
    """The benchmark's, or `synthetic`."""
    what: str
    """What it is called when a configuration is of another."""
    digest: str
    """SHA-256 of the data, 64 hex digits."""
    episodes: Callable[[], Iterable[Episode]]
    worlds: Worlds | None = None
    """Which worlds were generated; None for data of files."""


def benchmark_verb(env_class: type[Benchmark], summary: str) -> Callable[..., None]:
    """The verb that evaluates arms on a benchmark; `summary` is its help."""

    def evaluate(
        path: DataPath,
        arms: Arms = None,
        out: Out = None,
        config: ConfigFile = None,
        workers: Workers = 1,
        model: Model = None,
        settings: SettingsFile = None,
        embedder: EmbedderName = None,
        categories: Categories = None,
        limit: Limit = None,
        judge: Judge = None,
        as_json: AsJson = False,
    ) -> None:
        env = env_class(path)
        material = Material(
            name=env.name,
            what=str(env.source.path),
            digest=env.source.digest(),
            episodes=env.episodes,
        )
        chosen = chosen_options(
            arms=arms,
            model=model,
            embedder=embedder,
            categories=categories,
            limit=limit,
            judge=judge,
        )
        before = load_config(config) if config is not None else None
        run_verb(
            material,
            chosen,
            before=before,
            settings=settings,
            out=out,
            workers=workers,
            as_json=as_json,
        )

    evaluate.__doc__ = summary
    return evaluate


def chosen_options(
    *, arms: str | None, categories: str | None, judge: str | None, **others: object
) -> dict[str, object]:
    """The fields of a configuration that the options set.

    Raises `EnvironmentFault` for words that are no arms.
    """
    given: dict[str, object] = {
        **others,
        "categories": words(categories),
        "judge": judge_config(judge) if judge is not None else None,
    }
    if named := words(arms):
        given["arms"], given["own_models"] = read_arms(named)
    return {name: value for name, value in given.items() if value is not None}


def run_verb(
    material: Material,
    chosen: dict[str, object],
    *,
    before: EvalConfig | None,
    settings: Path | None,
    out: Path | None,
    workers: int,
    as_json: bool,
) -> None:
    """Configure, play, and print the report."""
    agent = load_settings(settings) if settings is not None else None
    frozen = configuration(material, chosen, settings=agent, before=before)
    played = frozen.model_dump_json(exclude={"judge"})
    folder = out or Path("runs") / f"{material.name}-{content_id('run', played)[4:12]}"
    report = _evaluate(material, frozen, settings=agent, folder=folder, workers=workers)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        print_report(report)


def configuration(
    material: Material,
    chosen: dict[str, object],
    *,
    settings: AgentSettings | None,
    before: EvalConfig | None,
) -> EvalConfig:
    """What is going to be run: the defaults or an earlier run's configuration, with the
    chosen fields on top.

    Raises `EnvironmentFault` when the earlier run was of other data, or of agent
    settings that are not given now.
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
    if before is not None:
        if before.benchmark != material.name or before.data_digest != material.digest:
            raise EnvironmentFault(f"the configuration is of other data than {material.what}")
        if before.settings_digest != digest:
            wanted = "the same --settings" if before.settings_digest else "no --settings"
            raise EnvironmentFault(
                f"the configuration was run with other agent settings; give {wanted}"
            )
        values = before.model_dump(exclude={"memagent"})
    values |= chosen
    name, model = str(values.get("embedder", "static")), values.get("model") is not None
    embedder_id = embedder_named(name, settings).id
    second = second_embedder_for(embedder_id)
    values |= {"embedder_id": embedder_id, "second_embedder": second, "settings_digest": digest}
    if not values.get("arms"):
        design = settings.design if settings is not None else "auto"
        arms = default_arms(model=model, second_embedder=second is not None, design=design)
        values["arms"] = (IDEAL, *arms) if material.worlds is not None else arms
    try:
        found = EvalConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise EnvironmentFault(
            f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        ) from error
    if IDEAL in found.arms and found.worlds is None:
        raise EnvironmentFault(
            f"arm {IDEAL!r} needs a world whose truth is known; it plays in  memagent-eval synthetic"
        )
    models = {own.model for own in found.own_models.values()}
    if found.model is not None:
        models.add(found.model)
    return found.model_copy(
        update={
            "prompts": prompts_of(found.arms, model=model, own=found.own_models),
            "weights": weights_of(sorted(models)),
        }
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
        os.environ.setdefault(
            "OMP_NUM_THREADS", "1"
        )  # for the processes: more threads than cores only slow each other
    judge = (
        build_judge(config.judge, settings) if config.judge is not None else None
    )  # fails before anything is played
    episodes = plan(material.episodes(), config)
    questions = sum(count for _, count in episodes)
    if not questions and (config.categories or config.worlds is not None):
        raise EnvironmentFault(
            "no question is asked: none of the episodes has one of the chosen kinds"
        )
    with Progress(questions * len(config.arms)) as progress:
        progress.say(
            f"{material.name}: {len(episodes)} conversations, {questions:,} questions, {len(config.arms)} arms into {folder}"
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
            for arm, found in scores.items():
                for score in found:
                    write_score(folder, arm, score)
    report = report_of(config, scores, judging)
    (folder / "report.json").write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(html_report(report), encoding="utf-8")
    for arm in report.arms:
        if arm.failed:
            progress.say(
                f"{arm.arm}: {arm.failed} questions or episodes failed and are in no figure; run again to retry them"
            )
    if judging is not None and judging.failed:
        progress.say(
            f"{judging.failed} verdicts failed and are in no figure; run again to retry them. {judging.reason}"
        )
    return report


def words(text: str | None) -> tuple[str, ...] | None:
    """The words of an option, each once; None when it is not given."""
    if text is None:
        return None
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
