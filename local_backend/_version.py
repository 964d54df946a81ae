"""Version of the second distribution; always that of cacheaudit."""

__version__ = "0.1.0"
