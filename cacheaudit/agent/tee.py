"""Streams that show every piece to a sink on its way, and change none, hold none and delay none.

The tees fit any ``httpx``-like library: the class of the stream that they stand for is their base,
so that the library's own checks hold, and whatever else is asked of them is asked of that stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Any

from cacheaudit.agent.attempt import Sink


class _Tee:
    """What both tees share."""

    def __init__(self, inner: Any, sink: Sink) -> None:
        self._inner = inner
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name)

    def __del__(self) -> None:
        # A stream that was dropped without being closed: the last moment to know of it.
        sink = self.__dict__.get("_sink")
        if sink is not None:
            sink.end("closed")


class _SyncTee(_Tee):
    def __iter__(self) -> Iterator[bytes]:
        sink = self._sink
        try:
            for chunk in self._inner:
                sink.chunk(chunk)
                yield chunk
        except GeneratorExit:
            raise
        except BaseException as error:
            sink.end("failed", error)
            raise
        sink.end("read")

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._sink.end("closed")


class _AsyncTee(_Tee):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        sink, source = self._sink, self._inner.__aiter__()
        try:
            async for chunk in source:
                sink.chunk(chunk)
                yield chunk
        except GeneratorExit:
            raise
        except BaseException as error:
            sink.end("failed", error)
            raise
        finally:
            # An asynchronous generator that is left behind is not closed by itself.
            if hasattr(source, "aclose"):
                await source.aclose()
        sink.end("read")

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._sink.end("closed")


class _BothTee(_AsyncTee, _SyncTee):
    """For streams that serve synchronous and asynchronous readers."""


@lru_cache(maxsize=32)
def _tee_class(kind: Any) -> Any:
    """Make the tee for a class of stream; ``None`` where it is no stream of a known kind."""
    named = {base.__name__: base for base in kind.__mro__}
    is_sync, is_async = named.get("SyncByteStream"), named.get("AsyncByteStream")
    if is_sync is not None and is_async is not None:
        return type("Tee", (_BothTee, is_async, is_sync), {})
    if is_async is not None:
        return type("Tee", (_AsyncTee, is_async), {})
    if is_sync is not None:
        return type("Tee", (_SyncTee, is_sync), {})
    return None


def tee(stream: Any, sink: Sink) -> Any | None:
    """Return a stream that gives what ``stream`` gives and shows it to ``sink``.

    Returns:
        ``None`` where the stream is of a kind that cannot be stood in for.
    """
    kind: Any = type(stream)
    made = _tee_class(kind)
    return None if made is None else made(stream, sink)
