"""Running Alembic from the package, without an ini file.

The connection is handed in, and its transaction stays the caller's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

_HERE: Final = Path(__file__).parent


def alembic_config(connection: Connection | None = None, folder: Path = _HERE) -> Config:
    """Make Alembic's configuration for the revisions in a folder."""
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade_to_head(connection: Connection, folder: Path = _HERE) -> None:
    """Apply every missing revision of a folder inside the connection's running transaction."""
    command.upgrade(alembic_config(connection, folder), "head")
