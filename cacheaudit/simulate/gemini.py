"""Gemini: a cache object that the request names is read whole; else the longest prefix.

Nothing is promised of the latter.
"""

from __future__ import annotations

from typing import Final

from cacheaudit.simulate.longest_prefix import LongestPrefixMachine, LongestRules, longest_rules
from cacheaudit.simulate.machine import Kind
from cacheaudit.simulate.request import Outcome, SimRequest


class GeminiMachine:
    """State of one cache. Requests must come in order of their start."""

    name = "gemini"

    def __init__(self) -> None:
        self._implicit = LongestPrefixMachine()

    def step(self, request: SimRequest, rules: LongestRules) -> Outcome:
        """Take one request and say what was read and written."""
        if request.cached_object is None:
            return self._implicit.step(request, rules)
        read = request.object_tokens or 0
        return Outcome(read=read, writes={}, uncached=request.total, notes=("cache_object",))


KIND: Final = Kind("gemini", GeminiMachine, longest_rules)
