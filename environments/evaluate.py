"""The command `memagent-eval`: play a benchmark's conversations with several arms and print the figures side by side.

    memagent-eval locomo PATH          LoCoMo, the file or a folder of conversations
    memagent-eval longmemeval PATH     LongMemEval, one file

The tables go to standard output (`--json` prints the report instead), progress to standard error. Everything is kept in the run's folder:
the frozen configuration, a line a question, the report as JSON and HTML. Running the same command again goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import ValidationError

from environments.arms import default_arms, second_embedder_for
from environments.audit_command import audit_command
from environments.demonstrations_command import demonstrations_command
from environments.errors import EnvironmentFault
from environments.figures import Report, report_of
from environments.html_report import html_report
from environments.judge import STEADY, build_judge, judge_config, judge_scores
from environments.locomo import LoCoMo
from environments.longmemeval import LongMemEval
from environments.progress import Progress
from environments.replay_command import replay_command
from environments.runs import (
    FROM_SETTINGS,
    EvalConfig,
    embedder_named,
    load_config,
    plan,
    prompts_of,
    run_evaluation,
    settings_digest,
    write_score,
)
from environments.tables import print_report
from memagent.build import AgentSettings, load_settings
from memagent.core.errors import MemAgentError
from memagent.core.exchange import Role
from memagent.core.records import content_id

Benchmark = LoCoMo | LongMemEval
DataPath = Annotated[Path, typer.Argument(help="The benchmark's file, or a folder of such files.", show_default=False)]
Arms = Annotated[str | None, typer.Option(help="Comma-separated arms and design names; see docs/evaluation.md.")]
Out = Annotated[
    Path | None, typer.Option(help="The run's folder; by default one under runs/ named by its configuration.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A config.json of an earlier run, to repeat it.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes; each plays one conversation at a time.")]
Model = Annotated[str | None, typer.Option(help="litellm name of a model for all roles; none answers by rules.")]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="The agent's TOML: embedder, models of roles, sampling, addresses, keys."),
]
EmbedderName = Annotated[str | None, typer.Option(help="static, minilm, hashing, or a plug-in's name.")]
Categories = Annotated[str | None, typer.Option(help="Comma-separated categories to ask; all by default.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Play only this many conversations.")]
Judge = Annotated[
    str | None, typer.Option(help="litellm name of a model that judges the answers, leniently and strictly.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


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
        env, agent = env_class(path), load_settings(settings) if settings is not None else None
        given = {
            "arms": _words(arms),
            "model": model,
            "embedder": embedder,
            "categories": _words(categories),
            "limit": limit,
            "judge": judge_config(judge) if judge is not None else None,
        }
        chosen: dict[str, object] = {name: value for name, value in given.items() if value is not None}
        frozen = configuration(env, chosen, settings=agent, before=load_config(config) if config is not None else None)
        played = frozen.model_dump_json(exclude={"judge"})
        folder = out or Path("runs") / f"{env.name}-{content_id('run', played)[4:12]}"
        report = _evaluate(env, frozen, settings=agent, folder=folder, workers=workers)
        if as_json:
            typer.echo(report.model_dump_json(indent=2))
        else:
            print_report(report)

    evaluate.__doc__ = summary
    return evaluate


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Evaluate memories on public benchmarks, from your own copy of the data.",
)
# A verb is a plain function with typer's annotations, and its docstring is its help. To add one, write it in a module of its own, import it
# above and name it here.
VERBS: Final[dict[str, Callable[..., None]]] = {
    "locomo": benchmark_verb(
        LoCoMo, "LoCoMo: ten long dialogues of two friends, 1,986 questions in five numbered categories."
    ),
    "longmemeval": benchmark_verb(
        LongMemEval, "LongMemEval: 500 questions of six types, each with its own haystack of chat sessions."
    ),
    "audit": audit_command,
    "replay": replay_command,
    "demonstrations": demonstrations_command,
}
for _name, _verb in VERBS.items():
    app.command(_name)(_verb)


def main() -> None:
    """Entry point: what goes wrong is told in one line and exits with 1."""
    try:
        app()
    except MemAgentError as error:
        typer.echo(f"memagent-eval: {error}", err=True)
        sys.exit(1)


def configuration(
    env: Benchmark, chosen: dict[str, object], *, settings: AgentSettings | None, before: EvalConfig | None
) -> EvalConfig:
    """What is going to be run: the defaults or an earlier run's configuration, with the chosen fields on top.

    Raises `EnvironmentFault` when the earlier run was of other data, or of agent settings that are not given now.
    """
    data_digest = env.source.digest()
    digest = settings_digest(settings) if settings is not None else None
    values: dict[str, object] = {"benchmark": env.name, "data_digest": data_digest}
    if settings is not None:
        values["embedder"] = FROM_SETTINGS
        values["model"] = settings.model.model if settings.model is not None else None
    if before is not None:
        if before.benchmark != env.name or before.data_digest != data_digest:
            raise EnvironmentFault(f"the configuration is of other data than {env.source.path}")
        if before.settings_digest != digest:
            wanted = "the same --settings" if before.settings_digest else "no --settings"
            raise EnvironmentFault(f"the configuration was run with other agent settings; give {wanted}")
        values = before.model_dump(exclude={"memagent"})
    values |= chosen
    name, model = str(values.get("embedder", "static")), values.get("model") is not None
    embedder_id = embedder_named(name, settings).id
    second = second_embedder_for(embedder_id)
    design = settings.design if settings is not None else "auto"
    arms = values.get("arms") or default_arms(model=model, second_embedder=second is not None, design=design)
    values |= {"arms": arms, "embedder_id": embedder_id, "second_embedder": second, "settings_digest": digest}
    try:
        found = EvalConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise EnvironmentFault(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error
    return found.model_copy(update={"prompts": prompts_of(found.arms, model=model)})


def _evaluate(
    env: Benchmark, config: EvalConfig, *, settings: AgentSettings | None, folder: Path, workers: int
) -> Report:
    """Play, judge, and write the report into the folder."""
    if workers > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes: more threads than cores only slow each other
    judge = build_judge(config.judge, settings) if config.judge is not None else None  # fails before anything is played
    episodes = plan(env.episodes(), config)
    questions = sum(count for _, count in episodes)
    with Progress(questions * len(config.arms)) as progress:
        progress.say(
            f"{env.name}: {len(episodes)} conversations, {questions:,} questions, {len(config.arms)} arms into {folder}"
        )
        progress.say(f"arms: {', '.join(config.arms)}")
        scores = run_evaluation(
            config, env.episodes(), out=folder, workers=workers, settings=settings, progress=progress
        )
        judging = None
        if config.judge is not None and judge is not None:
            progress.say(f"judging with {config.judge.model}")
            sampling = settings.sampling.get(Role.JUDGE, STEADY) if settings is not None else STEADY
            scores, judging = asyncio.run(
                judge_scores(scores, config=config.judge, model=judge, folder=folder, sampling=sampling)
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


def _words(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


if __name__ == "__main__":
    main()
