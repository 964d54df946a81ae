"""Tells where a request to the proxy goes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from cacheaudit.errors import UsageError

UPSTREAMS: Final[Mapping[str, str]] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "deepseek": "https://api.deepseek.com",
}
_OPENAI_PATHS: Final = re.compile(
    r"/v1/(chat/completions|completions|responses|embeddings|images|audio|files|batches)(/|$|\?)"
)
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*$")


class Routes:
    """Names and addresses of upstreams.

    ``/openai/v1/responses`` goes to the upstream of that name; a path without a name goes to the
    default one, and where there is none, to the one whose API has such a path.

    Args:
        named: Further upstreams, or other addresses of known ones.
        default: Name or address of the upstream of paths without a name.

    Raises:
        UsageError: A name or an address is none.
    """

    def __init__(self, named: Mapping[str, str] | None = None, default: str | None = None) -> None:
        self._named = dict(UPSTREAMS)
        for name, url in (named or {}).items():
            if not _NAME.match(name) or name == "v1":
                raise UsageError(
                    f"{name!r} cannot name an upstream.", "Use small letters, digits, - and _."
                )
            self._named[name] = _checked(url)
        self._default = None
        if default is not None:
            self._default = self._named.get(default) or _checked(default)

    def target(self, path: str, headers: Mapping[str, str]) -> str:
        """Return the whole address that a path stands for.

        Args:
            path: Path and query as the client sent them.
            headers: Headers of the request by lower-case name.
        """
        name, slash, rest = path.lstrip("/").partition("/")
        if name in self._named and slash:
            return f"{self._named[name]}/{rest}"
        if self._default is not None:
            return f"{self._default}{path}"
        is_messages = path.startswith("/v1/messages") or "anthropic-version" in headers
        is_openai = _OPENAI_PATHS.match(path) or "authorization" in headers
        owner = "openai" if is_openai and not is_messages else "anthropic"
        return f"{self._named[owner]}{path}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the upstreams."""
        return tuple(sorted(self._named))


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        is_fine = is_fine and parts.username is None and (parts.port is None or parts.port > 0)
    except ValueError:
        is_fine = False
    if not is_fine:
        raise UsageError(
            f"{url!r} is no address of an API.",
            "Give one like https://api.anthropic.com, without a key in it.",
        )
    return url.rstrip("/")
