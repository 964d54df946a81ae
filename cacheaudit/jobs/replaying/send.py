"""One request after the other: written, counted, sent, measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cacheaudit.jobs.replaying.blocks import Encoding
from cacheaudit.jobs.replaying.body import Body, Writer, scaled
from cacheaudit.jobs.replaying.client import BEGAN, NOW, WORKSPACE, Failure
from cacheaudit.jobs.replaying.measure import Measured, measured
from cacheaudit.jobs.replaying.own_bodies import sendable
from cacheaudit.jobs.replaying.plan import Step
from cacheaudit.jobs.replaying.target import Target, Targets, Wanted


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one request.

    Attributes:
        found: What the engine did, or how the request failed.
        rules: Cache rules of the server, where it says so.
        model: Its model, where it says so.
        unsent: Settings that could not be sent.
        counted: Whether sizes on the server were ``exact``, ``floored`` or ``approximate``.
    """

    found: Measured | Failure
    rules: str | None = None
    model: str | None = None
    unsent: tuple[str, ...] = ()
    counted: str = "exact"


class Sender:
    """Sends the requests of one replay.

    Args:
        targets: Where to.
        wanted: How.
        name: Of the replay: what it stores is its own.
        own: Recorded bodies by call id, if these are to be sent.
    """

    def __init__(
        self,
        targets: Targets,
        wanted: Wanted,
        name: str,
        own: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self._targets = targets
        self._wanted = wanted
        self._name = name
        self._own = own
        self._writers: dict[tuple[Encoding, bool], Writer] = {}

    def send(self, step: Step) -> Answer:
        """Send one request; nothing is raised for a server that refuses it.

        Raises:
            UsageError: There is no server.
        """
        target = self._targets.of(step.rules)
        body = self._body(step, target)
        if body is None:
            return Answer(found=Failure("no_body", None, "the record holds no body of this call"))
        headers = self._headers(step, target)
        counted, how = self._counted(body, target, headers)
        reply = target.client.create(body.json, headers)
        found: Measured | Failure
        if isinstance(reply, Failure):
            found = reply
        else:
            found = measured(reply.json, step.sums, counted, body.turns, reply.seconds) or Failure(
                "no_usage"
            )
        return Answer(
            found=found,
            rules=target.server.rules,
            model=target.server.model,
            unsent=body.unsent,
            counted=how,
        )

    def _body(self, step: Step, target: Target) -> Body | None:
        if self._own is not None:
            recorded = self._own.get(step.call.id)
            if recorded is None:
                return None
            sizes = tuple(scaled(size, 1) for size in step.sizes)
            return Body(sendable(recorded, step.model), sizes, (0,) * len(sizes))
        is_marked = step.rules == "anthropic"
        key = target.encoding, is_marked
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = Writer(
                self._wanted.scale, marked=is_marked, encoding=target.encoding
            )
        return writer.write(step.prompt, step.blocks, step.sizes, step.model)

    def _headers(self, step: Step, target: Target) -> dict[str, str]:
        if not target.server.is_ours:
            return {}
        headers = {WORKSPACE: f"{self._name}-{step.scope}"}
        if self._wanted.clock == "recorded":
            headers |= {NOW: f"{step.at:.6f}", BEGAN: f"{step.readable_at:.6f}"}
        return headers

    def _counted(
        self, body: Body, target: Target, headers: Mapping[str, str]
    ) -> tuple[tuple[int, ...], str]:
        """Ask what each content block weighs on the server; as planned where it does not tell."""
        if not target.server.is_ours:
            return body.planned, "approximate"
        found = target.client.count(body.json, headers)
        if found is None or len(found) < len(body.planned):
            return body.planned, "approximate"
        counted = tuple(found[: len(body.planned)])
        if counted == body.planned:
            return counted, "exact"
        is_more = all(a >= b for a, b in zip(counted, body.planned, strict=True))
        return counted, "floored" if is_more and self._own is None else "approximate"
