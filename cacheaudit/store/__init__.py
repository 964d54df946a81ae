"""Sessions, calls and findings in a SQL database."""

from cacheaudit.store.engine import default_url
from cacheaudit.store.records import Decision, Entry, FileCursor, WriteCount
from cacheaudit.store.store import Store, open_store

__all__ = [
    "Decision",
    "Entry",
    "FileCursor",
    "Store",
    "WriteCount",
    "default_url",
    "open_store",
]
