"""Implementations in Python and in C; the C files are compiled at the first use, see ``_build``."""
