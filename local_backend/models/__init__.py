"""Models: one file a family, one interface for all. Importing the package loads no torch."""
