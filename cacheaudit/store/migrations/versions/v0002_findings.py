"""Prices used, findings and decisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "prices",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("card", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", "digest", name="pk_prices"),
    )
    op.create_table(
        "findings",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("session", sa.Text()),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tokens_lost", sa.BigInteger(), nullable=False),
        sa.Column("lost_input_equivalents", sa.Text()),
        sa.Column("lost_cost", sa.Text()),
        sa.Column("finding", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_findings"),
    )
    op.create_index("ix_findings_rule", "findings", ["rule"])
    op.create_index("ix_findings_session", "findings", ["session"])
    op.create_table(
        "decisions",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("call", sa.Text()),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("alternative", sa.Text(), nullable=False),
        sa.Column("action_price", sa.Text()),
        sa.Column("alternative_price", sa.Text()),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("details", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
    )
    op.create_index("ix_decisions_session", "decisions", ["session"])


def downgrade() -> None:
    op.drop_table("decisions")
    op.drop_table("findings")
    op.drop_table("prices")
