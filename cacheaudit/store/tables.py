"""The tables. Times are seconds since the epoch, money is exact text, unknown is ``NULL``.

The schema itself is made by the migrations; a test holds the two equal.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
)

from cacheaudit.store.types import AnyText, ExactDecimal, JsonText

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

# SQLite counts rows by itself only in a column that is called INTEGER.
RowId = BigInteger().with_variant(Integer(), "sqlite")

sessions = Table(
    "sessions",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("source", AnyText, nullable=False),
    Column("name", AnyText, nullable=False),
    Column("project", AnyText),
    UniqueConstraint("name", "source"),
)

files = Table(
    "files",
    metadata,
    Column("path", AnyText, primary_key=True),
    Column("source", AnyText, nullable=False),
    Column("source_version", Integer, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("mtime_ns", BigInteger, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("head_bytes", Integer, nullable=False),
    Column("sidecar", AnyText, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("finished", Boolean, nullable=False),
    Column("with_text", Boolean, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("imported_at", Double, nullable=False),
    Column("problems", JsonText),
)

content_blocks = Table(
    "content_blocks",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("kind", AnyText, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("media_bytes", BigInteger, nullable=False),
    Column("tokens", BigInteger),
    Column("tokens_origin", AnyText),
)

content_texts = Table(
    "content_texts",
    metadata,
    Column("digest", LargeBinary, ForeignKey("content_blocks.digest"), primary_key=True),
    Column("canonical", LargeBinary, nullable=False),
)

block_lists = Table(
    "block_lists",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    # No foreign key: a list and its base are often written in one statement.
    Column("base", LargeBinary),
    Column("shared", Integer, nullable=False),
    Column("length", Integer, nullable=False),
    Column("items", LargeBinary, nullable=False),
)

calls = Table(
    "calls",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("key", LargeBinary, nullable=False, unique=True),
    Column("session_id", RowId, ForeignKey("sessions.id"), nullable=False, index=True),
    Column("name", AnyText, nullable=False),
    Column("lane", AnyText, nullable=False),
    Column("parent", AnyText),
    Column("task", AnyText),
    Column("purpose", AnyText, nullable=False),
    Column("provider", AnyText),
    Column("surface", AnyText),
    Column("model", AnyText),
    Column("started_at", Double),
    Column("start_low", Double),
    Column("start_high", Double),
    Column("first_token_at", Double),
    Column("ended_at", Double),
    Column("relative_time", Boolean, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("requests", BigInteger),
    Column("has_usage", Boolean, nullable=False),
    Column("total_input", BigInteger),
    Column("uncached_input", BigInteger),
    Column("cache_read", BigInteger),
    Column("write_5m", BigInteger),
    Column("write_1h", BigInteger),
    Column("write_30m", BigInteger),
    Column("write_12h", BigInteger),
    Column("write_other", BigInteger),
    Column("write_other_ttl", AnyText),
    Column("output", BigInteger),
    Column("reasoning", BigInteger),
    Column("context_input", BigInteger),
    Column("web_searches", BigInteger),
    Column("service_tier", AnyText),
    Column("speed", AnyText),
    Column("inference_geo", AnyText),
    Column("dialect", AnyText),
    Column("flags", JsonText),
    Column("miss_type", AnyText),
    Column("miss_tokens", BigInteger),
    Column("stop_reason", AnyText),
    Column("has_error", Boolean, nullable=False),
    Column("error_type", AnyText),
    Column("error_status", BigInteger),
    Column("error_message", AnyText),
    Column("tool_seconds", Double),
    Column("outcome", AnyText),
    Column("reported_cost", ExactDecimal),
    Column("currency", AnyText, nullable=False),
    Column("client", AnyText),
    Column("boundaries", JsonText),
    Column("dedupe_key", AnyText),
    Column("origin_file", AnyText),
    Column("origin_line", BigInteger),
    Column("extra", JsonText),
    Column("block_list", LargeBinary, ForeignKey("block_lists.key")),
    Column("prompt", LargeBinary),
    # Which reading of the call this is, so that a better one can replace it.
    Column("file", AnyText),
    Column("source_version", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Index("ix_calls_file", "file"),
    Index("ix_calls_started_at", "started_at"),
)

usage_parts = Table(
    "usage_parts",
    metadata,
    Column("call", LargeBinary, ForeignKey("calls.key", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("kind", AnyText, nullable=False),
    Column("model", AnyText),
    Column("uncached_input", BigInteger),
    Column("cache_read", BigInteger),
    Column("write_5m", BigInteger),
    Column("write_1h", BigInteger),
    Column("write_30m", BigInteger),
    Column("write_12h", BigInteger),
    Column("write_other", BigInteger),
    Column("output", BigInteger),
)

prices = Table(
    "prices",
    metadata,
    Column("id", AnyText, primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("card", JsonText, nullable=False),
)

findings = Table(
    "findings",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("session", AnyText, index=True),
    Column("rule", AnyText, nullable=False, index=True),
    Column("verdict", AnyText, nullable=False),
    Column("kind", AnyText, nullable=False),
    Column("tokens_lost", BigInteger, nullable=False),
    Column("lost_input_equivalents", ExactDecimal),
    Column("lost_cost", ExactDecimal),
    Column("finding", JsonText, nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", RowId, primary_key=True, autoincrement=True),
    Column("session", AnyText, nullable=False, index=True),
    Column("call", AnyText),
    Column("at", Double, nullable=False),
    Column("kind", AnyText, nullable=False),
    Column("action", AnyText, nullable=False),
    Column("alternative", AnyText, nullable=False),
    Column("action_price", ExactDecimal),
    Column("alternative_price", ExactDecimal),
    Column("currency", AnyText, nullable=False),
    Column("details", JsonText),
)
