"""Replays as evidence: a loss that an engine reproduced from the recorded requests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.jobs.replaying.compare import agrees
from cacheaudit.model.finding import Finding
from cacheaudit.report.format import plural
from cacheaudit.report.replay import REPLAY_SCHEMA, ReplayResult


class Replays:
    """What earlier replays reproduced.

    A call counts where the recorded request was sent, with the recorded times and nothing edited,
    and the engine read and wrote what was billed. Requests drawn from usage do not count: they were
    drawn so that they do.

    Args:
        files: Results of ``cacheaudit replay --json``.

    Raises:
        UsageError: A file cannot be read or is no such result.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._reproduced: set[tuple[str, str]] = set()
        for file in files:
            self._reproduced.update(_reproduced(_read(file)))

    def confirm(self, finding: Finding) -> Finding:
        """Raise a loss to evidence ``replayed`` where each call that lost was reproduced.

        The provider's own word stays what it is.
        """
        if finding.kind != "loss" or finding.evidence == "reported" or finding.session is None:
            return finding
        calls = tuple(place.call for place in finding.places) or finding.calls
        if not calls or any((finding.session, call) not in self._reproduced for call in calls):
            return finding
        said = (
            f"Replayed on an engine: {plural(len(calls), 'call')} read and wrote what was billed."
        )
        return msgspec.structs.replace(
            finding, evidence="replayed", established=(*finding.established, said)
        )


def _reproduced(result: ReplayResult) -> Iterable[tuple[str, str]]:
    if result.clock != "recorded" or result.edits:
        return
    for call in result.calls:
        if call.basis == "request" and agrees(call.reported, call.replayed):
            yield call.session, call.id


def _read(file: Path) -> ReplayResult:
    try:
        found = msgspec.json.decode(file.read_bytes(), type=ReplayResult)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"Cannot read {str(file)!r}: {reason}.", "Check the path.") from error
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{str(file)!r} is no result of a replay: {error}.",
            f"Make one: cacheaudit replay SESSION --json -o {file}",
        ) from error
    if found.schema != REPLAY_SCHEMA:
        raise UsageError(
            f"{str(file)!r} has the schema {found.schema!r}.", f"It must be {REPLAY_SCHEMA}."
        )
    return found
