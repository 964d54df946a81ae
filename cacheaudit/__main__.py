"""Runs the command line: ``python -m cacheaudit``."""

from cacheaudit.cli import main

if __name__ == "__main__":
    main(prog_name="cacheaudit")
