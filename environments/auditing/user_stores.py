"""A user's own store, opened to be looked at: what `audit` and `replay` share.

It is opened for reading, so it works beside a running writer and cannot change
anything; whatever is played is played on private copies in memory. Text that was once
said is data: `clean` spells out what a terminal would act on.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from environments.errors import EnvironmentFault
from environments.evaluation.tables import WIDTH
from memagent.build import AgentSettings, SqliteSettings, Store, default_path, open_store
from memagent.core.records import Scope

Db = Annotated[
    Path | None,
    typer.Option(
        "--db", "--path", metavar="FILE", help="The store; by default that of the settings."
    ),
]
User = Annotated[str, typer.Option("--user", metavar="ID", help="Whose memory.")]
SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings", "--config", metavar="FILE", help="The agent's TOML: store, embedder, models."
    ),
]


@contextmanager
def reading(
    db: Path | None,
    settings: AgentSettings,
    *,
    embedder: str | None = None,
    check_embedder: bool = True,
) -> Generator[Store]:
    """Open the store for reading, closed on leaving.

    Raises `EnvironmentFault` when it is not there, and what `open_store` raises.
    """
    store_settings = (
        settings.store if isinstance(settings.store, SqliteSettings) else SqliteSettings()
    )
    path = (db or store_settings.path or default_path()).expanduser()
    if not path.is_file():
        raise EnvironmentFault(f"there is no memory at {path}; --db names another")
    store = open_store(
        settings.model_copy(update={"index": None}),
        path=path,
        embedder=embedder,
        read_only=True,
        check_embedder=check_embedder,
    )
    try:
        yield store
    finally:
        store.close()


async def scope_of(store: Store, user: str) -> Scope:
    """Return the scope of a user who has a memory here.

    Raises `EnvironmentFault` naming those who have.
    """
    if not 0 < len(user) <= 256:
        raise EnvironmentFault("--user takes an id of 1 to 256 characters")
    scope = Scope(user_id=user)
    if await store.journal.head(scope) == 0:
        others = sorted({other.user_id for other in await store.journal.scopes()})
        known = (
            f"; users of this store: {', '.join(map(clean, others[:10]))}"
            if others
            else "; the store is empty"
        )
        raise EnvironmentFault(f"nothing is stored for user {user!r}{known}")
    return scope


def output() -> Console:
    """Return standard output for tables; wide where it is no terminal."""
    console = Console(markup=False, highlight=False, emoji=False)
    return (
        console
        if console.is_terminal
        else Console(markup=False, highlight=False, emoji=False, width=WIDTH)
    )


def clean(text: str) -> str:
    """Return the text on one line, with every character that a terminal acts on spelled out."""
    line = " ".join(text.split())
    return (
        line
        if line.isprintable()
        else "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in line)
    )
