"""What the words of a command lead to: settings, the open store, ids, moments and points.

A settings file that is merely found in the current folder may come from anybody. Only
entries known to be harmless are used from it: they run no code, send nothing and name
no file outside the folder. Everything else (`needs_consent`) waits until `memagent
trust` was run for that folder; consent is to these very entries, so a change asks anew.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast

from typer import Argument, BadParameter, Option

import memagent
from memagent.cli.frame import SETTINGS_FILE, Options, tell
from memagent.core import Later
from memagent.core.errors import (
    ConfigError,
    InputError,
    MemoryNotFound,
    StoreError,
    input_errors,
)

if TYPE_CHECKING:
    from memagent import build, config
    from memagent.experience import OutcomeArguments
    from memagent.journal.proof.audit import Seal
    from memagent.memory import facade
    from memagent.memory.bank import MemoryBank
    from memagent.state.fold import BankState
else:
    build, config = Later("memagent.build"), Later("memagent.config")
    facade = Later("memagent.memory.facade")


# Embedders that load nothing but what memagent brings along.
_LOCAL_EMBEDDERS: Final = frozenset({"static", "minilm", "hashing"})


def settings_file(options: Options) -> Path | None:
    """Return the settings file in use, if any."""
    return options.config or (SETTINGS_FILE if SETTINGS_FILE.is_file() else None)


def read_settings(options: Options) -> config.AgentSettings:
    """Read settings from file, variables and options. Raises `ConfigError`."""
    file = settings_file(options)
    settings = config.load_settings(file)
    risky = _risky_entries(file) if file is not None and options.config is None else {}
    if file is not None and risky:
        folder = str(file.resolve().parent)
        if _consents().get(folder) != _digest(risky):
            raise ConfigError(
                f"{file} of this folder sets {', '.join(risky)}, which can run code, send "
                "memories to a server or write files elsewhere; look at it, then run "
                "`memagent trust` once in this folder, "
                f"or name the file with --config {file}"
            )
    changes: dict[str, object] = {}
    if options.design is not None:
        changes["design"] = options.design
    if options.base_url is not None:
        model = settings.model
        if model is None and options.model is not None:
            model = config.ModelSettings(model=options.model)
        if model is None:
            raise ConfigError("--base-url needs a model: add --model openai/NAME")
        changes["model"] = model.model_copy(update={"base_url": options.base_url})
    return settings.model_copy(update=changes)


def needs_consent(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entries of a folder's settings that are not known to be harmless, by place."""
    risky: dict[str, Any] = {}
    for name, value in values.items():
        if name in ("roles", "service"):
            for part, inner in _entries(value).items():
                if name == "roles" or not isinstance(inner, int | float):
                    risky[f"{name}.{part}"] = _without_key(inner)
        elif not _harmless(name, value, folder):
            risky[name] = _without_key(value)
    return dict(sorted(risky.items()))


def _harmless(name: str, value: object, folder: Path) -> bool:
    """Tell whether an entry runs no code, sends nothing and names no file elsewhere."""
    entries = _entries(value)
    if name == "design":
        return ":" not in str(value)
    if name == "embedder":
        return entries.get("type") in _LOCAL_EMBEDDERS and entries.keys() <= {"type", "dim"}
    if name == "store":
        local = entries.get("type", "sqlite") in ("sqlite", "memory")
        known = entries.keys() <= {"type", "path", "synchronous"}
        if entries.get("path") is None:
            return local and known
        place = (folder / Path(str(entries["path"])).expanduser()).resolve()
        homes = (folder, build.default_path().parent.resolve())
        return local and known and any(place.is_relative_to(home) for home in homes)
    return name in ("recipe", "sampling")


def _without_key(value: object) -> Any:
    return {name: part for name, part in _entries(value).items() if name != "api_key"} or value


def _entries(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _risky_entries(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
        return needs_consent(values, file.resolve().parent)
    except (OSError, ValueError):
        return {}  # `load_settings` says what is wrong with it


def give_consent(file: Path) -> dict[str, Any]:
    """Remember that the user trusts a folder's settings file; return what it was asked for."""
    risky = _risky_entries(file)
    consents = _consents()
    if risky:
        consents[str(file.resolve().parent)] = _digest(risky)
        place = _consent_file()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(consents, indent=1), encoding="utf-8")
    return risky


def _consents() -> dict[str, str]:
    try:
        known = json.loads(_consent_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return _entries(known)


def _consent_file() -> Path:
    return build.default_path().with_name("trusted_folders.json")


def _digest(risky: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(risky, sort_keys=True, default=str).encode()).hexdigest()


def store_path(options: Options, settings: config.AgentSettings) -> Path | str | None:
    """Return the store's file or the URL of its server; None for a memory in memory."""
    if build.is_server(options.path):
        return options.path
    if options.path is None and settings.store.type == "postgres":
        return settings.store.url
    if options.path is None:
        path = settings.store.path if settings.store.type == "sqlite" else ":memory:"
    else:
        path = options.path
    if path == ":memory:":
        return None
    return (Path(path) if path is not None else build.default_path()).expanduser()


def store_file(options: Options) -> tuple[Path, Seal]:
    """Return the store's file, and what signs the notes of its ends. Raises `StoreError`."""
    from memagent.opening.open_store import seal_of

    settings = read_settings(options)
    path, store = store_path(options, settings), settings.store
    if not isinstance(path, Path):
        raise StoreError(
            "a server is copied by its own tools: pg_dump, then pg_restore, and verify with  "
            "memagent doctor --db URL"
        )
    return path, seal_of(
        store if isinstance(store, config.SqliteSettings) else config.SqliteSettings()
    )


@contextmanager
def opened(
    options: Options,
    *,
    write: bool = False,
    make: bool = False,
    vectors: bool = False,
    any_embedder: bool = False,
) -> Generator[build.Store]:
    """Open the store that the options lead to, and close it on leaving.

    Without `write` it is opened for reading, which works beside a running writer.
    `make` makes a store that does not exist. Without `vectors` no embedder is loaded,
    and the store may use any; `any_embedder` accepts an embedder that differs from the
    store's. Raises `ConfigError`, `StoreLocked`, `StoreError`.
    """
    settings = read_settings(options)
    path = store_path(options, settings)
    if not make and isinstance(path, Path) and not path.exists():
        raise StoreError(
            f"there is no memory at {path}; `memagent init` or `memagent ingest` makes one, "
            "--path names another"
        )
    embeds = vectors or make
    store = build.open_store(
        settings if embeds else settings.model_copy(update={"index": None}),
        path=path if path is not None else ":memory:",
        embedder=options.embedder if embeds else "hashing",
        read_only=not write,
        check_embedder=embeds and not any_embedder,
    )
    with closing(store):
        yield store


@contextmanager
def opened_memory(
    options: Options, *, write: bool = False, make: bool = False
) -> Generator[facade.Memory]:
    """Open the user's memory for a command that searches nothing; see `opened`."""
    scope = options.scope
    with opened(options, write=write, make=make) as store:
        yield facade.Memory(store.bank(scope))


@asynccontextmanager
async def reading_memory(
    options: Options, *, vectors: bool = False
) -> AsyncGenerator[facade.Memory]:
    """Open the user's memory for reading, and warn if it is empty; see `opened`."""
    from memagent.core.recipes import BALANCED

    with opened(options, vectors=vectors) as store:
        bank = store.bank(options.scope)
        await tell_if_empty(bank, store)
        yield facade.Memory(bank, recipe=store.settings.recipe or BALANCED)


async def tell_if_empty(bank: MemoryBank, store: build.Store) -> None:
    """Say that a user has no memories, and name users who have some."""
    if (await bank.sync()).seq:
        return
    others = [scope.user_id for scope in await store.journal.scopes()]
    names = f"; users of this store: {', '.join(others[:10])}{', ...' if others[10:] else ''}"
    tell(f"nothing is stored for user {bank.scope.user_id!r}{names if others else ''}")


def counts_of(state: BankState) -> dict[str, int]:
    """Count what a memory holds: its items, sessions, turns and journal entries."""
    active = state.live
    return {
        "memories": active,
        "deleted": len(state.items) - active,
        "sessions": len(state.sessions),
        "turns": len(state.turns),
        "entries": state.seq,
    }


_SHORTEST_PREFIX = 8
T = TypeVar("T")

ItemId = Annotated[
    str, Argument(metavar="ID", help="Id of a memory, or the first 8 characters of it or more.")
]
Why = Annotated[
    bool,
    Option(
        "--why",
        "--explain",
        help="Show with every hit what its score is made of and what led to it.",
    ),
]
RecipeName = Annotated[
    str | None,
    Option("--recipe", metavar="NAME", help="How to search: fast, balanced, deep or plain."),
]
TrustName = Literal["system", "user", "assistant", "tool", "untrusted"]
LeastTrust = Annotated[
    TrustName | None,
    Option("--min-trust", help="Leave out what is trusted less, such as words of tools."),
]
Force = Annotated[bool, Option("--force", help="Replace a file that is there.")]


@dataclass(frozen=True, kw_only=True)
class TimeOptions:
    """Options that ask for the memory as it was at a point in time."""

    as_of_said: Annotated[
        str | None, Option(metavar="DATE", help="Use only what had been said by then.")
    ] = None
    as_of_valid: Annotated[
        str | None, Option(metavar="DATE", help="Use what held at that time.")
    ] = None
    as_of_recorded: Annotated[
        str | None, Option(metavar="DATE|SEQ", help="Use the memory as it was recorded then.")
    ] = None

    def as_of(self) -> memagent.AsOf:
        """Read the options. Raises `InputError` for a text that names no date."""
        said, valid, recorded = self.as_of_said, self.as_of_valid, self.as_of_recorded
        return memagent.AsOf(
            said=None if said is None else parse_moment(said, option="--as-of-said", end=True),
            valid=None if valid is None else parse_moment(valid, option="--as-of-valid", end=True),
            recorded=None if recorded is None else parse_point(recorded, option="--as-of-recorded"),
        )


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """Options that choose among the memories."""

    speaker: Annotated[
        list[str] | None, Option(metavar="NAME", help="Only of this speaker; repeatable.")
    ] = None
    kind: Annotated[
        list[str] | None, Option(metavar="KIND", help="Only of this kind; repeatable.")
    ] = None
    session: Annotated[
        list[str] | None,
        Option("--session", metavar="ID", help="Only of this session; repeatable."),
    ] = None

    min_trust: LeastTrust = None

    def where(self) -> memagent.Filter:
        """Return the filter that the options describe."""
        from memagent.memory.options import trusting

        where = memagent.Filter(
            speakers=frozenset(self.speaker or ()),
            kinds=frozenset(self.kind or ()),
            session_ids=frozenset(self.session or ()),
        )
        return trusting(where, self.min_trust)


def exactly_one(argument: T | None, option: T | None, *, choices: str) -> T:
    """Return the value that was given as an argument or as an option.

    Raises `BadParameter` when both are given or neither is.
    """
    value = option if argument is None else argument
    if value is None or (argument is not None and option is not None):
        raise BadParameter(f"give {choices}, one of them")
    return value


def check_free(file: Path, *, force: bool) -> None:
    """Raise `InputError` if the file exists and must not be replaced."""
    if file.exists() and not force:
        raise InputError(f"{file} is there already; --force replaces it")


def find_id(known: Mapping[str, object], prefix: str, *, user_id: str) -> str:
    """Return the known id that was typed in full or by its first 8 characters or more.

    Raises `MemoryNotFound`, and `InputError` for the beginning of several ids.
    """
    if prefix in known:
        return prefix
    long_enough = len(prefix) >= _SHORTEST_PREFIX
    matches = sorted(item_id for item_id in known if long_enough and item_id.startswith(prefix))
    if len(matches) > 1:
        raise InputError(
            f"{prefix!r} begins the ids of {len(matches)} memories "
            f"({', '.join(matches[:3])}, ...); give more of it"
        )
    if not matches:
        raise MemoryNotFound(
            f"no memory {prefix!r} for user {user_id!r}; `memagent list` shows the ids"
        )
    return matches[0]


def parse_moment(text: str, *, option: str, end: bool = False) -> datetime:
    """Return the moment of a date or phrase: the first of its span, or with `end` the last.

    Raises `InputError` for a text that names no date.
    """
    from memagent.core.records import as_utc, system_clock
    from memagent.timex.resolve import resolve_time

    phrase = text.strip()
    if ":" in phrase or "T" in phrase:
        with suppress(ValueError):
            return as_utc(datetime.fromisoformat(phrase))
    span = resolve_time(phrase, anchor=system_clock())
    if span is not None:
        bound = span.end - timedelta(microseconds=1) if end and span.end is not None else span.start
        if bound is not None:
            return bound
    raise InputError(
        f"{option}: {text!r} names no date; "
        "write 2023-05-08, 2023-05-08T13:56, '8 May 2023' or 'last Friday'"
    )


def parse_point(text: str, *, option: str, end: bool = True) -> datetime | int:
    """Return a journal sequence number (digits only), or a moment as `parse_moment` does."""
    return int(text) if text.strip().isdecimal() else parse_moment(text, option=option, end=end)


def read_outcome(file: Path | None) -> OutcomeArguments:
    """Read the optional parts of a trial's outcome; {} without a file.

    Raises `InputError` with the fault.
    """
    from memagent.client.wire import TrialOutcome

    if file is None:
        return {}
    try:
        value: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as exc:
        raise InputError(f"{file} cannot be read: {exc}") from exc
    if not isinstance(value, dict) or "reward" in value:
        raise InputError(f"{file}: an outcome is a JSON object; its reward is the argument REWARD")
    with input_errors(str(file)):
        return TrialOutcome.model_validate({**value, "reward": 0.0}).arguments()
