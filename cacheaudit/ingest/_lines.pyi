from typing import TypeAlias

# Of one response, as far as its consecutive lines tell: number of the first line, where it begins
# and where the last one ends, message and request id, model, session, agent, version, whether it is
# of a sidechain and then its uuid and its parent's, time of the first and of the last line, stop
# reason, the usage object with the highest output, diagnostics, time of the user line before it.
# Another line of a sidechain has neither message id nor usage, and a time where it is a user line.
Run: TypeAlias = tuple[
    int,
    int,
    int,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    bool,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    bytes | None,
    bytes | None,
    str | None,
]

def take(
    data: bytes | bytearray, start: int, size: int, number: int, /
) -> tuple[int, int, list[Run], str | None]: ...
