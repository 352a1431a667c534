"""Row-level security on PostgreSQL: a second wall between users.

It stands behind the scope that every statement names.

A transaction says whose rows it is about (`SET LOCAL memagent.scopes`, digests with
commas between) and sees no others; one that says nothing sees nothing. `*` opens the
names and the headers of all scopes, for listing and auditing, and nobody's words. The
wall stops a statement that forgot its WHERE. It stops nobody who can run SQL of their
own, and PostgreSQL does not apply it to superusers and roles with BYPASSRLS: connect as
an ordinary role.
"""

from __future__ import annotations

from typing import Final

SETTING: Final = "memagent.scopes"
"""The variable that a transaction sets."""
_NAMED: Final = f"string_to_array(current_setting('{SETTING}', true), ',')"
_OWN: Final = f"scope_id = ANY (ARRAY(SELECT s.id FROM scopes s WHERE s.digest = ANY ({_NAMED})))"
SEEN: Final = {
    "scopes": f"digest = ANY ({_NAMED}) OR '*' = ANY ({_NAMED})",
    "journal": f"{_OWN} OR '*' = ANY ({_NAMED})",
    "payloads": _OWN,
    "idempotency": _OWN,
    "embeddings": f"coalesce(current_setting('{SETTING}', true), '') <> ''",
}
"""The rows of each table that a transaction may read and write. The cache of vectors
belongs to no scope.
"""
ROW_SECURITY: Final = tuple(
    statement
    for table, seen in SEEN.items()
    for statement in (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY named_scopes ON {table} USING ({seen})",
    )
)
"""Statements that put the wall up; `FORCE` holds the owner of the tables to it too."""
