"""The journal: scopes, headers, payloads, first responses, embeddings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table of the first schema."""
    meta = op.create_table(
        "meta",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.bulk_insert(meta, [{"key": "format", "value": "memagent-journal/1"}])
    op.create_table(
        "scopes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text),
        sa.Column("run_id", sa.Text),
        sa.Column("head", sa.BigInteger, nullable=False),
        sa.Column("chain", sa.LargeBinary(32), nullable=False),
        sa.Column("recorded_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "journal",
        sa.Column("scope_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("recorded_us", sa.BigInteger, nullable=False),
        sa.Column("payload_digest", sa.LargeBinary(32), nullable=False),
        sa.Column("chain", sa.LargeBinary(32), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "payloads",
        sa.Column("scope_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("salt", sa.LargeBinary(16), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "idempotency",
        sa.Column("scope_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(256), primary_key=True),
        sa.Column("body_digest", sa.String(128), nullable=False),
        sa.Column("response_json", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "embeddings",
        sa.Column("embedder", sa.String(256), primary_key=True),
        sa.Column("digest", sa.String(128), primary_key=True),
        sa.Column("dim", sa.Integer, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.Column("crc", sa.BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        _secure_rows()


def _secure_rows() -> None:
    """Let a transaction see the rows of the scopes whose digests it has named.

    With "*" it also sees the names and headers of all others.
    """
    named = "string_to_array(current_setting('memagent.scopes', true), ',')"
    own = f"scope_id = ANY (ARRAY(SELECT s.id FROM scopes s WHERE s.digest = ANY ({named})))"
    for table, seen in {
        "scopes": f"digest = ANY ({named}) OR '*' = ANY ({named})",
        "journal": f"{own} OR '*' = ANY ({named})",
        "payloads": own,
        "idempotency": own,
        "embeddings": "coalesce(current_setting('memagent.scopes', true), '') <> ''",
    }.items():
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY named_scopes ON {table} USING ({seen})")


def downgrade() -> None:
    """Drop every table of the first schema."""
    for name in ("embeddings", "idempotency", "payloads", "journal", "scopes", "meta"):
        op.drop_table(name)
