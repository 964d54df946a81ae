"""Sends recorded sessions to an engine: predicted, reported and replayed tokens of every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cacheaudit.errors import UsageError
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.common import open_corpus, require_readable
from cacheaudit.jobs.inputs import Inputs, Progress, silent
from cacheaudit.jobs.replaying.compare import Row, result_of
from cacheaudit.jobs.replaying.extent import Extent, comfortable
from cacheaudit.jobs.replaying.own_bodies import longest_body, own_bodies
from cacheaudit.jobs.replaying.plan import RuleSet, Step, steps
from cacheaudit.jobs.replaying.send import Answer, Sender
from cacheaudit.jobs.replaying.target import LOCAL, Targets, Wanted
from cacheaudit.jobs.replaying.why import Setting
from cacheaudit.model.call import Call
from cacheaudit.report.replay import ReplayResult
from cacheaudit.simulate.build import Refusal, in_order
from cacheaudit.simulate.edit import Edit, apply_possible, edit_text
from cacheaudit.simulate.run import Simulated, run
from cacheaudit.simulate.sketch import sketched
from cacheaudit.simulate.switches import Switches

_MOST_PAGES = 2_500_000


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to replay.

    Attributes:
        backend: ``local``, or the address of a server.
        clock: ``recorded``: pauses pass on the server's clock; ``fast``: time stands still.
        scale: Recorded tokens that one token stands for; ``None``: so that the local engine needs
            seconds, and 1 for a server.
        edits: Changes to make first; of those that the record does not allow, the result says why.
        switches: Disputed rules for the prediction.
        rules: Cache rules for all calls; ``None``: those of each call's provider.
        model: Model of the local engine.
        pages: Pages of its cache; ``None``: enough for everything.
        bodies: Send the record's own bodies instead of filler.
        key: Credential for a server.
    """

    backend: str = LOCAL
    clock: str = "recorded"
    scale: int | None = None
    edits: tuple[Edit, ...] = ()
    switches: Switches = Switches()
    rules: RuleSet | None = None
    model: str = "tiny"
    pages: int | None = None
    bodies: bool = False
    key: str | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.bodies and (self.edits or self.scale not in (None, 1)):
            raise UsageError(
                "Recorded bodies are sent as they are: neither edited nor scaled.",
                "Leave out --bodies, or --edit and --scale.",
            )


class Outlook(msgspec.Struct, frozen=True):
    """What a replay would send, before anything is sent.

    Attributes:
        requests: How many.
        tokens: Tokens of all of them together, at the scale chosen.
        scale: Recorded tokens that one token stands for.
    """

    requests: int
    tokens: int
    scale: int


def replay(
    inputs: Inputs,
    progress: Progress,
    options: ReplayOptions,
    *,
    tick: Callable[[], float],
    name: str,
    allow: Callable[[Outlook], None] = lambda _: None,
) -> ReplayResult:
    """Replay sessions.

    Args:
        inputs: What to read.
        progress: Told (calls done, calls in all) after every call.
        options: How.
        tick: A clock that only rises, in seconds.
        name: Of this replay, unlike that of any other: it finds nothing that another one stored.
        allow: Told what would be sent before anything is; raises to refuse.

    Raises:
        UsageError: A path does not exist, or the server does not answer.
        MissingExtraError: The local engine is not installed.
    """
    problems = Problems()
    calls = _read(inputs, problems)
    changed, refused = _edited(calls, options.edits)
    made = [edit for edit in options.edits if edit_text(edit) not in refused]
    plan = list(steps(changed, options.switches, timeless=options.clock == "fast"))
    if options.rules is not None:
        plan = [_ruled(item, options.rules) for item in plan]
    sent = [item for item in plan if isinstance(item, Step)]
    own = own_bodies(step.call for step in sent) if options.bodies else None
    scale = _scale(options, sent)
    allow(Outlook(len(sent), sum(step.sums[-1] for step in sent) // scale, scale))
    answers = _send(sent, own, options, scale, progress, tick, name)
    simulated = run(changed, switches=options.switches)
    recorded = {call.id: call.usage for call in calls}
    setting = Setting(
        clock=options.clock,
        scale=scale,
        switches=options.switches.changed(),
        is_edited=bool(made),
    )
    return result_of(
        list(_rows(plan, simulated, answers)),
        recorded,
        setting,
        {} if made else _other_rules(changed, simulated, options.switches),
        backend=options.backend,
        content="bodies" if options.bodies else "filler",
        rules_version=simulated.rules_version,
        edits=[edit.name for edit in made],
        refused=refused,
        problems={kind: count for kind, count, _ in problems.items()},
    )


def _read(inputs: Inputs, problems: Problems) -> list[Call]:
    corpus = open_corpus(inputs, problems, silent)
    low = float("-inf") if inputs.since is None else inputs.since
    high = float("inf") if inputs.until is None else inputs.until
    is_all = inputs.since is None and inputs.until is None
    calls = [
        call
        for session in corpus.sessions()
        for call in session.calls
        if is_all or (call.at is not None and low <= call.at < high)
    ]
    require_readable(corpus, problems)
    return calls


def _edited(calls: Sequence[Call], edits: Sequence[Edit]) -> tuple[Sequence[Call], dict[str, str]]:
    if not edits:
        return calls, {}
    if not any(call.prompt is not None for call in calls):
        calls = sketched(in_order(calls))
    return apply_possible(edits, calls)


def _ruled(item: Step | Refusal, rules: RuleSet) -> Step | Refusal:
    return msgspec.structs.replace(item, rules=rules) if isinstance(item, Step) else item


def _rows(
    plan: Sequence[Step | Refusal], simulated: Simulated, answers: Iterable[Answer]
) -> Iterator[Row]:
    """Put together what is known of each call; plan and simulation are in the same order."""
    waiting = iter(answers)
    for item, row in zip(plan, simulated.calls, strict=True):
        yield Row(item, row, next(waiting) if isinstance(item, Step) else None)


def _scale(options: ReplayOptions, sent: Sequence[Step]) -> int:
    if options.scale is not None:
        return options.scale
    return comfortable(sent) if options.backend == LOCAL and not options.bodies else 1


def _send(
    sent: Sequence[Step],
    own: Mapping[str, dict[str, Any]] | None,
    options: ReplayOptions,
    scale: int,
    progress: Progress,
    tick: Callable[[], float],
    name: str,
) -> list[Answer]:
    if not sent:
        return []
    extent = Extent(sent, scale)
    pages = options.pages
    if pages is None and options.model == "tiny" and own is None:
        pages = min(max(extent.distinct, extent.longest), _MOST_PAGES)
    wanted = Wanted(
        backend=options.backend,
        clock=options.clock,
        scale=scale,
        model=options.model,
        context_length=extent.longest if own is None else longest_body(own),
        pages=pages,
        each_block=options.switches.lookback_runs == "each",
        key=options.key,
    )
    answers: list[Answer] = []
    with Targets(wanted, tick) as targets:
        sender = Sender(targets, wanted, name, own)
        for done, step in enumerate(sent, 1):
            answers.append(sender.send(step))
            progress(done, len(sent))
    return answers


def _other_rules(calls: Sequence[Call], simulated: Simulated, switches: Switches) -> dict[str, str]:
    """Find for calls that were billed otherwise than predicted a disputed rule that explains it."""
    from cacheaudit.jobs.replaying.rule_versions import fitting_rules

    return fitting_rules(calls, simulated, switches)
