"""The main job: read, price, diagnose, and put everything into one result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from cacheaudit._version import __version__
from cacheaudit.diagnose.cross import CrossState
from cacheaudit.diagnose.runner import Diagnosis, diagnose
from cacheaudit.errors import StoreError
from cacheaudit.ingest.corpus import Amendment, Corpus
from cacheaudit.ingest.problems import Problems
from cacheaudit.jobs.checks import Recorded, checks
from cacheaudit.jobs.command import Commands
from cacheaudit.jobs.common import (
    Moments,
    open_corpus,
    require_readable,
    rules_version,
    source_limits,
    stored_sessions,
    undated,
)
from cacheaudit.jobs.costs import Costs
from cacheaudit.jobs.inputs import Inputs, Progress
from cacheaudit.jobs.outlook import Outlook
from cacheaudit.jobs.predict import Predictor, with_savings
from cacheaudit.jobs.rows import CallRows, finding_row, price_used
from cacheaudit.jobs.tally import Bucket, Tally, merged
from cacheaudit.model.call import Call, Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Finding
from cacheaudit.model.money import plain
from cacheaudit.model.prompt import Prompt
from cacheaudit.pricing.book import PriceBook
from cacheaudit.pricing.card import RateCard
from cacheaudit.pricing.cost import price_call
from cacheaudit.report.detail import ToolDirectory
from cacheaudit.report.result import (
    AuditResult,
    Group,
    Predicted,
    Quality,
    Scope,
    Tool,
    Totals,
    WhatIf,
)
from cacheaudit.report.spool import CallSpool
from cacheaudit.simulate.quick import Predicted as Quick

if TYPE_CHECKING:
    from cacheaudit.store.store import Store

_Key = tuple[str, str, str]
_NOTHING: Final = Diagnosis(findings=(), changes={})
_NO_CALLS: Final[Mapping[str, Quick]] = {}


def audit(inputs: Inputs, progress: Progress, *, show_text: bool = False) -> AuditResult:
    """Audit recorded sessions.

    Args:
        inputs: What to read.
        progress: Told after every session.
        show_text: Show the text at the changes of prompts; otherwise letters and digits are masked.

    Returns:
        The result; its calls are kept on disk where there are many.

    Raises:
        UsageError: A named path does not exist.
        UnknownFormatError: Nothing readable was named.
    """
    problems = Problems()
    work = _Work(PriceBook(inputs.prices), inputs, problems, show_text=show_text)
    if inputs.db is not None and not inputs.paths:
        return work.result_of_store(inputs.db)
    corpus = open_corpus(inputs, problems, progress)
    for session in corpus.sessions():
        work.take(session)
        work.amend(corpus.amendments)
    work.amend(corpus.amendments)  # of files that held nothing but copies
    require_readable(corpus, problems)
    return work.result(corpus)


class _Work:
    """What an audit gathers, session after session."""

    def __init__(
        self, book: PriceBook, inputs: Inputs, problems: Problems, *, show_text: bool = False
    ) -> None:
        self._book = book
        self._commands, self._show_text = Commands(inputs), show_text
        self._tally = Tally(book)
        self._since, self._until = inputs.since, inputs.until
        self._problems = problems
        self._spool = CallSpool()
        self._buckets: dict[_Key, Bucket] = {}
        self._findings: list[Finding] = []
        self._edits: dict[str, str] = {}
        self._predictor = Predictor(book, switches=inputs.switches)
        self._outlook = Outlook(inputs.switches)
        self._quick = inputs.quick
        chosen = inputs.selection
        self._rules = None if chosen.is_everything else chosen.rules()
        if inputs.quick:
            self._rules = ()
        self._confirm = _confirmation(inputs)
        self._cross = CrossState()
        self._tools = ToolDirectory()
        self._recorded = Recorded()
        self._costs = Costs()
        self._moments = Moments()
        self._sessions: set[str] = set()
        self._undated = 0
        self._more: dict[str, tuple[int, RateCard | None]] = {}

    def take(self, session: Session) -> None:
        """Diagnose a session and add its calls."""
        session = self._in_time(session)
        if not session.calls:
            return
        # A session may stand in several files: it is counted by its name, as `usage` does.
        self._sessions.update({call.session for call in session.calls})
        if self._quick:
            diagnosis, predicted = _NOTHING, _NO_CALLS
        else:
            diagnosis = diagnose(session, self._book, self._rules)
            predicted = self._look_into(session, diagnosis)
        self._tools.add(session.calls)
        rows = CallRows(show_text=self._show_text)
        calls, changes = session.calls, diagnosis.changes
        for call in calls:
            change, earlier = changes.get(call.id), None
            if change is not None and call.id in diagnosis.earlier:
                earlier = calls[diagnosis.earlier[call.id]].prompt
            self._add(call, change, earlier, predicted.get(call.id), rows)

    def _look_into(self, session: Session, diagnosis: Diagnosis) -> Mapping[str, Quick]:
        """Predict a session and keep what was found; returns what its calls should have read."""
        prediction = self._predictor.predict(session, diagnosis)
        self._outlook.add(prediction, diagnosis.findings)
        self._findings.extend(with_savings(self._cross.add(session, diagnosis), prediction))
        self._edits.update(prediction.edits)
        self._recorded.add(session.calls)
        return prediction.calls

    def _in_time(self, session: Session) -> Session:
        if self._since is None and self._until is None:
            return session
        low = self._since if self._since is not None else float("-inf")
        high = self._until if self._until is not None else float("inf")
        dated = [call for call in session.calls if call.at is not None and not call.relative_time]
        self._undated += len(session.calls) - len(dated)
        kept = tuple(call for call in dated if low <= (call.at or 0.0) < high)
        return Session(id=session.id, source=session.source, calls=kept, project=session.project)

    def _add(
        self,
        call: Call,
        change: Change | None,
        earlier: Prompt | None,
        predicted: Quick | None,
        rows: CallRows,
    ) -> None:
        usage = call.usage
        at = None if call.relative_time else call.at
        cost: str | None = None
        card: RateCard | None = None
        if usage is not None:
            key = (call.session, call.purpose, call.model or "unknown")
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = Bucket()
            card = self._tally.add(bucket, usage, call.provider, call.model, call.surface, at)
            cost = self._cost(call) if card is None else self._costs.text(card, usage)
            if call.reported_cost is not None:
                self._tally.add_reported(bucket, call.reported_cost, call.currency)
        if at is not None:
            self._moments.add(at)
        expected = None
        if predicted is not None:
            expected = Predicted(
                predicted.read, predicted.written, predicted.uncached, predicted.why
            )
        self._spool.append(rows.row(call, at, cost, card, change, expected, earlier))

    def _cost(self, call: Call) -> str | None:
        """Price a call that no single price row covers."""
        amount = price_call(call, self._book).amount
        return None if amount is None else plain(amount)

    def amend(self, amendments: list[Amendment]) -> None:
        """Correct calls that were added already, since a later copy had more output; empties it."""
        for amendment in amendments:
            call = amendment.call
            usage = call.usage
            if usage is None:
                continue
            at = None if call.relative_time else call.at
            card = self._tally.card(usage, call.provider, call.model, call.surface, at)
            before = self._more.get(call.id, (0, None))[0]
            self._more[call.id] = before + amendment.more_output, card
            self._spool.amend(call.id, usage.output or 0, self._cost(call))
        amendments.clear()

    def _correct_totals(self) -> None:
        """Add what later copies had more to the groups that the calls were counted in.

        The copy may stand in another session, so the row that it corrects tells where it belongs.
        """
        if not self._more:
            return
        for row in self._spool:
            found = self._more.pop(row.id, None)
            bucket = self._buckets.get((row.session, row.purpose, row.model or "unknown"))
            if found is not None and bucket is not None:
                self._tally.add_output(bucket, *found)

    def result(self, corpus: Corpus) -> AuditResult:
        """Put everything together."""
        scope = Scope(
            sources=dict(sorted(corpus.read_sources.items())),
            sessions=len(self._sessions),
            calls=len(self._spool),
            first=self._moments.first_iso,
            last=self._moments.last_iso,
            files=len(corpus.files),
            bytes=corpus.total_bytes,
        )
        return self._finish(scope, source_limits(corpus, self._problems))

    def result_of_store(self, url: str) -> AuditResult:
        """Audit what a store holds."""
        from cacheaudit.store.store import open_store

        sources: dict[str, int] = {}
        with open_store(url, create=False) as store:
            for session in stored_sessions(store):
                sources[session.source] = sources.get(session.source, 0) + 1
                self.take(session)
            scope = Scope(
                sources=dict(sorted(sources.items())),
                sessions=len(self._sessions),
                calls=len(self._spool),
                first=self._moments.first_iso,
                last=self._moments.last_iso,
            )
            result = self._finish(scope, [])
            result.data_quality.extend(self._keep(store))
        return result

    def _keep(self, store: Store) -> list[Quality]:
        """Put what was found, and the prices that it rests on, beside the calls.

        A run over some of the calls, or with some of the rules, would replace more than it knows.
        """
        if self._rules is not None or self._since is not None or self._until is not None:
            return []
        used = (price_used(card) for card in self._tally.cards.values())
        try:
            store.record_prices({card.id: msgspec.to_builtins(card) for card in used})
            store.replace_findings(self._findings, sorted(self._sessions))
        except StoreError as error:  # one may read a store that one may not write
            return [Quality("findings_not_stored", 1, [error.message])]
        return []

    def _finish(self, scope: Scope, quality: list[Quality]) -> AuditResult:
        self._correct_totals()
        buckets = self._buckets
        across = self._cross.findings(self._book)
        if self._rules is not None:
            ran = {rule.id for rule in self._rules}
            across = tuple(finding for finding in across if finding.rule in ran)
        self._findings = [self._confirm(found) for found in (*self._findings, *across)]
        totals = merged(buckets.values()).totals()
        if self._undated:
            quality.append(undated(self._undated))
        return AuditResult(
            tool=Tool(__version__, rules_version(), self._tally.as_of),
            scope=scope,
            totals=totals,
            calls=self._spool,
            findings=[finding_row(found, self._edits.get(found.id)) for found in self._ranked()],
            what_if=self._what_if(totals),
            simulation=self._outlook.simulation(),
            data_quality=[*quality, *self._tally.assumptions()],
            by_session=_groups(buckets.items(), 0),
            by_purpose=_groups(buckets.items(), 1),
            by_model=_groups(buckets.items(), 2),
            tools=self._tools.rows(),
            prices=[price_used(card) for _, card in sorted(self._tally.cards.items())],
            checks=checks(self._findings, self._recorded.absent, self._rules),
            diagnosed=self._rules != (),
            facts=self._outlook.rules.rows(),
            command=self._commands.audit(show_text=self._show_text),
        )

    def _what_if(self, totals: Totals) -> WhatIf:
        if self._rules == ():
            return WhatIf(reason="no rule was run, so that no fix is known")
        return self._outlook.what_if(totals, self._commands, self._predictor.unjudged)

    def _ranked(self) -> list[Finding]:
        """Order by money, then by tokens; notes last."""

        def rank(finding: Finding) -> tuple[int, Decimal, int, str]:
            lost = finding.lost
            money = lost.cost if lost is not None and lost.cost is not None else Decimal(0)
            return (finding.kind != "loss", -money, -finding.tokens_lost, finding.id)

        return sorted(self._findings, key=rank)


def _confirmation(inputs: Inputs) -> Callable[[Finding], Finding]:
    """Read the replays that count as evidence, if there are any."""
    if not inputs.replayed:
        return lambda finding: finding
    from cacheaudit.jobs.replaying.evidence import Replays

    return Replays(inputs.replayed).confirm


def _groups(items: Iterable[tuple[_Key, Bucket]], part: int) -> list[Group]:
    joined: dict[str, Bucket] = {}
    for key, bucket in items:
        name = key[part]
        mine = joined.get(name)
        if mine is None:
            mine = joined[name] = Bucket()
        mine.merge(bucket)
    groups = [Group(name, bucket.totals()) for name, bucket in joined.items()]
    return sorted(groups, key=lambda group: (-_money(group.totals), group.key))


def _money(totals: Totals) -> Decimal:
    return Decimal(totals.cost.computed or 0)
