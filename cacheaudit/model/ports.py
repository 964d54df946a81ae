"""The seams: what a provider, a usage dialect and a source must offer to be picked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.usage import Usage

StartTimes = Literal["exact", "derived", "interval", "none"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a source can know. What it cannot is said in every report that rests on it.

    Attributes:
        reads: Cache reads are recorded.
        writes: Cache writes are recorded.
        ttl_split: Writes are recorded by lifetime.
        bodies: Requests are recorded.
        start_times: How well the start of a request is known.
        provider_reasons: The provider's own miss reason is recorded.
        output: Output tokens are recorded (``exact``), or may be too low, or not at all.
    """

    reads: bool = False
    writes: bool = False
    ttl_split: bool = False
    bodies: bool = False
    start_times: StartTimes = "none"
    provider_reasons: bool = False
    output: Literal["exact", "lower_bound", "none"] = "exact"


class ProblemSink(Protocol):
    """Counts what could not be read; never raises, keeps a few examples of each kind."""

    def __call__(self, kind: str, where: str, detail: str = "") -> None:
        """Count one problem of ``kind`` at ``where`` (file and line)."""
        ...


class Head(msgspec.Struct, frozen=True):
    """The beginning of a file, for detection.

    Attributes:
        path: The file.
        data: Its first bytes (up to 64 KiB).
        size: Its size in bytes.
        lines: Complete lines of ``data`` that parse as JSON objects, decoded.
        document: ``data`` as one JSON value, where the whole file fits and parses.
    """

    path: Path
    data: bytes
    size: int
    lines: tuple[dict[str, Any], ...] = ()
    document: Any = None


class Source(Protocol):
    """Reads one format of recorded session. One file each in ``cacheaudit.ingest.sources``."""

    name: str
    title: str
    capabilities: Capabilities

    def detect(self, head: Head) -> int:
        """Say how sure we are that the file has this format, 0 (no) to 100."""
        ...

    def read(self, path: Path, problems: ProblemSink) -> Iterator[Call]:
        """Yield the calls of one file in file order; bad records are counted, never raised."""
        ...

    def usual_places(self, environment: Mapping[str, str], home: Path) -> Iterator[Path]:
        """Yield the folders and files where the agent keeps its sessions; they may not exist."""
        ...


class Dialect(Protocol):
    """Reads one shape of usage record. One file each in ``cacheaudit.dialects``."""

    name: str

    def matches(self, usage: Mapping[str, Any]) -> bool:
        """Whether the field names are those of this dialect."""
        ...

    def normalise(self, usage: Mapping[str, Any]) -> Usage:
        """Turn the record into disjoint parts; contradictions become flags."""
        ...


class Provider(Protocol):
    """Knows one API's request bodies. One file each in ``cacheaudit.providers``."""

    name: str

    def accepts(self, body: Mapping[str, Any]) -> bool:
        """Whether a body has the shape of this API."""
        ...

    def expand(self, body: Mapping[str, Any], previous: Prompt | None = None) -> Prompt:
        """Turn a body into content blocks.

        Args:
            body: The request as sent; never changed.
            previous: Prompt of the call before it: content blocks that did not change are taken
                over from it with their digests.

        Raises:
            PromptError: The body does not have the shape of the API.
        """
        ...
