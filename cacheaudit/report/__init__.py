"""One result, several renderings."""
