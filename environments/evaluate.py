"""The command `memagent-eval`: play conversations with several arms and compare them.

    memagent-eval locomo PATH          LoCoMo, the file or a folder of conversations
    memagent-eval longmemeval PATH     LongMemEval, one file
    memagent-eval synthetic            generated worlds, of which the truth is known
    memagent-eval state                hand-written dialogues: what holds now, what was lost
    memagent-eval play NAME            any environment or set of tasks, also an outside one

The tables go to standard output (`--json` prints the report instead), progress to
standard error. Everything is kept in the run's folder: the frozen configuration, a line
a question, the report as JSON and HTML. Running the same command again goes on where it
stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import typer

from environments.auditing.audit_command import audit_command
from environments.auditing.replay_command import replay_command
from environments.datasets.locomo import LoCoMo
from environments.datasets.longmemeval import LongMemEval
from environments.demonstrations.command import demonstrations_command
from environments.dialogues.state import state_command
from environments.evaluation.benchmark_command import benchmark_verb
from environments.evaluation.synthetic_command import synthetic_command
from environments.play_command import play_command
from memagent.cli.frame import USAGE_ERROR
from memagent.core.errors import MemAgentError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Evaluate memories on public benchmarks, from your own copy of the data, and on "
    "generated worlds.",
)
# A verb is a plain function with typer's annotations, and its docstring is its help. To
# add one, write it in a module of its own, import it above and name it here.
VERBS: Final[dict[str, Callable[..., None]]] = {
    "locomo": benchmark_verb(
        LoCoMo,
        "LoCoMo: ten long dialogues of two friends, 1,986 questions in five numbered categories.",
    ),
    "longmemeval": benchmark_verb(
        LongMemEval,
        "LongMemEval: 500 questions of six types, each with its own haystack of chat sessions.",
    ),
    "synthetic": synthetic_command,
    "state": state_command,
    "play": play_command,
    "audit": audit_command,
    "replay": replay_command,
    "demonstrations": demonstrations_command,
}
for _name, _verb in VERBS.items():
    app.command(_name)(_verb)


def main() -> None:
    """Entry point: what goes wrong is told in one line; exits with 1, for wrong usage with 2."""
    try:
        sys.exit(app(standalone_mode=not sys.argv[1:]))
    except USAGE_ERROR as error:
        place: str = getattr(getattr(error, "ctx", None), "command_path", "memagent-eval")
        message: str = getattr(error, "format_message", error.__str__)().rstrip(".")
        typer.echo(f"memagent-eval: {message} (see: {place} --help)", err=True)
        sys.exit(2)
    except typer.Abort:
        sys.exit(1)
    except MemAgentError as error:
        typer.echo(f"memagent-eval: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
