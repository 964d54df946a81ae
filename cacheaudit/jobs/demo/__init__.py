"""A small coding agent against the local engine: a naive loop and one that uses what is here."""
