"""Running Alembic from the package, without an ini file: the connection is handed in and its transaction stays the caller's."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration for the revisions in this folder."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade_to_head(connection: Connection) -> None:
    """Apply every missing revision inside the connection's running transaction."""
    command.upgrade(alembic_config(connection), "head")
