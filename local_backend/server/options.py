"""Settings from the command line and the environment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from local_backend._version import __version__
from local_backend.models.registry import DTYPES, names
from local_backend.server.settings import CLOCKS, MIB, RULES, Settings

KEYS = "CACHEAUDIT_SERVER_KEYS"


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read the command line; bad use ends the process, as is usual for commands.

    Args:
        arguments: Without the name of the program.
        environment: Keys come from here, so that no list of processes shows them.
    """
    found = make_parser().parse_args(arguments)
    keys = tuple(key.strip() for key in environment.get(KEYS, "").split(",") if key.strip())
    return Settings(
        model=found.model,
        dtype=found.dtype,
        host=found.host,
        port=found.port,
        aliases=tuple(found.alias),
        any_model=found.any_model,
        api_keys=keys,
        rules=found.rules,
        min_cache_tokens=found.min_cache_tokens,
        token_scale=found.token_scale,
        collapse_runs=not found.each_block,
        clock=found.clock,
        max_body_bytes=found.max_body_mib * MIB,
        body_timeout_s=found.body_timeout,
        write_timeout_s=found.write_timeout,
        max_requests=found.max_requests,
        max_connections=found.max_connections,
        max_running=found.max_running,
        max_waiting=found.max_waiting,
        request_timeout_s=found.request_timeout or None,
        ping_s=found.ping,
        media_tokens=found.media_tokens,
        context_length=found.context_length,
        page_size=found.page_size,
        pages=found.pages,
        host_mib=found.host_mib,
        disk=found.disk,
        disk_mib=found.disk_mib,
        kernels=not found.no_kernels,
        deterministic=found.deterministic,
        threads=found.threads,
        seed=found.seed,
    )


def make_parser() -> argparse.ArgumentParser:
    """What the command line may hold."""
    standard = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m local_backend.server",
        description="A local model behind the Messages API and Chat Completions, with a KV cache "
        "and the cache rules of a hosted service in front of it.",
        epilog=f"Keys that clients must show come from {KEYS}, separated by commas.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    _add_model(parser.add_argument_group("model"), standard)
    _add_cache(parser.add_argument_group("cache"), standard)
    _add_limits(parser.add_argument_group("limits"), standard)
    group = parser.add_argument_group("address")
    group.add_argument("--host", default=standard.host, help="address to listen on")
    group.add_argument("--port", type=_port, default=standard.port, help="0 takes a free one")
    return parser


def _add_model(group: argparse._ArgumentGroup, standard: Settings) -> None:
    known = ", ".join(names())
    group.add_argument("--model", default=standard.model, help=f"{known}, or a GGUF file")
    group.add_argument("--dtype", choices=DTYPES, default=standard.dtype, help="type of numbers")
    group.add_argument("--alias", action="append", default=[], help="a further name of the model")
    group.add_argument("--any-model", action="store_true", help="answer to every model name")
    group.add_argument("--context-length", type=_positive, help="most tokens of one conversation")
    group.add_argument("--seed", type=int, default=standard.seed, help="of random numbers")
    group.add_argument("--no-kernels", action="store_true", help="compute with plain torch")
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="answers do not depend on batching or caching, to the bit",
    )
    group.add_argument("--threads", type=_positive, help="to compute with; all cores by default")
    group.add_argument(
        "--media-tokens",
        type=_positive,
        default=standard.media_tokens,
        help="that stand for an image or a document that is not text",
    )


def _add_cache(group: argparse._ArgumentGroup, standard: Settings) -> None:
    group.add_argument("--rules", choices=RULES, default=standard.rules, help="cache rules")
    group.add_argument(
        "--min-cache-tokens",
        type=_natural,
        default=standard.min_cache_tokens,
        help="shortest prefix that is cached, where the model has no published minimum",
    )
    group.add_argument(
        "--token-scale",
        type=_positive,
        default=standard.token_scale,
        help="tokens that one stands for, in replays of long sessions; divides minimums",
    )
    group.add_argument(
        "--each-block",
        action="store_true",
        help="count every content block of a run of tool calls in the lookback",
    )
    group.add_argument(
        "--clock",
        choices=CLOCKS,
        default=standard.clock,
        help="manual lets clients set the time, for replays and tests",
    )
    group.add_argument("--pages", type=_positive, help="that the KV cache has")
    group.add_argument("--page-size", type=_positive, help="tokens in a page; 1 for tiny, else 16")
    about = "MiB of memory for pages that leave the cache"
    group.add_argument("--host-mib", type=_natural, default=standard.host_mib, help=about)
    group.add_argument("--disk", metavar="FOLDER", help="for such pages; they outlive the server")
    about = "MiB that the folder may hold"
    group.add_argument("--disk-mib", type=_positive, default=standard.disk_mib, help=about)


def _add_limits(group: argparse._ArgumentGroup, standard: Settings) -> None:
    def add(name: str, kind: object, default: object, about: str) -> None:
        group.add_argument(name, type=kind, default=default, help=about)  # type: ignore[arg-type]

    add("--max-body-mib", _positive, standard.max_body_bytes // MIB, "largest body")
    add("--body-timeout", _seconds, standard.body_timeout_s, "seconds for headers and body")
    add("--write-timeout", _seconds, standard.write_timeout_s, "seconds for a client that is stuck")
    add("--max-requests", _positive, standard.max_requests, "answered at the same time")
    add("--max-connections", _positive, standard.max_connections, "open at the same time")
    add("--max-running", _positive, standard.max_running, "computed side by side")
    add("--max-waiting", _natural, standard.max_waiting, "that may wait beyond these")
    add("--request-timeout", _seconds, standard.request_timeout_s, "seconds an answer may take")
    add("--ping", _seconds, standard.ping_s, "seconds of silence before a ping")


def _port(text: str) -> int:
    return _within(int(text), 0, 65_535)


def _positive(text: str) -> int:
    return _within(int(text), 1, 2**31)


def _natural(text: str) -> int:
    return _within(int(text), 0, 2**31)


def _seconds(text: str) -> float:
    found = float(text)
    if not 0.0 <= found < 1e9:
        raise argparse.ArgumentTypeError("must be a number of seconds, not below zero")
    return found


def _within(number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"must be from {least} to {most}")
    return number
