"""Turns recorded request bodies into prompts, line of conversation by line of conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from cacheaudit.errors import PromptError
from cacheaudit.ingest._fields import mapping, text
from cacheaudit.ingest.answers import Answer
from cacheaudit.ingest.lanes import Lanes
from cacheaudit.model.ports import ProblemSink
from cacheaudit.model.prompt import Prompt
from cacheaudit.model.tokens import calibrated, with_recorded_tokens
from cacheaudit.model.usage import Usage
from cacheaudit.providers.registry import expand
from cacheaudit.providers.threads import ThreadStore

_THREADS_KEPT = 128


class Bodies:
    """Expands bodies and remembers each lane's last prompt, so that shared blocks are kept once.

    Args:
        problems: Counts bodies that do not have the shape of their API.
    """

    def __init__(self, problems: ProblemSink) -> None:
        self._problems = problems
        self._lanes = Lanes()
        self._threads = ThreadStore(_THREADS_KEPT)

    def prompt(
        self,
        body: Mapping[str, Any] | None,
        *,
        session: str,
        where: str,
        lane: str | None = None,
        provider: str | None = None,
        answer: Answer | None = None,
    ) -> tuple[Prompt | None, str]:
        """Expand one body.

        Args:
            body: The request as sent, or ``None`` where it was not recorded.
            session: Session of the request.
            where: File and line.
            lane: Lane, where the record tells it; else it is guessed from the content.
            provider: Whose API it is, where known.
            answer: The response, which a later request of the same thread builds on.

        Returns:
            The prompt, if there is one, and the lane.
        """
        if not body:
            return None, lane or "main"
        rebuilt = self._threads.rebuild(body)
        if rebuilt.body is None:
            self._problems("thread_incomplete", where, rebuilt.reason or "")
            return None, lane or "main"
        full = rebuilt.body
        self._remember(body, full, answer)
        try:
            prompt = expand(full, provider=provider, previous=self._lanes.previous(session, lane))
        except PromptError as error:
            self._problems("bad_body", where, str(error))
            return None, lane or "main"
        except RecursionError:
            self._problems("too_deep", where, "request nested deeper than can be read")
            return None, lane or "main"
        chosen = self._lanes.guess(session, prompt) if lane is None else lane
        self._lanes.remember(session, chosen, prompt)
        return prompt, chosen

    def _remember(
        self, sent: Mapping[str, Any], full: Mapping[str, Any], answer: Answer | None
    ) -> None:
        """Keep what a later request of a thread may build on; nothing of other requests."""
        if answer is None or answer.id is None:
            return
        is_stored = "input" in sent and sent.get("store") is not False
        if is_stored or isinstance(sent.get("thread"), Mapping):
            self._threads.remember(answer.id, full, answer.content or None)


def with_sizes(
    prompt: Prompt | None,
    usage: Usage | None,
    counts: object,
    where: str,
    problems: ProblemSink,
) -> Prompt | None:
    """Give a prompt's blocks their sizes: recorded ones, or estimates that add up to the total.

    Args:
        prompt: The prompt.
        usage: Usage of its call.
        counts: Recorded sizes, one a block in render order.
        where: File and line.
        problems: Counts sizes that do not fit the prompt.
    """
    if prompt is None:
        return None
    if counts is not None:
        if _are_counts(counts):
            try:
                return with_recorded_tokens(prompt, counts)
            except PromptError as error:
                problems("bad_content_tokens", where, str(error))
        else:
            problems("wrong_type", where, "content_tokens is not a list of whole numbers")
    size = usage.prompt_size if usage is not None else None
    return prompt if size is None else calibrated(prompt, size)


def _are_counts(counts: object) -> TypeGuard[Sequence[int]]:
    return isinstance(counts, Sequence) and all(type(n) is int and n >= 0 for n in counts)


def session_in(body: Mapping[str, Any] | None) -> str | None:
    """Find the session that a client names in its request.

    Claude Code writes it into ``metadata.user_id``, as JSON or behind ``_session_``; OpenAI clients
    use the session as ``prompt_cache_key``.
    """
    if not body:
        return None
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        for name in ("session_id", "conversation_id", "thread_id"):
            if found := text(metadata.get(name)):
                return found
        user = metadata.get("user_id")
        if isinstance(user, str) and "session" in user:
            return _session_in_user_id(user)
    return text(body.get("session_id")) or text(body.get("prompt_cache_key"))


def _session_in_user_id(user: str) -> str | None:
    if user.lstrip().startswith("{"):
        return text(mapping(user).get("session_id"))
    _, mark, session = user.rpartition("_session_")
    return session if mark and session else None
