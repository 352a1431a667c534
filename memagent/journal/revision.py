"""Names and marks of the journal's schema: its revisions, its tables, its settings.

Apart from the tables themselves (`schema`).
"""

from __future__ import annotations

from typing import Final

SCHEMA_REVISION: Final = "0001"
"""The revision that the tables of this version stand at."""
KNOWN_REVISIONS: Final = ("0001",)
"""Every revision this version can read or migrate from, oldest first."""
VERSION_TABLE: Final = "memagent_version"
"""The table of the revision: its presence says that a database is ours."""
TABLES: Final = frozenset({"meta", "scopes", "journal", "payloads", "idempotency", "embeddings"})
"""The tables of a journal, without `VERSION_TABLE`."""
FORMAT: Final = "memagent-journal/1"
"""Value of the `format` row in `meta`."""
GUESTS: Final = ("service_", "checkpoint")
"""Tables whose names begin so are kept by the REST service, or as copies that may go at any
time, in the same place; the journal leaves them alone.
"""
SCHEMA_LOCK: Final = 0x6D656D6167656E74
"""The advisory lock on PostgreSQL that is held while tables are made."""
SETTING: Final = "memagent.scopes"
"""The variable in which a transaction on PostgreSQL names its scopes."""
NAMED: Final = f"string_to_array(current_setting('{SETTING}', true), ',')"
"""SQL for the digests in that variable."""
