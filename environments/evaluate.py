"""The command `memagent-eval`: play a benchmark's conversations with several arms and print the figures side by side.

    memagent-eval locomo PATH          LoCoMo, the file or a folder of conversations
    memagent-eval longmemeval PATH     LongMemEval, one file

The table goes to standard output (`--json` prints the report instead), progress to standard error. Everything is kept in the run's folder:
the frozen configuration, a line a question, the report as JSON and HTML. Running the same command again goes on where it stopped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from environments.arms import default_arms
from environments.errors import EnvironmentFault
from environments.figures import Report, report_of
from environments.html_report import html_report
from environments.locomo import LoCoMo
from environments.longmemeval import LongMemEval
from environments.records import Episode
from environments.runs import EvalConfig, load_config, run_evaluation
from environments.tables import print_report
from memagent.core.errors import MemAgentError
from memagent.core.records import content_id

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Evaluate memories on public benchmarks, from your own copy of the data.",
)

DataPath = Annotated[Path, typer.Argument(help="The benchmark's file, or a folder of such files.", show_default=False)]
Arms = Annotated[str | None, typer.Option(help="Comma-separated arms and design names; see docs/evaluation.md.")]
Out = Annotated[
    Path | None, typer.Option(help="The run's folder; by default one under runs/ named by its configuration.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A config.json of an earlier run, to repeat it.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes; each plays one conversation at a time.")]
Model = Annotated[str | None, typer.Option(help="litellm name of a model for all roles; none answers by rules.")]
EmbedderName = Annotated[str | None, typer.Option(help="static, minilm, hashing, or a plug-in's name.")]
Categories = Annotated[str | None, typer.Option(help="Comma-separated categories to ask; all by default.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Play only this many conversations.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


@app.command()
def locomo(
    path: DataPath,
    arms: Arms = None,
    out: Out = None,
    config: ConfigFile = None,
    workers: Workers = 1,
    model: Model = None,
    embedder: EmbedderName = None,
    categories: Categories = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """LoCoMo: ten long dialogues of two friends, 1,986 questions in five numbered categories."""
    chosen = _chosen(arms=arms, model=model, embedder=embedder, categories=categories, limit=limit)
    _evaluate(LoCoMo(path), chosen, out=out, config=config, workers=workers, as_json=as_json)


@app.command()
def longmemeval(
    path: DataPath,
    arms: Arms = None,
    out: Out = None,
    config: ConfigFile = None,
    workers: Workers = 1,
    model: Model = None,
    embedder: EmbedderName = None,
    categories: Categories = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """LongMemEval: 500 questions of six types, each with its own haystack of chat sessions."""
    chosen = _chosen(arms=arms, model=model, embedder=embedder, categories=categories, limit=limit)
    _evaluate(LongMemEval(path), chosen, out=out, config=config, workers=workers, as_json=as_json)


def main() -> None:
    """Entry point: what goes wrong is told in one line and exits with 1."""
    try:
        app()
    except MemAgentError as error:
        typer.echo(f"memagent-eval: {error}", err=True)
        sys.exit(1)


def _chosen(
    *, arms: str | None, model: str | None, embedder: str | None, categories: str | None, limit: int | None
) -> dict[str, object]:
    """The options that were given, as fields of the configuration."""
    given: dict[str, object] = {"model": model, "embedder": embedder, "limit": limit}
    given["arms"] = _words(arms)
    given["categories"] = _words(categories)
    return {name: value for name, value in given.items() if value is not None}


def _words(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _evaluate(
    env: LoCoMo | LongMemEval,
    chosen: dict[str, object],
    *,
    out: Path | None,
    config: Path | None,
    workers: int,
    as_json: bool,
) -> None:
    settings = _settings(env, chosen, config)
    folder = out or Path("runs") / f"{env.name}-{content_id('run', settings.model_dump_json())[4:12]}"
    _say(f"{env.name}: {len(settings.arms)} arms ({', '.join(settings.arms)}) into {folder}")
    if workers > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes: more threads than cores only slow each other
    scores = run_evaluation(settings, _episodes(env), out=folder, workers=workers, progress=_say)
    report = report_of(settings, scores)
    text = report.model_dump_json(indent=2)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8")
    (folder / "report.html").write_text(html_report(report), encoding="utf-8")
    if as_json:
        typer.echo(text)
    else:
        print_report(report)
    _say_failures(report)


def _settings(env: LoCoMo | LongMemEval, chosen: dict[str, object], config: Path | None) -> EvalConfig:
    """The configuration: of the file if one is given, with the options on top. Raises `EnvironmentFault`."""
    digest = env.source.digest()
    if config is not None:
        before = load_config(config)
        if before.benchmark != env.name or before.data_digest != digest:
            raise EnvironmentFault(f"{config} is of other data than {env.source.path}")
        values: dict[str, object] = {**before.model_dump(exclude={"memagent"}), **chosen}
    else:
        model, embedder = chosen.get("model"), str(chosen.get("embedder", "static"))
        arms = default_arms(model=model is not None, embedder=embedder)
        values = {"benchmark": env.name, "data_digest": digest, "arms": arms, **chosen}
    try:
        return EvalConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise EnvironmentFault(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error


def _episodes(env: LoCoMo | LongMemEval) -> Iterator[Episode]:
    for number, episode in enumerate(env.episodes(), start=1):
        _say(f"[{number}] {episode.id}: {len(episode.sessions)} sessions, {len(episode.probes)} questions")
        yield episode


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _say_failures(report: Report) -> None:
    for arm in report.arms:
        if arm.failed:
            _say(f"{arm.arm}: {arm.failed} questions or episodes failed and are in no figure; run again to retry them")


if __name__ == "__main__":
    main()
