"""The command `memagent-train`.

    memagent-train run CONFIG.toml [--resume] [--dry-run]
    memagent-train init-model FOLDER       a tokenizer and a small model from scratch
    memagent-train warmup CONFIG.toml      the warm start alone
    memagent-train probe CONFIG.toml       what each credit knows at a policy
    memagent-train report RUN_DIR          one HTML page about a run
    memagent-train push RUN_DIR NAME       its best model to a hub

`memagent-train CONFIG.toml` is short for `run`. Progress goes to standard error, one
JSON document to standard output. Settings are read and checked before torch is loaded,
so a mistake in them is reported at once.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from memagent.core.errors import ConfigError, MemAgentError
from train.settings.former import current
from train.settings.options import option_names
from train.settings.run import RunSettings, check_folder, checked_run, load_run
from train.settings.world import lines_of, preview

_MISSING = 'training needs more packages: pip install "memagent[train]"'

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train the memory manager and the answer agent from shared memory snapshots (LoGo-GRPO). "
    "`memagent-train CONFIG.toml` is short for `memagent-train run CONFIG.toml`.",
)
Config = Annotated[
    Path,
    typer.Argument(
        help="Settings of the run, TOML; docs/training.md lists them.", show_default=False
    ),
]
Size = Literal["200k", "500k", "1m", "4m", "30m", "60m"]
Level = Literal["tiny", "standard", "rich"]


@app.command()
def run(
    config: Config,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the run in the folder, from its last checkpoint."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check everything and say what would be played and kept; train nothing.",
        ),
    ] = False,
) -> None:
    """Train, stage by stage, and test every stage's best.

    Prints the stages and the test as JSON.
    """
    settings = load_run(config)
    if os.environ.get("RANK", "0") == "0":  # the others would see the folder that the first took
        check_folder(settings, resume=resume)
    if dry_run:
        _preview(settings)
        return
    _need_libraries()
    from train.run.runs import train_run

    try:
        summary = train_run(settings, resume=resume, say=_say)
    except KeyboardInterrupt:
        _say(f"stopped; go on with: memagent-train run {config} --resume")
        sys.exit(130)
    _print({"folder": settings.folder, "stages": summary["stages"], "test": summary["test"]})


@app.command()
def init_model(
    folder: Annotated[Path, typer.Argument(help="Where the model is saved.", show_default=False)],
    size: Annotated[Size, typer.Option(help="Parameters, about.")] = "500k",
    level: Annotated[
        Level, typer.Option(help="Level of the synthetic world whose language it speaks.")
    ] = "tiny",
    context_tokens: Annotated[
        int, typer.Option(min=64, help="Longest prompt with its reply.")
    ] = 1_024,
    seed: Annotated[int, typer.Option(help="Of the random weights.")] = 0,
) -> None:
    """Make a tokenizer and a small model with random weights.

    They are for machines without a model hub; a run's model.path may name them.
    """
    if (folder / "config.json").exists():
        raise ConfigError(f"{folder} holds a model already; choose another folder")
    model = {"size": size, "context_tokens": context_tokens}
    settings = checked_run({"seed": seed, "model": model, "environment": {"level": level}})
    _need_libraries()
    from train.run.models import new_model
    from train.sampling.decisions import save_model

    fresh, tokenizer = new_model(settings)
    save_model(fresh, tokenizer, folder)
    parameters = sum(each.numel() for each in fresh.parameters())
    _print({"folder": str(folder), "parameters": parameters, "tokens": len(tokenizer)})


@app.command()
def warmup(config: Config) -> None:
    """Make the model of a run and fine-tune it on demonstrations, no more.

    The run itself takes it up.
    """
    settings = load_run(config)
    if settings.warmup is None:
        raise ConfigError(f"{config}: warmup: there is nothing to do; add a [warmup] table")
    init = Path(settings.folder) / "init"
    if (init / "config.json").exists():
        raise ConfigError(f"{init} holds a model already; remove it, or choose another folder")
    _need_libraries()
    from train.run.models import first_model

    first_model(settings, Path(settings.folder), say=_say)
    note: dict[str, Any] = json.loads((init / "memagent.json").read_text(encoding="utf-8"))
    _print({"folder": str(init), **note})


@app.command()
def probe(
    config: Config,
    episodes: Annotated[int, typer.Option(min=3, help="Independent episodes.")] = 60,
    sessions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Sessions; those of the first stage by default.", show_default=False
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a saved model, such as RUN/stage0/best; the run's start by default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure what each credit knows at a policy: signal, noise, and where it points.

    Trains nothing and goes on where it was stopped. Prints a table, and JSON.
    """
    settings = load_run(config)
    _need_libraries()
    from train.run.probe import run_probe

    length = sessions or settings.stage[0].sessions
    found = run_probe(settings, episodes=episodes, sessions=length, policy=policy, say=_say)
    _print(found)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page; report.html in the run's folder by default.", show_default=False
        ),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a run to show beside it, such as one of random rewards.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run.

    It shows curves, ops, credit, timings, samples and settings. Needs no torch.
    """
    from train.report.report import write_report

    page = write_report(folder, out or folder / "report.html", control=control)
    _print({"report": str(page)})
    if (folder / "best").is_dir():
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        design = settings["agent"]["design"]
        _say(f'open it: Agent(model="hf:{folder / "best"}", design="{design}")')


@app.command()
def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", show_default=False)],
    name: Annotated[
        str, typer.Argument(help="Name on the hub, `owner/model`.", show_default=False)
    ],
    public: Annotated[bool, typer.Option(help="Let everybody see a new model.")] = False,
) -> None:
    """Push the best model of a run to the Hugging Face hub.

    It goes with its settings and summary. Log in with `hf auth login` first.
    """
    best = folder / "best"
    if not best.is_dir():
        raise ConfigError(f"{folder} holds no best model: the run has not ended")
    try:
        from httpx import HTTPError
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise ConfigError(f"{_MISSING} ({error})") from error
    hub = HfApi()
    try:
        hub.create_repo(name, private=not public, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=best)
        for note in ("settings.json", "summary.json"):
            hub.upload_file(repo_id=name, path_or_fileobj=folder / note, path_in_repo=note)
    except (HfHubHTTPError, HTTPError, ValueError, OSError) as error:
        raise ConfigError(f"the hub did not take {name}: {error}") from error
    _print({"model": name, "folder": str(best)})


def _preview(settings: RunSettings) -> None:
    """Say what a run would do. Load TRL only to check settings that are TRL's alone."""
    missing = [name for name in ("torch", "trl", "peft") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{_MISSING} (lacks {', '.join(missing)})")
    plan = preview(settings)
    if not option_names() >= current(settings.trainer).keys():
        _need_libraries()
        from train.run.runs import stage_config, stage_folder

        for number, stage in enumerate(settings.stage):
            stage_config(settings, stage, stage_folder(settings, number))
    for line in lines_of(plan):
        _say(line)
    _print(plan)


def _need_libraries() -> None:
    """Load the training libraries, quietly.

    Raises `ConfigError` naming the extra when they are not installed.
    """
    _say("loading torch and trl ...")
    try:
        from train.run.validation import hush
    except ImportError as error:
        raise ConfigError(f"{_MISSING} ({error})") from error
    hush()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(values: dict[str, Any]) -> None:
    print(json.dumps(values, indent=1))


def main() -> None:
    """Run the command; expected errors become one line and exit status 2."""
    commands = {
        command.name or command.callback.__name__.replace("_", "-")
        for command in app.registered_commands
        if command.callback
    }
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    if first not in commands and (first.endswith(".toml") or Path(first).is_file()):
        sys.argv.insert(1, "run")
    try:
        app()
    except MemAgentError as error:
        print(f"memagent-train: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
