"""Runs one command and prints what it cost: processor seconds, peak memory, exit code.

A program of its own, because a child's peak memory counts that of the process it was forked from:
started from a test run of 200 MB, every tool would seem to need 200 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def main(report: str, output: str, *command: str) -> None:
    """Run ``command`` with its output sent to a file, and write the account to ``report``."""
    with Path(output).open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream)
        _, status, used = os.wait4(process.pid, 0)
    account = {
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / 1024,
        "code": os.waitstatus_to_exitcode(status),
    }
    Path(report).write_text(json.dumps(account))


if __name__ == "__main__":
    main(*sys.argv[1:])
