"""`memagent doctor`: examine the installation, the settings and the store with its hash chains.

Nothing here writes. A finding that keeps memagent from working is a problem and makes
the command fail; the rest is information. A broken part does not end the examination,
because people call the doctor when something is broken.
"""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

from rich.console import Group, RenderableType
from typer import Option

import memagent
from memagent.cli.frame import Options, emit, line, message_of, pairs, plain, table, tell
from memagent.cli.stores import (
    counts_of,
    opened,
    read_settings,
    settings_file,
    store_file,
    store_path,
)
from memagent.core import Later
from memagent.core.errors import MemAgentError, StoreError

if TYPE_CHECKING:
    from memagent import build, config
    from memagent.core.records import Scope
    from memagent.journal import open_database, postgres, sqlite
else:
    build, open_database = Later("memagent.build"), Later("memagent.journal.open_database")
    postgres, sqlite = Later("memagent.journal.postgres"), Later("memagent.journal.sqlite")


PACKAGES = ("memagent", "environments", "train")
"""The top-level names that must lead to this distribution."""
_COUNTS = ("memories", "deleted", "sessions", "turns", "entries")
_USER_COLUMNS = ("user", *_COUNTS, "chain", "checkpoint")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*?(?:;.*\bextra\s*==\s*['\"]([^'\"]+)['\"])?$")
# The one other marker that our requirements use.
_NOT_WINDOWS = re.compile(r"sys_platform\s*!=\s*['\"]win32")


@dataclass(slots=True)
class Examination:
    """The findings, by part; `problems` is empty when all is well."""

    problems: list[str] = field(default_factory=list[str])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    packages: dict[str, str] = field(default_factory=dict[str, str])
    """The origin of each top-level name."""
    extras: dict[str, str] = field(default_factory=dict[str, str])
    """Per extra `installed` or the command that installs it."""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    store: dict[str, Any] = field(default_factory=dict[str, Any])
    users: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def view(self) -> RenderableType:
        """Return all findings for people."""
        parts: list[RenderableType] = []
        for title in ("versions", "packages", "extras", "settings", "store"):
            parts += [pairs(getattr(self, title), title=title), ""]
        if self.users:
            rows = ([str(user[column]) for column in _USER_COLUMNS] for user in self.users)
            parts += [table(_USER_COLUMNS, rows), ""]
        parts += [line(("problem  ", "bold red"), problem) for problem in self.problems]
        return Group(*parts, *([] if self.problems else [plain("all is well", "green")]))


async def doctor(
    options: Options,
    seal: Annotated[
        bool,
        Option("--seal", help="First take the store as it is: note anew where its logs end."),
    ] = False,
) -> int:
    """Look for problems in the installation, the settings and the store.

    Exits with 1 if there is one.
    """
    report = Examination()
    if seal:
        _seal(options)
    _examine_installation(report)
    try:
        await _examine_settings_and_store(report, options)
    except (MemAgentError, OSError) as exc:
        report.problems.append(message_of(exc))
    emit(options, {"ok": not report.problems, **asdict(report)}, report.view)
    return int(bool(report.problems))


async def _examine_settings_and_store(report: Examination, options: Options) -> None:
    settings = read_settings(options)
    _examine_settings(report, options, settings)
    path = store_path(options, settings)
    if path is None:
        report.store["kind"] = "in memory; nothing is kept"
        return
    if isinstance(path, Path):
        report.store["path"] = str(path)
        if not path.exists():
            report.store["state"] = "not made yet; the first write makes it"
            return
        _examine_file(report, path)
    with opened(options) as store:
        if isinstance(store.journal, open_database.DatabaseJournal):
            await _examine_journal(report, store.journal)
        for scope in await store.journal.scopes():
            await _examine_memory(report, store, scope)


def _seal(options: Options) -> None:
    path = store_path(options, read_settings(options))
    if isinstance(path, str):
        with opened(options) as served:
            assert isinstance(served.journal, postgres.PostgresJournal)
            count = postgres.note_ends(served.journal)
    elif path is not None and path.exists():
        count = sqlite.seal_store(*store_file(options))
    else:
        raise StoreError("--seal needs a store that exists")
    tell(f"noted where {count} logs end")


# -- installation ----------------------------------------------------------------------


def _examine_installation(report: Examination) -> None:
    report.versions = {
        "memagent": memagent.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(terse=True),
        "sqlite": sqlite3.sqlite_version,
    }
    try:
        installed = distribution("memagent")
    except PackageNotFoundError:
        report.problems.append(
            'memagent is not installed, only importable: run  pip install "memagent"  '
            "so that its plug-ins are found"
        )
        return
    if installed.version != memagent.__version__:
        report.problems.append(
            f"version {installed.version} is installed, but the code that runs is "
            f"{memagent.__version__}: install again"
        )
    _examine_weights(report)
    home = _home(installed)
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        report.packages[name] = str(origin.parent) if origin is not None else "not found"
        if origin is None:
            report.problems.append(
                f"the package {name!r} of this distribution cannot be imported; "
                "install memagent again"
            )
        elif home is not None and origin != (home / name / "__init__.py").resolve():
            report.problems.append(
                f"{name!r} leads to {origin}, which shadows the one of memagent in {home / name}: "
                "rename or remove it"
            )
    for name, missing in _extras(installed):
        report.extras[name] = (
            "installed"
            if not missing
            else f'pip install "memagent[{name}]"  (lacks {", ".join(missing)})'
        )
    for name in ("pydantic", "numpy", "langgraph", "sqlalchemy", "networkx", "typer", "rich"):
        number = _version(name)
        if number is None:
            report.problems.append(f"{name} is missing: install memagent again")
        else:
            report.versions[name] = number


def _examine_weights(report: Examination) -> None:
    """Tell the digest of the network that reads what a statement ends."""
    from memagent.language.reader import open_reader

    try:
        report.versions["reader's weights"] = f"sha256 {open_reader().network.digest[:12]}"
    except (OSError, ValueError, KeyError) as exc:
        report.problems.append(f"the reader's weights cannot be read: {exc}")


def _home(installed: Distribution) -> Path | None:
    """Return the folder with the three packages, of an editable install its checkout."""
    import json
    from urllib.request import url2pathname

    written = installed.read_text("direct_url.json")
    if written:
        source = json.loads(written)
        if source.get("dir_info", {}).get("editable"):
            return Path(url2pathname(urlsplit(str(source["url"])).path))
    located = Path(str(installed.locate_file("memagent/__init__.py")))
    return located.parent.parent if located.exists() else None


def _extras(installed: Distribution) -> Iterator[tuple[str, list[str]]]:
    """Yield each extra and the distributions it lacks; `all` is the sum of the others."""
    declared = installed.metadata.get_all("Provides-Extra") or []
    required: dict[str, list[str]] = {name: [] for name in declared if name != "all"}
    for requirement in installed.requires or []:
        if sys.platform == "win32" and _NOT_WINDOWS.search(requirement):
            continue
        match = _REQUIREMENT.match(requirement)
        if match is not None and match[2] in required and match[1] != "memagent":
            required[match[2]].append(match[1])
    for extra, names in required.items():
        if names:
            yield extra, [name for name in names if _version(name) is None]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# -- settings and store ----------------------------------------------------------------


def _examine_settings(
    report: Examination, options: Options, settings: config.AgentSettings
) -> None:
    file = settings_file(options)
    model = options.model or (settings.model.model if settings.model is not None else None)
    place = file.resolve() if file is not None else "none; defaults and MEMAGENT_* variables"
    report.settings = {"file": str(place), "model": model or "none"}
    variables = sorted(name for name in os.environ if name.startswith("MEMAGENT_"))
    if variables:
        report.settings["variables"] = ", ".join(variables)
    try:
        report.settings["design"] = build.build_design(
            settings.design, has_model=model is not None
        ).name
    except MemAgentError as exc:
        report.problems.append(message_of(exc))
    try:
        embedder = build.build_embedder(options.embedder or settings.embedder)
        report.settings["embedder"] = _embedder_label(embedder.id, embedder.dim)
    except MemAgentError as exc:
        report.problems.append(message_of(exc))


def _examine_file(report: Examination, path: Path) -> None:
    files = [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]
    report.store["size_bytes"] = sum(file.stat().st_size for file in files if file.exists())
    report.store["writer"] = _writer(path)
    try:
        uri = f"file:{quote(os.fsencode(path))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            row = connection.execute("SELECT version_num FROM memagent_version").fetchone()
            (revision,) = row or ("none",)
    except sqlite3.Error as exc:
        revision = f"not readable ({exc})"
    report.store["schema_revision"] = revision


def _writer(path: Path) -> str:
    """Name the process that holds the store for writing, as far as its lock file says."""
    from memagent.journal.sqlite_engine import FileLock, process_lives

    pid = FileLock(path.with_name(f"{path.name}.lock")).holder()
    if pid is None:
        return "none"
    if not process_lives(pid):
        return f"none (process {pid} ended without giving the store back, which does no harm)"
    return f"process {pid}"


async def _examine_journal(report: Examination, journal: open_database.DatabaseJournal) -> None:
    """Examine a server, the embedder that the store goes by, and where its logs end."""
    import asyncio

    if isinstance(journal, postgres.PostgresJournal):
        facts, problems = journal.examine()
        report.store |= {"server": journal.place, **facts}
        report.problems += problems
    claimed = journal.cache.claimed()
    configured = report.settings.get("embedder")
    if claimed is not None:
        report.store["embedder"] = _embedder_label(*claimed)
        if configured not in (None, report.store["embedder"]):
            report.problems.append(
                f"the store goes by embedder {report.store['embedder']}, "
                f"the settings lead to {configured}: name the first one, or run  memagent reembed"
            )
    if isinstance(journal, sqlite.SqlJournal | postgres.PostgresJournal):
        report.problems += await asyncio.to_thread(journal.compare_tips)
    report.problems += journal.verify_erased()


def _embedder_label(embedder_id: str, dim: int) -> str:
    return f"{embedder_id}, {dim} dimensions"


async def _examine_memory(report: Examination, store: build.Store, scope: Scope) -> None:
    """Verify the history of one memory, and count what it holds."""
    faults = (
        store.journal.verify(scope)
        if isinstance(store.journal, open_database.DatabaseJournal)
        else []
    )
    label = "/".join(part for part in (scope.user_id, scope.agent_id, scope.run_id) if part)
    report.problems += [f"history of {label}: {fault}" for fault in faults]
    counts: dict[str, Any] = dict.fromkeys(_COUNTS, "?")
    try:
        counts = counts_of(await store.bank(scope).sync())
    except MemAgentError as exc:
        if not faults:
            report.problems.append(message_of(exc))
    chain = f"{len(faults)} faults" if faults else "intact"
    checkpoint = await _examine_checkpoint(report, store, scope, label) if not faults else "?"
    report.users.append({"user": label, "chain": chain, "checkpoint": checkpoint, **counts})


async def _examine_checkpoint(
    report: Examination, store: build.Store, scope: Scope, label: str
) -> str:
    """Check a memory's checkpoint in full; a wrong one is a problem, a useless one is not."""
    from memagent.checkpoints.store import audit_checkpoint
    from memagent.memory.bank import MemoryBank

    if store.checkpoints is None:
        return "none"
    replayed = MemoryBank(embedder=store.embedder, scope=scope, journal=store.journal)
    found = await audit_checkpoint(store.checkpoints, scope, replayed.log.state_at)
    report.problems += [
        f"checkpoint of {label}: {fault}: delete {store.checkpoints.path_of(scope)}"
        for fault in found.faults
    ]
    if found.reason:
        return f"not used: {found.reason}"
    sound = "sound" if not found.faults else f"{len(found.faults)} faults"
    return "none" if found.seq is None else f"at entry {found.seq}, {sound}"
