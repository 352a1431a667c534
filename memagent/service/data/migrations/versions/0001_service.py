"""Keys, jobs, snapshots' places, claims, and on PostgreSQL the responses that workers share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table of the first schema."""
    op.create_table(
        "service_meta",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text),
    )
    op.create_table(
        "service_keys",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("secret_hmac", sa.String(64), nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("revoked_us", sa.BigInteger),
    )
    op.create_table(
        "service_jobs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("scope", sa.Text, nullable=False, index=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False, index=True),
        sa.Column("session_id", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.String(64)),
        sa.Column("result", sa.Text),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("updated_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "service_snapshots",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("scope", sa.Text, nullable=False, index=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("items", sa.Integer, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "service_claims",
        sa.Column("place", sa.String(160), primary_key=True),
        sa.Column("worker", sa.String(64), nullable=False, index=True),
        sa.Column("until_us", sa.BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        _share_responses()


def _share_responses() -> None:
    """Let a transaction see the responses of the users it has named.

    With "*" it sees those that are due to be deleted.
    """
    op.create_table(
        "service_responses",
        sa.Column("owner", sa.String(64), primary_key=True),
        sa.Column("place", sa.String(160), primary_key=True),
        sa.Column("body_digest", sa.String(64), nullable=False),
        sa.Column("response_json", sa.Text, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False, index=True),
    )
    named = "string_to_array(current_setting('memagent.scopes', true), ',')"
    due = "until_us < CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
    op.execute("ALTER TABLE service_responses ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE service_responses FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY named_owners ON service_responses USING (owner = ANY ({named}) OR ('*' "
        f"= ANY ({named}) AND {due}))"
    )


def downgrade() -> None:
    """Drop every table of the first schema."""
    op.execute("DROP TABLE IF EXISTS service_responses")
    for name in (
        "service_claims",
        "service_snapshots",
        "service_jobs",
        "service_keys",
        "service_meta",
    ):
        op.drop_table(name)
