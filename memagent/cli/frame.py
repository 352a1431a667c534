"""The frame of every command: common options, output, errors and exit codes.

Standard output carries results only: text for a person, or with `--json` one JSON
document. Progress, notes and errors go to standard error. Exit codes: 0 done, 1 failed,
2 wrong usage, 130 interrupted. Importing this module loads only typer and rich; each
command imports what costs time (pydantic, numpy, the store) itself.

Stored text is data, never markup: it is shown through `Text`, with control characters,
terminal escapes and bidirectional overrides spelled out. So no stored text can colour,
move or hide what the terminal shows.

Typer reads one parameter per option. A command with many options takes a frozen
dataclass instead: each field, annotated with `typer.Option` or `typer.Argument`, is one
option of the command, and a field whose type is a dataclass again adds that one's fields.

    @dataclass(frozen=True, kw_only=True)
    class Paging:
        limit: Annotated[int, typer.Option(help="At most this many.")] = 20

    def show(options: Options, name: str, paging: Paging) -> None: ...

    add_command(app, "show", show)  # memagent show --name NAME --limit 20
"""

from __future__ import annotations

import inspect
import io
import json
import os
import sys
import traceback
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, TypeVar, cast

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

import memagent
from memagent.core.errors import InputError, MemAgentError

if TYPE_CHECKING:
    from datetime import datetime


_PIPE_COLUMNS = 160
# What a terminal would act on: controls but for the line feed, surrogates, bidirectional marks.
_ACTING = (
    *(code for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x0A),
    *range(0xD800, 0xE000),
    *(0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
)
_SPELLED = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _ACTING}


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or error; it is wide when no terminal sets a width."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_COLUMNS
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def neutral(text: str) -> str:
    """Spell out every character that a terminal would act on, but for line feeds and tabs."""
    return text if text.isprintable() else text.expandtabs(4).translate(_SPELLED)


def one_line(text: str) -> str:
    """Return the text on one line, neutral to a terminal."""
    return neutral(" ".join(text.split()))


def plain(text: str, style: str = "") -> Text:
    """Return the text as it is, in one style."""
    return Text(neutral(text), style=style)


def line(*parts: str | tuple[str, str]) -> Text:
    """Join parts, each a string or (string, style), to one line."""
    styled = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((neutral(text), style) for text, style in styled))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    fixed: Collection[str] = (),
    header: bool = True,
    nothing: str = "",
) -> RenderableType:
    """Return a table without lines; columns in `fixed` are never wrapped.

    Without a row it says `nothing`, if that is given.
    """
    grid = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=header, header_style="bold"
    )
    for name in columns:
        kept = name in fixed
        grid.add_column(name, no_wrap=kept, overflow="ellipsis" if kept else "fold")
    for row in rows:
        grid.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    return plain(nothing) if nothing and not grid.row_count else grid


def day(moment: datetime | None) -> str:
    """Format a moment to the minute; midnight is a bare date and None a dash."""
    if moment is None:
        return "-"
    midnight = (moment.hour, moment.minute) == (0, 0)
    return f"{moment:%Y-%m-%d}" if midnight else f"{moment:%Y-%m-%d %H:%M}"


def pairs(values: Mapping[str, object], *, title: str = "") -> RenderableType:
    """Show names and values, one a line, below an optional title."""
    cells = ((Text(name, "dim"), plain(str(value))) for name, value in values.items())
    rows = table(("name", "value"), cells, fixed=("name",), header=False)
    return Group(plain(title, "bold"), rows) if title else rows


# -- progress --------------------------------------------------------------------------


@contextmanager
def progress(total: int, unit: str) -> Generator[Callable[[str, int], None]]:
    """Show a bar on standard error if that is a terminal; yield its `advance(status, steps)`."""
    from rich import progress as bars

    screen = console(stderr=True)
    columns = (
        bars.BarColumn(bar_width=24),
        bars.MofNCompleteColumn(),
        bars.TextColumn(unit),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[status]}", markup=False),
    )
    hidden = not screen.is_terminal
    with bars.Progress(*columns, console=screen, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=total, status="")

        def advance(status: str, steps: int) -> None:
            bar.update(task, advance=steps, status=one_line(status))

        yield advance


T = TypeVar("T")


def option_parameters(command: Callable[..., object]) -> Iterator[inspect.Parameter]:
    """Yield one keyword parameter per option, with records replaced by their fields."""
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if _is_record(parameter.annotation):
            yield from option_parameters(parameter.annotation)
        else:
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def call_with_options(command: Callable[..., T], values: Mapping[str, Any]) -> T:
    """Build the command's records from the values of their fields and call it."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    return command(
        **{
            parameter.name: call_with_options(parameter.annotation, values)
            if _is_record(parameter.annotation)
            else values[parameter.name]
            for parameter in parameters
        }
    )


def _is_record(annotation: object) -> TypeGuard[type[Any]]:
    return isinstance(annotation, type) and is_dataclass(annotation)


SETTINGS_FILE = Path("memagent.toml")
"""Read from the current folder when `--config` names no other."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_COMMON = "Common options"
USAGE_ERROR = cast(
    "type[Exception]", typer.BadParameter.__bases__[0]
)  # its home differs between versions of typer


def _common(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=help, metavar=metavar, rich_help_panel=_COMMON, show_default=False
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that every command takes.

    Arguments win over variables, and those over the settings file.
    """

    user: Annotated[
        str | None, _common("--user", help="Whose memory; 'default' when left out.", metavar="ID")
    ] = None
    path: Annotated[
        str | None,
        _common(
            "--path",
            "--db",
            help="The store: a SQLite file, or a postgresql:// URL.",
            metavar="FILE",
        ),
    ] = None
    config: Annotated[
        Path | None,
        _common("--config", help="Settings; ./memagent.toml when there is one.", metavar="FILE"),
    ] = None
    model: Annotated[
        str | None, _common("--model", help="Language model, by litellm's name.", metavar="NAME")
    ] = None
    base_url: Annotated[
        str | None,
        _common(
            "--base-url",
            "--api-base",
            help="Address of the model's server, such as http://127.0.0.1:8000/v1.",
            metavar="URL",
        ),
    ] = None
    design: Annotated[str | None, _common("--design", help="Memory design.", metavar="NAME")] = None
    embedder: Annotated[
        str | None,
        _common(
            "--embedder", help="Embedder: static, minilm, hashing, or a plug-in.", metavar="NAME"
        ),
    ] = None
    json: Annotated[
        bool, _common("--json", help="Print JSON on standard output and nothing else.")
    ] = False
    verbose: Annotated[
        bool, _common("--verbose", help="Say more on standard error; show tracebacks.")
    ] = False

    @property
    def user_id(self) -> str:
        """The id of the user whose memory the command uses."""
        return self.user if self.user is not None else "default"

    @property
    def scope(self) -> memagent.Scope:
        """The scope of `user_id`. Raises `InputError` for an id of the wrong length."""
        if not 0 < len(self.user_id) <= 256:
            raise InputError("--user takes an id of 1 to 256 characters")
        return memagent.Scope(user_id=self.user_id)


# -- commands --------------------------------------------------------------------------

Outcome = int | None
Body = Callable[..., Outcome | Coroutine[Any, Any, Outcome]]


# Commands that people try, with those that there are.
_MEANT = {
    "add": "'chat', or 'ingest' for a file",
    "remember": "'chat', or 'ingest' for a file",
    "delete": "'rm'",
    "forget": "'rm', or 'erase' for good",
    "get": "'show'",
    "update": "'edit'",
}


class CommandGroup(TyperGroup):
    """The group of commands, which reports wrong usage in one line on standard error.

    With `--json` the line comes as JSON on standard output too.
    """

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,  # noqa: ARG002 (Typer's interface; ours is one name)
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and return its exit code; in standalone mode exit with it."""
        words: list[str] = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(args, "memagent", complete_var, False, windows_expand_args, **extra)
        except USAGE_ERROR as exc:
            place: str = getattr(getattr(exc, "ctx", None), "command_path", "memagent")
            message: str = getattr(exc, "format_message", exc.__str__)().rstrip(".")
            if "unexpected extra argument" in message:
                message += "; put words that belong together in quotes"
            say_error("UsageError", f"{message} (see: {place} --help)", as_json="--json" in words)
            code = 2
        except typer.Abort:
            code = 1
        if standalone_mode:
            sys.exit(code)
        return code

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or name the one that a usual word for it means."""
        if args[0] in _MEANT and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {_MEANT[args[0]]}?")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the version without parsing, which spares the parser's imports."""
        if args[:1] == ["--version"]:
            typer.echo(f"memagent {memagent.__version__}")
            raise typer.Exit
        return super().parse_args(ctx, args)


def add_command(app: typer.Typer, name: str, body: Body, *, panel: str | None = None) -> None:
    """Register a function as a command of a panel; it may be a coroutine function.

    The function takes `Options` and parameters of its own and returns its exit code
    (None is 0). A parameter that is a dataclass stands for one option per field.
    """
    common = {parameter.name for parameter in option_parameters(Options)}
    parameters = sorted(option_parameters(body), key=lambda option: option.name in common)

    def run(**values: Any) -> None:
        options = call_with_options(Options, values)
        code = _execute(options, partial(call_with_options, body, values))
        if code:
            raise typer.Exit(code)

    run.__name__, run.__doc__ = body.__name__, body.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    app.command(name, rich_help_panel=panel)(run)


def _execute(options: Options, work: Callable[[], Any]) -> int:
    """Run a command's work, awaited if it is a coroutine, and return its exit code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace" if stream is sys.stdin else "backslashreplace")
    if options.verbose:
        import logging

        logging.basicConfig(
            stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s"
        )
        logging.getLogger("memagent").setLevel(logging.INFO)
    try:
        outcome = work()
        if inspect.iscoroutine(outcome):
            import asyncio

            outcome = asyncio.run(outcome)
        if not sys.stdout.closed:  # as version 1 of `mcp` does once its client has hung up
            sys.stdout.flush()
        return outcome or 0
    except KeyboardInterrupt:
        say_error(
            "Interrupted", "interrupted; what was written before is kept", as_json=options.json
        )
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as exc:
        return failed(options, exc)


# -- output ----------------------------------------------------------------------------


def emit(options: Options, document: object, view: Callable[[], RenderableType]) -> None:
    """Print the result: the document as JSON, or its view for people."""
    if options.json:
        _emit_json(document)
    else:
        console().print(view())


def _emit_json(document: object) -> None:
    """Print one line of JSON, in ASCII so that it survives any terminal and pipe."""
    from pydantic_core import to_jsonable_python

    sys.stdout.write(json.dumps(to_jsonable_python(document)) + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Print a line for the person at the terminal, on standard error."""
    sys.stderr.write(f"{one_line(text)}\n")
    sys.stderr.flush()


def say_error(kind: str, message: str, *, as_json: bool) -> None:
    """Print an error on standard error, and with `as_json` as JSON on standard output."""
    tell(f"memagent: {message}")
    if as_json:
        _emit_json({"error": {"type": kind, "message": message}})


def failed(options: Options, exc: Exception) -> int:
    """Report a failure in one line, with `--verbose` after its traceback; return the exit code."""
    if options.verbose:
        traceback.print_exception(exc)
    say_error(type(exc).__name__, message_of(exc), as_json=options.json)
    return 1


def message_of(exc: Exception) -> str:
    """Describe an error for a person."""
    if isinstance(exc, MemAgentError):
        return str(exc)
    if isinstance(exc, OSError) and exc.strerror:
        return f"{exc.filename}: {exc.strerror}" if exc.filename else exc.strerror
    from pydantic import ValidationError

    if isinstance(exc, ValidationError):
        return "; ".join(
            f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
            for error in exc.errors()
        )
    return f"unexpected {type(exc).__name__}: {exc} (run again with --verbose to see where)"
