"""What `memagent doctor` looks at: the installation, the extras, the settings, the
store and every chain of hashes in it.

Nothing here writes. A finding that keeps memagent from working is a problem and makes
the command fail; the rest is information. Each part is looked at even when the one
before it is broken, because that is when the doctor is asked.
"""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import memagent
from memagent.cli import views
from memagent.cli.frame import Options, message_of, opened, settings_file, settings_of, store_path
from memagent.core.errors import MemAgentError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memagent.build import Store
    from memagent.config import AgentSettings
    from memagent.core.records import Scope

PACKAGES = ("memagent", "environments", "train")
"""The top-level names that must lead to this distribution."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*?(?:;.*\bextra\s*==\s*['\"]([^'\"]+)['\"])?$")


@dataclass(slots=True)
class Examination:
    """What was found, by part; `problems` is empty when all is well."""

    problems: list[str] = field(default_factory=list[str])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    packages: dict[str, str] = field(default_factory=dict[str, str])
    """Top-level name to where it comes from."""
    extras: dict[str, str] = field(default_factory=dict[str, str])
    """Extra to `installed` or the command that installs it."""
    settings: dict[str, str] = field(default_factory=dict[str, str])
    store: dict[str, Any] = field(default_factory=dict[str, Any])
    users: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def document(self) -> dict[str, Any]:
        """Everything, for JSON."""
        parts = {
            "versions": self.versions,
            "packages": self.packages,
            "extras": self.extras,
            "settings": self.settings,
        }
        return {
            "ok": not self.problems,
            "problems": self.problems,
            **parts,
            "store": self.store,
            "users": self.users,
        }

    def view(self) -> RenderableType:
        """Everything, for people."""
        parts: list[RenderableType] = []
        sections = (self.versions, self.packages, self.extras, self.settings, self.store)
        for title, values in zip(
            ("versions", "packages", "extras", "settings", "store"), sections, strict=True
        ):
            parts += [views.pairs(values, title=title), views.plain("")]
        if self.users:
            rows = views.table(
                "user", "memories", "deleted", "sessions", "turns", "entries", "chain"
            )
            for one in self.users:
                figures = (
                    one["memories"],
                    one["deleted"],
                    one["sessions"],
                    one["turns"],
                    one["entries"],
                )
                rows.add_row(
                    views.plain(str(one["user"])),
                    *(str(figure) for figure in figures),
                    views.plain(str(one["chain"])),
                )
            parts += [rows, views.plain("")]
        parts += [views.line(("problem  ", "bold red"), problem) for problem in self.problems]
        return views.stack(
            [*parts, *([] if self.problems else [views.plain("all is well", "green")])]
        )


async def examine(options: Options) -> Examination:
    """Look at everything."""
    found = Examination()
    _look_at_installation(found)
    try:
        settings = settings_of(options)
    except (MemAgentError, OSError) as exc:
        found.problems.append(message_of(exc))
        return found
    _look_at_settings(found, options, settings)
    path = store_path(options, settings)
    if path is None:
        found.store["kind"] = "in memory; nothing is kept"
        return found
    if isinstance(path, Path):
        found.store["path"] = str(path)
        if not path.exists():
            found.store["state"] = "not made yet; the first write makes it"
            return found
        _look_at_file(found, path)
    try:
        with opened(options) as store:
            _look_at_server(found, store)
            _look_at_embedder(found, store)
            await _look_at_users(found, store)
    except (MemAgentError, OSError) as exc:
        found.problems.append(message_of(exc))
    return found


# -- installation ----------------------------------------------------------------------


def _look_at_installation(found: Examination) -> None:
    found.versions = {
        "memagent": memagent.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(terse=True),
        "sqlite": sqlite3.sqlite_version,
    }
    try:
        installed = distribution("memagent")
    except PackageNotFoundError:
        found.problems.append(
            'memagent is not installed, only importable: run  pip install "memagent"  so that its plug-ins are found'
        )
        return
    if installed.version != memagent.__version__:
        found.problems.append(
            f"version {installed.version} is installed, but the code that runs is {memagent.__version__}: install again"
        )
    home = _home(installed)
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        found.packages[name] = str(origin.parent) if origin is not None else "not found"
        if origin is None:
            found.problems.append(
                f"the package {name!r} of this distribution cannot be imported; install memagent again"
            )
        elif home is not None and origin != (home / name / "__init__.py").resolve():
            found.problems.append(
                f"{name!r} leads to {origin}, which shadows the one of memagent in {home / name}: rename or remove it"
            )
    for name, missing in _extras(installed):
        found.extras[name] = (
            "installed"
            if not missing
            else f'pip install "memagent[{name}]"  (lacks {", ".join(missing)})'
        )
    for name in ("pydantic", "numpy", "langgraph", "sqlalchemy", "networkx", "typer", "rich"):
        try:
            found.versions[name] = version(name)
        except PackageNotFoundError:
            found.problems.append(f"{name} is missing: install memagent again")


def _home(installed: Distribution) -> Path | None:
    """The folder that holds the three packages of the distribution, an editable
    install's checkout included.
    """
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
    """(extra, distributions it lacks); `all` is the sum of the others."""
    declared = installed.metadata.get_all("Provides-Extra") or []
    wanted: dict[str, list[str]] = {name: [] for name in declared if name != "all"}
    for requirement in installed.requires or []:
        match = _REQUIREMENT.match(requirement)
        if (
            match is not None
            and match.group(2) in wanted
            and match.group(1) != "memagent"
            and _applies(requirement)
        ):
            wanted[match.group(2)].append(match.group(1))
    for name, needed in wanted.items():
        if needed:
            yield name, [one for one in needed if not _is_installed(one)]


def _applies(requirement: str) -> bool:
    """Whether a requirement is for this platform; of all markers ours use `sys_platform` only."""
    return not (
        sys.platform == "win32" and re.search(r"sys_platform\s*!=\s*['\"]win32", requirement)
    )


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


# -- settings and store ----------------------------------------------------------------


def _look_at_settings(found: Examination, options: Options, settings: AgentSettings) -> None:
    from memagent.build import build_design, build_embedder

    file = settings_file(options)
    model = options.model or (settings.model.model if settings.model is not None else None)
    found.settings = {
        "file": str(file.resolve())
        if file is not None
        else "none; defaults and MEMAGENT_* variables",
        "model": model or "none",
    }
    variables = sorted(name for name in os.environ if name.startswith("MEMAGENT_"))
    if variables:
        found.settings["variables"] = ", ".join(variables)
    try:
        found.settings["design"] = build_design(settings.design, has_model=model is not None).name
    except MemAgentError as exc:
        found.problems.append(message_of(exc))
    try:
        embedder = build_embedder(options.embedder or settings.embedder)
        found.settings["embedder"] = _embedder_label(embedder.id, embedder.dim)
    except MemAgentError as exc:
        found.problems.append(message_of(exc))


def _look_at_file(found: Examination, path: Path) -> None:
    files = [
        one
        for one in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
        if one.exists()
    ]
    found.store["size_bytes"] = sum(one.stat().st_size for one in files)
    found.store["writer"] = _writer(path)
    try:
        with closing(
            sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro", uri=True)
        ) as connection:
            (revision,) = connection.execute(
                "SELECT version_num FROM memagent_version"
            ).fetchone() or ("none",)
    except sqlite3.Error as exc:
        revision = f"not readable ({exc})"
    found.store["schema_revision"] = revision


def _look_at_server(found: Examination, store: Store) -> None:
    from memagent.journal.postgres.journal import PostgresJournal

    if isinstance(store.journal, PostgresJournal):
        seen, wrong = store.journal.examine()
        found.store |= {"server": store.journal.place, **seen}
        found.problems += wrong


def _writer(path: Path) -> str:
    """The process that holds the store for writing, as far as its lock file tells."""
    from memagent.journal.file_lock import FileLock

    pid = FileLock(path.with_name(f"{path.name}.lock")).holder()
    if pid is None:
        return "none"
    if sys.platform != "win32":
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return f"none (process {pid} ended without giving the store back, which does no harm)"
        except PermissionError:
            pass
    return f"process {pid}"


def _look_at_embedder(found: Examination, store: Store) -> None:
    from memagent.journal.database import DatabaseJournal

    claimed = (
        store.journal.claimed_embedder() if isinstance(store.journal, DatabaseJournal) else None
    )
    if claimed is None:
        return
    found.store["embedder"] = _embedder_label(*claimed)
    configured = found.settings.get("embedder")
    if configured not in (None, found.store["embedder"]):
        found.problems.append(
            f"the store goes by embedder {found.store['embedder']}, the settings lead to {configured}: "
            "name the first one, or run  memagent reembed"
        )


def _embedder_label(embedder_id: str, dim: int) -> str:
    return f"{embedder_id}, {dim} dimensions"


async def _look_at_users(found: Examination, store: Store) -> None:
    for scope in await store.journal.scopes():
        wrong = _wrong_in_chain(store, scope)
        label = "/".join(part for part in (scope.user_id, scope.agent_id, scope.run_id) if part)
        found.problems += [f"history of {label}: {one}" for one in wrong]
        one: dict[str, Any] = {
            "user": label,
            "chain": f"{len(wrong)} faults" if wrong else "intact",
        }
        try:
            state = await store.bank(scope).sync()
        except MemAgentError as exc:
            if not wrong:
                found.problems.append(message_of(exc))
            one |= dict.fromkeys(("memories", "deleted", "sessions", "turns", "entries"), "?")
        else:
            active = sum(1 for _ in state.active())
            one |= {
                "memories": active,
                "deleted": len(state.items) - active,
                "sessions": len(state.sessions),
            }
            one |= {"turns": len(state.turns), "entries": state.seq}
        found.users.append(one)


def _wrong_in_chain(store: Store, scope: Scope) -> list[str]:
    from memagent.journal.database import DatabaseJournal

    return store.journal.verify(scope) if isinstance(store.journal, DatabaseJournal) else []
