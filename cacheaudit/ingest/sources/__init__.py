"""One module a format; found by name, see ``cacheaudit.ingest.detect``."""
