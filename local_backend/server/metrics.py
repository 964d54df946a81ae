"""Counters, and the text in which a monitor reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from local_backend.engine.api import EngineStats

_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What the server counted since it started; used by one thread."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.tokens: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.open_requests = 0
        self.open_streams = 0
        self.disconnects = 0

    def text(self, stats: EngineStats, entries: int) -> str:
        """All of it in the Prometheus text format."""
        return "".join(f"{line}\n" for line in self._lines(stats, entries))

    def _lines(self, stats: EngineStats, entries: int) -> Iterator[str]:
        pages: dict[_Labels, int] = {
            (("group", group), ("state", state)): getattr(pool, state)
            for group, pool in sorted(stats.pools.items())
            for state in ("available", "evictable", "protected", "total")
        }
        yield from _family("kv_pages", "gauge", "Pages of the KV cache.", pages)
        requests: dict[_Labels, int] = {
            (("endpoint", endpoint), ("status", str(status))): count
            for (endpoint, status), count in sorted(self.requests.items())
        }
        yield from _family("requests_total", "counter", "Requests answered.", requests)
        tokens: dict[_Labels, int] = {
            (("kind", kind),): count for kind, count in sorted(self.tokens.items())
        }
        yield from _family("usage_tokens_total", "counter", "Tokens as reported.", tokens)
        misses: dict[_Labels, int] = {
            (("reason", reason),): count for reason, count in sorted(self.misses.items())
        }
        yield from _family("cache_misses_total", "counter", "Why not more was read.", misses)
        finished: dict[_Labels, int] = {
            (("reason", name),): count for name, count in sorted(stats.finished.items())
        }
        yield from _family("engine_finished_total", "counter", "Answers ended.", finished)
        for name, kind, about, value in self._plain(stats, entries):
            yield from _family(name, kind, about, {(): value})

    def _plain(self, stats: EngineStats, entries: int) -> tuple[tuple[str, str, str, int], ...]:
        return (
            ("open_requests", "gauge", "Requests being answered.", self.open_requests),
            ("open_streams", "gauge", "Streams being written.", self.open_streams),
            ("disconnects_total", "counter", "Clients that left early.", self.disconnects),
            ("rule_entries", "gauge", "Entries of the cache rules.", entries),
            ("engine_waiting", "gauge", "Requests not admitted yet.", stats.waiting),
            ("engine_running", "gauge", "Requests in the batch.", stats.running),
            ("engine_steps_total", "counter", "Passes through the model.", stats.steps),
            ("engine_prompt_tokens_total", "counter", "Tokens of prompts.", stats.prompt_tokens),
            ("engine_hit_tokens_total", "counter", "Of these, not computed.", stats.hit_tokens),
            (
                "engine_computed_tokens_total",
                "counter",
                "Of these, computed.",
                stats.computed_tokens,
            ),
            ("engine_output_tokens_total", "counter", "Tokens generated.", stats.output_tokens),
            ("engine_preempted_total", "counter", "Requests put back.", stats.preempted),
            ("engine_evicted_pages_total", "counter", "Pages evicted.", stats.evicted_pages),
            ("engine_refused_total", "counter", "Requests turned away.", stats.refused),
        )


def _family(name: str, kind: str, about: str, values: Mapping[_Labels, int]) -> Iterator[str]:
    full = f"cacheaudit_{name}"
    yield f"# HELP {full} {about}"
    yield f"# TYPE {full} {kind}"
    for labels, value in values.items():
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        yield f"{full}{{{inner}}} {value}" if inner else f"{full} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
