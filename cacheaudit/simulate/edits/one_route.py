"""Send every request where the cache of the others is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from cacheaudit.model.call import Call
from cacheaudit.model.prompt import Parameter, Prompt
from cacheaudit.simulate.edit import ROUTE, Settings
from cacheaudit.simulate.edits._rewrite import need_change, rebuilt, replace

# Where a record says whose cache was used.
_FIELDS = (
    "workspace",
    "workspace_id",
    "account",
    "account_id",
    "organization",
    "organization_id",
    "project_id",
    "api_key_id",
    "namespace",
)
_KEY = "prompt_cache_key"


class OneRoute(Settings, frozen=True, kw_only=True):
    """Give every call of a provider the account, workspace and cache key of its first one.

    Attributes:
        surface: Send every call to the surface of the first one, too.
    """

    name: ClassVar[str] = "one-route"
    title: ClassVar[str] = "Pin the session to one account and one cache key"
    stage: ClassVar[int] = ROUTE

    surface: bool = False

    def apply(self, calls: Sequence[Call]) -> Sequence[Call]:
        """Use one account and key for all."""
        first: dict[str | None, dict[str, Any]] = {}
        keys: dict[str | None, tuple[Parameter, ...]] = {}
        surfaces: dict[str | None, str | None] = {}
        changed: list[Call] = []
        for call in calls:
            mine = {name: call.extra[name] for name in _FIELDS if name in call.extra}
            wanted = first.setdefault(call.provider, mine)
            prompt = call.prompt
            if prompt is not None:
                prompt = _keyed(prompt, keys.setdefault(call.provider, _key_of(prompt)))
            where = surfaces.setdefault(call.provider, call.surface)
            where = where if self.surface else call.surface
            same = mine == wanted and prompt is call.prompt and where == call.surface
            if same or not self.concerns(call):
                changed.append(call)
                continue
            others = {k: v for k, v in call.extra.items() if k not in _FIELDS}
            changed.append(replace(call, extra={**others, **wanted}, prompt=prompt, surface=where))
        return need_change(calls, changed, "one-route: the record shows one route only.")


def _key_of(prompt: Prompt) -> tuple[Parameter, ...]:
    return tuple(p for p in prompt.parameters if p.name == _KEY)


def _keyed(prompt: Prompt, key: tuple[Parameter, ...]) -> Prompt:
    if _key_of(prompt) == key:
        return prompt
    others = tuple(p for p in prompt.parameters if p.name != _KEY)
    return rebuilt(prompt, prompt.blocks, others + key)


EDIT = OneRoute
