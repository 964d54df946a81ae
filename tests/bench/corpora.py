"""The generated corpora that are measured on: where they are kept, and fresh copies of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fixtures.make.make_corpus import GENERATOR, Corpus, parse_line_size, parse_size

SEED = 1
DRAWN = "drawn"


def line_sizes(text: str) -> list[int | None]:
    """Read a list of mean lengths of a line: numbers of bytes, and ``drawn`` for those as drawn."""
    names = [name.strip() for name in text.split(",")]
    return [None if name == DRAWN else parse_line_size(name) for name in names]


def corpus_of(cache: Path, size: str, line_size: int | None) -> Path:
    """Return the corpus of a size, made where it is missing or of another generator."""
    name = f"corpus{size.upper().removesuffix('MB')}"
    folder = cache / (name if line_size is None else f"{name}-lines{line_size}")
    truth = folder / "truth.json"
    if truth.is_file():
        known = json.loads(truth.read_text())
        made = (known["generator"], known["seed"], known.get("line_size"))
        if made == (GENERATOR, SEED, line_size):
            return folder
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    Corpus(folder, parse_size(size), SEED, line_size).write()
    return folder


def renew(copy: Path, corpus: Path) -> None:
    """Write the transcripts of ``corpus`` anew to ``copy``.

    What a read costs depends on where the pages of a file lie in memory: several times as much for
    files that were cached long ago as for those just written. After this all pages are new.
    """
    shutil.rmtree(copy, ignore_errors=True)
    for path in sorted((corpus / "projects").rglob("*")):
        if path.is_file():
            target = copy / path.relative_to(corpus)
            target.parent.mkdir(parents=True, exist_ok=True)
            # By writing, and not by a call of the system that might share blocks of the disk.
            target.write_bytes(path.read_bytes())
