"""Rule TOL209."""

from __future__ import annotations

from collections.abc import Iterable

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.diffs import Diff
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding, Fix
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.steady_settings import SteadySettings

# The setting, as providers name it.
_NAMES = ("mcp_servers",)


class ConnectedServersChanged(Rule):
    """The servers that the provider is to connect to differ from the request before.

    ## Why it costs

    Their tools are rendered with the others, in front of everything. A server more or less makes
    the whole prompt new.

    ## What it rests on

    Recorded bodies: the list of servers, by its digest. Proved where the tokens read are those that
    earlier requests had marked in front of it; otherwise consistent, and what disagrees is said.

    ## When to ignore

    When a server is added once, early.

    ## References

    dust-tt/dust#27655; the provider's page on tool servers.
    """

    id = "TOL209"
    name = "connected-servers-changed"
    title = "The list of tool servers changed"
    needs = ("usage", "requests")
    looks_at = ("bodies",)
    supersedes = ("parameter-changed", "tools-changed")
    fix = Fix("Name all servers from the first request on")

    @classmethod
    @override
    def bad(cls) -> Session:
        """Connect one more server."""
        server = {"type": "url", "url": "https://tools.example", "name": "tools"}
        first = request("task", "answer", "go on", mcp_servers=[server])
        other = {"type": "url", "url": "https://more.example", "name": "more"}
        second = request("task", "answer", "go on", "more", "next", mcp_servers=[server, other])
        return continued(first, second)

    @classmethod
    @override
    def good(cls) -> Session:
        """Leave the list alone."""
        server = {"type": "url", "url": "https://tools.example", "name": "tools"}
        first = request("task", "answer", "go on", mcp_servers=[server])
        second = request("task", "answer", "go on", "more", "next", mcp_servers=[server])
        return continued(first, second)

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        yield from named_drafts(ctx, _matches)

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return SteadySettings(names=_NAMES)


def _matches(diff: Diff) -> bool:
    return diff.is_parameter(*_NAMES)
