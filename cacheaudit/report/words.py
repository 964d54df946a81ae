"""The words that every rendering uses for the codes of a result."""

from __future__ import annotations

from cacheaudit.report.format import printable

VERDICTS = {"proved": "proved", "consistent": "consistent", "unknown": "cause not known"}
EVIDENCE = {
    "reported": "the provider's word",
    "body_diff": "requests compared",
    "replayed": "replayed",
    "simulated": "simulated",
    "usage": "usage figures",
}
# Why calls are left out where lifetimes are tried.
LEFT_OUT = {
    "no_usage": "without usage",
    "several_passes": "that sum up several requests",
    "refreshes": "that were refreshes themselves",
    "no_start_time": "without a start time",
    "no_choice_of_lifetime": "whose provider offers no choice of lifetime, or with unknown writes",
    "no_rates": "whose model has no known rates for both lifetimes",
}
_QUALITY = {
    "truncated_line": "lines cut off",
    "invalid_json": "lines that are no JSON",
    "wrong_type": "fields of a wrong type",
    "too_long_line": "lines over the size limit, skipped",
    "encoding": "texts that are not UTF-8",
    "too_deep": "lines nested too deep",
    "unreadable_file": "files that could not be read",
    "vanished_file": "files that vanished while they were read",
    "symlink_loop": "loops of links",
    "unknown_format": "files of no known format",
    "missing_usage": "calls without usage",
    "negative_part": "negative token counts",
    "write_split_differs_from_total": "writes whose lifetimes do not add up to the total",
    "cache_exceeds_input": "calls that read more than their input",
    "parts_differ_from_total": "calls whose parts do not add up",
    "fields_disagree": "calls with two fields that disagree",
    "write_ttl_assumed": "writes whose lifetime is not recorded; the default was taken",
    "output_is_lower_bound": "calls whose output is a lower bound",
    "not_billed": "calls that were not billed",
    "cache_split_unknown": "calls whose input is known but not what was read from the cache",
    "repeated_calls_left_out": "repeated copies of calls, counted once",
    "cache_reads_not_recorded": "files without cache reads",
    "cache_writes_not_recorded": "files without cache writes",
    "write_lifetimes_not_recorded": "files without the lifetimes of writes",
    "requests_not_recorded": "files without requests",
    "start_times_are_intervals": "files without exact starts of requests",
    "start_times_not_recorded": "files without starts of requests",
    "output_may_be_low": "files whose output may be too low",
    "output_not_recorded": "files without output tokens",
    "unknown_model": "calls of a model without a price",
    "findings_not_stored": "results that could not be written into the store",
}


# Of which more than the first word changes where there is one; others only lose their s.
_ONE = {
    "invalid_json": "line that is no JSON",
    "encoding": "text that is not UTF-8",
    "vanished_file": "file that vanished while it was read",
    "symlink_loop": "loop of links",
    "cache_exceeds_input": "call that read more than its input",
    "not_billed": "call that was not billed",
    "repeated_calls_left_out": "repeated copy of a call, counted once",
    "negative_part": "negative token count",
}


def quality_words(kind: str, number: int = 2) -> str:
    """Say a kind of data quality in words; a kind without any is written with blanks."""
    words = _QUALITY.get(kind)
    if words is None:
        return printable(kind.replace("_", " "))
    if number != 1:
        return words
    first, _, rest = words.partition(" ")
    return _ONE.get(kind) or f"{first.removesuffix('s')} {rest}"


def confidence(verdict: str, evidence: str) -> str:
    """Say how sure a finding is and what that rests on: ``proved (requests compared)``."""
    return f"{VERDICTS.get(verdict, verdict)} ({EVIDENCE.get(evidence, evidence)})"


_MODES = {
    "bodies": "from recorded requests",
    "sizes": "from sizes alone",
    "none": "not simulated",
}


def mode_words(mode: str) -> str:
    """Say what a prediction rests on."""
    return _MODES.get(mode, printable(mode.replace("_", " ")))


def reason_words(reason: str) -> str:
    """Say why something was not simulated."""
    return printable(reason.replace("_", " "))
