"""Every exception that cacheaudit raises on purpose.

::

    CacheAuditError
     ├─ UsageError              a command or function was called in a way that cannot work
     ├─ ConfigError             a setting or a file of settings is wrong
     ├─ MissingExtraError       an optional part is not installed
     ├─ OutputError             a stored output cannot be kept, found, read or searched
     ├─ ToolError               a tool cannot be registered
     │   └─ ToolDriftError      a request's tools are not those that its session began with
     ├─ IngestError
     │   ├─ UnknownFormatError  no source recognises the file
     │   └─ CorruptRecordError  one record cannot be read (counted, never stops a run)
     ├─ PricingError            a price table is inconsistent
     ├─ PromptError             a request body does not have the shape of its API
     └─ StoreError
         └─ SchemaVersionError  the database was written by another version

Each carries what happened, on which item, and what to do; all can be pickled.
"""

from __future__ import annotations


class CacheAuditError(Exception):
    """Root of the tree.

    Args:
        message: What happened and on which item.
        hint: What the reader can do about it.
    """

    code = "error"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(f"{message} {hint}" if hint else message)
        self.message = message
        self.hint = hint


class UsageError(CacheAuditError):
    """The caller asked for something that cannot work."""

    code = "usage"


class ConfigError(CacheAuditError):
    """A setting, or a file of settings, is wrong."""

    code = "config"


class MissingExtraError(CacheAuditError):
    """An optional part is not installed."""

    code = "missing_extra"


class OutputError(CacheAuditError):
    """A stored output cannot be kept, found, read or searched."""

    code = "output"


class ToolError(CacheAuditError):
    """A tool cannot be registered, or a session of tools cannot be opened."""

    code = "tool"


class ToolDriftError(ToolError):
    """The tools of a request are not those that its session began with."""

    code = "tool_drift"


class IngestError(CacheAuditError):
    """A file could not be read as a recorded session."""

    code = "ingest"


class UnknownFormatError(IngestError):
    """No source recognises the file."""

    code = "unknown_format"


class CorruptRecordError(IngestError):
    """One record of a file cannot be read."""

    code = "corrupt_record"


class PricingError(CacheAuditError):
    """A price table is inconsistent."""

    code = "pricing"


class PromptError(CacheAuditError):
    """A request body does not have the shape of its API."""

    code = "prompt"


class StoreError(CacheAuditError):
    """The database could not be used."""

    code = "store"


class SchemaVersionError(StoreError):
    """The database was written by another version."""

    code = "schema_version"
