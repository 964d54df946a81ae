"""Builds distributions the way a user's tools do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def build(source: Path, folder: Path, *options: str, **variables: str) -> str:
    """Build distributions of a source tree into a folder; returns what the build said."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", folder, source],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
