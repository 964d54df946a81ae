"""What rules share that speak of one setting of the cache key, each under its providers' names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from cacheaudit.diagnose.changed import named_drafts
from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.rule import Draft, Rule, override
from cacheaudit.diagnose.scenes import chat, continued, request
from cacheaudit.model.call import Session
from cacheaudit.model.finding import Finding
from cacheaudit.simulate.edit import Edit
from cacheaudit.simulate.edits.steady_settings import SteadySettings


class SettingRule(Rule, register=False):
    """A rule about one setting.

    Attributes:
        settings: The setting, as providers name it.
        is_automatic: Its examples are of a cache that needs no markers.
    """

    settings: ClassVar[tuple[str, ...]]
    is_automatic: ClassVar[bool] = False
    looks_at: ClassVar[tuple[str, ...]] = ("bodies", "reasons")
    supersedes: ClassVar[tuple[str, ...]] = ("parameter-changed",)

    @classmethod
    def talk(cls, first: dict[str, Any], second: dict[str, Any], last: str = "next") -> Session:
        """Make an example: two requests of one conversation, each with fields of its own."""
        words = ("task", "answer", "go on", "more", last)
        if cls.is_automatic:
            bodies = (chat(*words[:3], **first), chat(*words, **second))
            return continued(*bodies, provider="openai", model="gpt-5.6")
        return continued(request(*words[:3], **first), request(*words, **second))

    @override
    def check(self, ctx: Context) -> Iterable[Draft]:
        """See :meth:`Rule.check`."""
        names = self.settings
        yield from named_drafts(
            ctx, lambda diff: diff.is_parameter(*names), reasons=self.provider_reasons
        )

    @override
    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """See :meth:`Rule.fix_edit`."""
        return SteadySettings(names=self.settings)
