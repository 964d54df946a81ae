"""Sessions, calls, usage parts, content blocks and imported files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("project", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("name", "source", name="uq_sessions_name"),
    )
    op.create_table(
        "files",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_version", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        sa.Column("head_bytes", sa.Integer(), nullable=False),
        sa.Column("sidecar", sa.Text(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("finished", sa.Boolean(), nullable=False),
        sa.Column("with_text", sa.Boolean(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("imported_at", sa.Double(), nullable=False),
        sa.Column("problems", sa.Text()),
        sa.PrimaryKeyConstraint("path", name="pk_files"),
    )
    op.create_table(
        "content_blocks",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("media_bytes", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger()),
        sa.Column("tokens_origin", sa.Text()),
        sa.PrimaryKeyConstraint("digest", name="pk_content_blocks"),
    )
    op.create_table(
        "content_texts",
        sa.Column(
            "digest",
            sa.LargeBinary(),
            sa.ForeignKey("content_blocks.digest", name="fk_content_texts_digest"),
            nullable=False,
        ),
        sa.Column("canonical", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_content_texts"),
    )
    op.create_table(
        "block_lists",
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("base", sa.LargeBinary()),
        sa.Column("shared", sa.Integer(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("items", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_block_lists"),
    )
    op.create_table(
        "calls",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column(
            "session_id",
            ROW_ID,
            sa.ForeignKey("sessions.id", name="fk_calls_session_id"),
            nullable=False,
        ),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("parent", sa.Text()),
        sa.Column("task", sa.Text()),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text()),
        sa.Column("surface", sa.Text()),
        sa.Column("model", sa.Text()),
        sa.Column("started_at", sa.Double()),
        sa.Column("start_low", sa.Double()),
        sa.Column("start_high", sa.Double()),
        sa.Column("first_token_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("relative_time", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger()),
        sa.Column("has_usage", sa.Boolean(), nullable=False),
        sa.Column("total_input", sa.BigInteger()),
        sa.Column("uncached_input", sa.BigInteger()),
        sa.Column("cache_read", sa.BigInteger()),
        sa.Column("write_5m", sa.BigInteger()),
        sa.Column("write_1h", sa.BigInteger()),
        sa.Column("write_30m", sa.BigInteger()),
        sa.Column("write_12h", sa.BigInteger()),
        sa.Column("write_other", sa.BigInteger()),
        sa.Column("write_other_ttl", sa.Text()),
        sa.Column("output", sa.BigInteger()),
        sa.Column("reasoning", sa.BigInteger()),
        sa.Column("context_input", sa.BigInteger()),
        sa.Column("web_searches", sa.BigInteger()),
        sa.Column("service_tier", sa.Text()),
        sa.Column("speed", sa.Text()),
        sa.Column("inference_geo", sa.Text()),
        sa.Column("dialect", sa.Text()),
        sa.Column("flags", sa.Text()),
        sa.Column("miss_type", sa.Text()),
        sa.Column("miss_tokens", sa.BigInteger()),
        sa.Column("stop_reason", sa.Text()),
        sa.Column("has_error", sa.Boolean(), nullable=False),
        sa.Column("error_type", sa.Text()),
        sa.Column("error_status", sa.BigInteger()),
        sa.Column("error_message", sa.Text()),
        sa.Column("tool_seconds", sa.Double()),
        sa.Column("outcome", sa.Text()),
        sa.Column("reported_cost", sa.Text()),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("client", sa.Text()),
        sa.Column("boundaries", sa.Text()),
        sa.Column("dedupe_key", sa.Text()),
        sa.Column("origin_file", sa.Text()),
        sa.Column("origin_line", sa.BigInteger()),
        sa.Column("extra", sa.Text()),
        sa.Column(
            "block_list",
            sa.LargeBinary(),
            sa.ForeignKey("block_lists.key", name="fk_calls_block_list"),
        ),
        sa.Column("prompt", sa.LargeBinary()),
        sa.Column("file", sa.Text()),
        sa.Column("source_version", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calls"),
        sa.UniqueConstraint("key", name="uq_calls_key"),
    )
    op.create_index("ix_calls_file", "calls", ["file"])
    op.create_index("ix_calls_session_id", "calls", ["session_id"])
    op.create_index("ix_calls_started_at", "calls", ["started_at"])
    op.create_table(
        "usage_parts",
        sa.Column(
            "call",
            sa.LargeBinary(),
            sa.ForeignKey("calls.key", name="fk_usage_parts_call", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("uncached_input", sa.BigInteger()),
        sa.Column("cache_read", sa.BigInteger()),
        sa.Column("write_5m", sa.BigInteger()),
        sa.Column("write_1h", sa.BigInteger()),
        sa.Column("write_30m", sa.BigInteger()),
        sa.Column("write_12h", sa.BigInteger()),
        sa.Column("write_other", sa.BigInteger()),
        sa.Column("output", sa.BigInteger()),
        sa.PrimaryKeyConstraint("call", "position", name="pk_usage_parts"),
    )


def downgrade() -> None:
    op.drop_table("usage_parts")
    op.drop_table("calls")
    op.drop_table("block_lists")
    op.drop_table("content_texts")
    op.drop_table("content_blocks")
    op.drop_table("files")
    op.drop_table("sessions")
