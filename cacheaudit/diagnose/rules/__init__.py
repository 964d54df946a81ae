"""One module a rule; found by name, see ``cacheaudit.diagnose.runner``."""
