"""What a rule is: one bad pattern, the sessions that show it, and the function that sees it.

Dropping a file into ``diagnose/rules`` adds a rule; nothing else has to change. Rules are pure: no
input or output, no clock, no prices. They claim tokens; who gets them is settled by the runner.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from cacheaudit.diagnose.context import Context
from cacheaudit.diagnose.worth import Stage, Swap
from cacheaudit.model.call import Session
from cacheaudit.model.change import Change
from cacheaudit.model.finding import Evidence, Finding, Fix, Rival, Verdict
from cacheaudit.simulate.edit import Edit

if TYPE_CHECKING:
    from typing_extensions import override as override
else:

    def override(method: Any) -> Any:
        """Stand in for ``typing.override``, which Python 3.11 does not have."""
        return method


FAMILIES = {
    "PFX": "text of the prefix",
    "TOL": "tools",
    "MDL": "model and parameters",
    "BRK": "cache markers",
    "TTL": "lifetime",
    "SIZ": "minimum size",
    "RTE": "routing, concurrency and the provider's side",
    "CMP": "compaction and rewritten history",
    "WST": "waste",
    "WRM": "warm-up",
    "DAT": "limits of the record",
}
_ID = re.compile(r"[A-Z]{3}[0-9]{3}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule says of one call, before rules are weighed against each other.

    Attributes:
        index: Position of the call in ``session.calls``.
        claims: Lost tokens that the rule would explain; 0 for a rival or a note.
        rank: How specific the claim is; the lowest rank takes the tokens.
        why: Why the cause is possible, for the case that another rule takes the tokens.
        verdict: How sure the claim is.
        evidence: What it rests on.
        title: Title of the finding, where the rule's own is too general.
        established: What the record proves of this call.
        to_check: What the record cannot tell.
        rivals: Causes that the same record allows and that no other rule speaks for.
        change: First change, where bodies were recorded.
        also: Ids of other calls that the statement is about.
        worth: Tokens that the fix would have had billed otherwise; priced by the runner.
        must_pay: Say it only where the fix would have saved something at the prices in force.
        stages: Calls whose input cost is told in a sentence each.
        pings: Position of a call and a lifetime for which to say how many reads cost a write.
        void: Nothing that the call read too little could ever have been read: it lost nothing, and
            no other rule may say that it did.
    """

    index: int
    claims: int = 0
    rank: int = 50
    why: str = ""
    verdict: Verdict = "consistent"
    evidence: Evidence = "usage"
    title: str | None = None
    established: tuple[str, ...] = ()
    to_check: tuple[str, ...] = ()
    rivals: tuple[Rival, ...] = ()
    change: Change | None = None
    also: tuple[str, ...] = ()
    worth: tuple[Swap, ...] = ()
    must_pay: bool = False
    stages: tuple[Stage, ...] = ()
    pings: tuple[int, str] | None = None
    void: bool = False


class Rule(ABC):
    """One rule. The docstring of a subclass is its page.

    Attributes:
        id: Family and number; never used twice, also not after a rule is gone.
        name: Names the bad pattern, in kebab case.
        title: One line for people.
        kind: ``loss`` where the rule explains lost tokens, ``note`` where it never does.
        needs: What the rule's own bad example must hold for it to speak: ``usage``, ``requests``,
            ``start_times``, ``provider_reasons``, ``boundaries``; empty where it speaks of any
            record.
        looks_at: What of calls that lost tokens the rule looks at, where that is all: ``bodies``,
            ``reasons`` (see :attr:`Context.shows`). It is not asked of a session without any.
        provider_reasons: The provider's own words that mean this rule.
        supersedes: Names of more general rules: where this one takes a call's tokens, they are no
            rivals of it, since they would say the same with fewer words.
        fix: What to do.
        rests_on: Disputed rules of the provider, as switches, without which what it sees loses
            nothing; its fix saves something only where they hold.
        is_trade: What it names is usually wanted and buys something that no bill shows, such as
            room in the context: its fix can be simulated, and counts for nothing in an audit.
        no_edit: For a loss: why no edit can stand for a fix, and so no saving can be told.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[Literal["loss", "note"]] = "loss"
    needs: ClassVar[tuple[str, ...]] = ("usage",)
    looks_at: ClassVar[tuple[str, ...]] = ()
    provider_reasons: ClassVar[tuple[str, ...]] = ()
    supersedes: ClassVar[tuple[str, ...]] = ()
    fix: ClassVar[Fix | None] = None
    rests_on: ClassVar[Mapping[str, str]] = MappingProxyType({})
    is_trade: ClassVar[bool] = False
    no_edit: ClassVar[str | None] = None
    registry: ClassVar[dict[str, type[Rule]]] = {}

    @override
    def __init_subclass__(cls, *, register: bool = True) -> None:
        super().__init_subclass__()
        if not register:
            return
        if not _ID.fullmatch(cls.id) or cls.id[:3] not in FAMILIES:
            raise TypeError(f"{cls.__name__}.id {cls.id!r} is not a known family and three digits.")
        if not _NAME.fullmatch(cls.name):
            raise TypeError(f"{cls.__name__}.name {cls.name!r} is not in kebab case.")
        if not cls.__doc__:
            raise TypeError(f"{cls.__name__} has no docstring; it is the rule's page.")
        for other in Rule.registry.values():
            is_same = (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__)
            if not is_same and (other.id == cls.id or other.name == cls.name):
                raise TypeError(f"{cls.__name__} repeats the id or name of {other.__name__}.")
        Rule.registry[cls.id] = cls

    @property
    def family(self) -> str:
        """Group of rules that it belongs to."""
        return self.id[:3]

    @property
    def explanation(self) -> str:
        """Text of the rule's page, Markdown."""
        return inspect.cleandoc(type(self).__doc__ or "")

    @classmethod
    @abstractmethod
    def bad(cls) -> Session:
        """Return a session that shows the pattern."""

    @classmethod
    @abstractmethod
    def good(cls) -> Session:
        """Return the same session without the pattern; no rule may claim a loss in it."""

    @abstractmethod
    def check(self, ctx: Context) -> Iterable[Draft]:
        """Yield what the rule sees in a session."""

    def fix_edit(self, session: Session, finding: Finding) -> Edit | None:  # noqa: ARG002
        """Return the fix as a change of the session that the simulator can run.

        Args:
            session: The session that the finding is about.
            finding: A finding of this rule.

        Returns:
            ``None`` where no edit stands for the fix.
        """
        return None


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return one instance of every rule, in order of id."""
    package = importlib.import_module("cacheaudit.diagnose.rules")
    for info in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{info.name}")
    mine = [r for r in Rule.registry.values() if r.__module__.startswith(package.__name__)]
    return tuple(rule() for rule in sorted(mine, key=lambda rule: rule.id))


def find_rule(key: str) -> Rule | None:
    """Return the rule with an id (``TTL101``, in any case) or name (``ttl-expired``)."""
    wanted = key.strip()
    for rule in all_rules():
        if wanted.upper() == rule.id or wanted.lower() == rule.name:
            return rule
    return None
