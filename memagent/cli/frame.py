"""The frame every command runs in: the common options, the settings they lead to, the
open store, output, errors and exit codes.

Standard output carries results only: what a person reads, or with `--json` one JSON
document. Progress, notes and errors go to standard error. Exit codes: 0 done, 1 it
failed, 2 wrong usage, 130 interrupted. Importing this loads typer and rich alone.
Everything that costs time (pydantic, numpy, the store) is imported by the command that
needs it.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from typer.core import TyperGroup

import memagent
from memagent.cli import views
from memagent.cli.options import call_with_options, option_parameters, with_signature
from memagent.core.errors import InputError, MemAgentError, MemoryNotFound, StoreError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memagent.build import Store
    from memagent.config import AgentSettings
    from memagent.core.records import Scope
    from memagent.memory.bank import MemoryBank

SETTINGS_FILE = Path("memagent.toml")
"""Read from the current folder when `--config` names no other."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_COMMON = "Common options"
_SHORTEST_PREFIX = 8
_USAGE_ERROR = cast(
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
        """Whose memory."""
        return self.user if self.user is not None else "default"

    @property
    def scope(self) -> Scope:
        """The scope of `user_id`. Raises `InputError` for an id that cannot be one."""
        from memagent.core.records import Scope

        if not 0 < len(self.user_id) <= 256:
            raise InputError("--user takes an id of 1 to 256 characters")
        return Scope(user_id=self.user_id)


# -- commands --------------------------------------------------------------------------

Outcome = int | None
Body = TypeVar("Body", bound=Callable[..., Outcome | Coroutine[Any, Any, Outcome]])


class CommandGroup(TyperGroup):
    """The app: wrong usage is one line on standard error (and JSON where it was asked
    for), whatever starts it.
    """

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command; gives its exit code, or exits with it in standalone mode."""
        given: list[str] = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(args, "memagent", complete_var, False, windows_expand_args, **extra)
        except _USAGE_ERROR as exc:
            place: str = getattr(getattr(exc, "ctx", None), "command_path", "memagent")
            message: str = getattr(exc, "format_message", exc.__str__)().rstrip(".")
            say_error("UsageError", f"{message} (see: {place} --help)", as_json="--json" in given)
            code = 2
        except typer.Abort:
            code = 1
        if standalone_mode:
            sys.exit(code)
        return code

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The version needs no parsing, which spares loading what parses values."""
        if args[:1] == ["--version"]:
            typer.echo(f"memagent {memagent.__version__}")
            raise typer.Exit
        return super().parse_args(ctx, args)


def command(app: typer.Typer, name: str | None = None) -> Callable[[Body], Body]:
    """Make a function a command: it gets `Options` and its own parameters, and gives its exit code (None is 0).

    It may be a coroutine.
    """

    def register(body: Body) -> Body:
        common = {parameter.name for parameter in option_parameters(Options)}

        def run(**values: Any) -> None:
            options = call_with_options(Options, values)
            code = _execute(options, partial(call_with_options, body, values))
            if code:
                raise typer.Exit(code)

        own_first = sorted(option_parameters(body), key=lambda one: one.name in common)
        app.command(name)(with_signature(run, body, own_first))
        return body

    return register


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
    """Print the result: the document as JSON, or what `view` makes for people."""
    if options.json:
        emit_json(document)
    else:
        views.console().print(view())


def emit_json(document: object) -> None:
    """One line of JSON, in ASCII so that it survives any terminal and pipe."""
    from pydantic_core import to_jsonable_python

    sys.stdout.write(json.dumps(to_jsonable_python(document)) + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """A line for the person at the terminal, on standard error."""
    sys.stderr.write(f"{views.one_line(text)}\n")
    sys.stderr.flush()


def say_error(kind: str, message: str, *, as_json: bool) -> None:
    """One line on standard error, and the same as JSON on standard output where that was asked for."""
    tell(f"memagent: {message}")
    if as_json:
        emit_json({"error": {"type": kind, "message": message}})


def failed(options: Options, exc: Exception) -> int:
    """Report a failure in one line and give the exit code; the traceback is for `--verbose` only."""
    if options.verbose:
        traceback.print_exception(exc)
    say_error(type(exc).__name__, message_of(exc), as_json=options.json)
    return 1


def message_of(exc: Exception) -> str:
    """What went wrong, for a person."""
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


# -- settings and store ----------------------------------------------------------------


def settings_file(options: Options) -> Path | None:
    """The settings file in use, if any."""
    return options.config or (SETTINGS_FILE if SETTINGS_FILE.is_file() else None)


def settings_of(options: Options) -> AgentSettings:
    """Settings from file, variables and options. Raises `ConfigError`."""
    from memagent.config import load_settings

    settings = load_settings(settings_file(options))
    return (
        settings
        if options.design is None
        else settings.model_copy(update={"design": options.design})
    )


def store_path(options: Options, settings: AgentSettings) -> Path | str | None:
    """The store's file, or the URL of its server; None when nothing is kept."""
    from memagent.build import default_path, is_server
    from memagent.config import MemoryStoreSettings, PostgresSettings

    if is_server(options.path):
        return options.path
    if options.path is None and isinstance(settings.store, PostgresSettings):
        return settings.store.url
    if options.path == ":memory:" or (
        options.path is None and isinstance(settings.store, MemoryStoreSettings)
    ):
        return None
    named = options.path if options.path is not None else getattr(settings.store, "path", None)
    return (Path(named) if named is not None else default_path()).expanduser()


@contextmanager
def opened(
    options: Options,
    *,
    write: bool = False,
    make: bool = False,
    vectors: bool = False,
    any_embedder: bool = False,
) -> Generator[Store]:
    """The store the options lead to, closed on leaving.

    Without `write` it is opened for reading, which works beside a running writer.
    `make` allows to make a store that is not there. Without `vectors` nothing will be
    searched, so it is no matter by which embedder the store goes and none is loaded;
    `any_embedder` takes the one asked for although the store goes by another. Raises
    `ConfigError`, `StoreLocked`, `StoreError`.
    """
    from memagent.build import open_store

    settings = settings_of(options)
    path = store_path(options, settings)
    if not make and isinstance(path, Path) and not path.exists():
        raise StoreError(
            f"there is no memory at {path}; `memagent init` or `memagent ingest` makes one, --path names another"
        )
    embeds = vectors or make
    store = open_store(
        settings if embeds else settings.model_copy(update={"index": None}),
        path=path if path is not None else ":memory:",
        embedder=options.embedder if embeds else "hashing",
        read_only=not write,
        check_embedder=embeds and not any_embedder,
    )
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened_bank(
    options: Options, *, write: bool = False, make: bool = False
) -> Generator[MemoryBank]:
    """The user's memory in the store, for verbs that search nothing; see `opened`."""
    scope = options.scope
    with opened(options, write=write, make=make) as store:
        yield store.bank(scope)


async def tell_if_empty(bank: MemoryBank, store: Store) -> None:
    """Where a user has no memories, say so and name those who have some."""
    if (await bank.sync()).seq == 0:
        others = [scope.user_id for scope in await store.journal.scopes()]
        known = (
            f"; users of this store: {', '.join(others[:10])}{', ...' if len(others) > 10 else ''}"
            if others
            else ""
        )
        tell(f"nothing is stored for user {bank.scope.user_id!r}{known}")


# -- what people type ------------------------------------------------------------------


def find_id(known: Mapping[str, object], given: str, *, user_id: str) -> str:
    """The known id that was given in full or by its beginning (8 characters or more).

    Raises `MemoryNotFound`, `InputError`.
    """
    if given in known:
        return given
    found = (
        sorted(one for one in known if one.startswith(given))
        if len(given) >= _SHORTEST_PREFIX
        else []
    )
    if len(found) > 1:
        raise InputError(
            f"{given!r} begins the ids of {len(found)} memories ({', '.join(found[:3])}, ...); give more of it"
        )
    if not found:
        raise MemoryNotFound(
            f"no memory {given!r} for user {user_id!r}; `memagent list` shows the ids"
        )
    return found[0]


def moment_of(text: str, *, option: str, end: bool = False) -> datetime:
    """The moment a date or phrase names: of a day or longer its first moment, or with `end` its last.

    Raises `InputError`.
    """
    from memagent.core.records import as_utc
    from memagent.memory.bank import system_clock
    from memagent.timex.resolve import resolve_time

    said = text.strip()
    if ":" in said or "T" in said:
        try:
            return as_utc(datetime.fromisoformat(said))
        except ValueError:
            pass
    span = resolve_time(said, anchor=system_clock())
    if span is not None:
        bound = span.end - timedelta(microseconds=1) if end and span.end is not None else span.start
        if bound is not None:
            return bound
    raise InputError(
        f"{option}: {text!r} names no date; write 2023-05-08, 2023-05-08T13:56, '8 May 2023' or 'last Friday'"
    )


def point_of(text: str, *, option: str, end: bool = True) -> datetime | int:
    """A journal sequence number (digits only), or a moment as `moment_of` reads it."""
    return int(text) if text.strip().isdecimal() else moment_of(text, option=option, end=end)
