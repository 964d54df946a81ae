from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cacheaudit.cli import main
from cacheaudit.cli._progress import Bar, describe
from tests.unit.cli.helpers import ROOT, log, process, run
from tests.unit.report.test_renderers import CONTRACT, assert_shape

HEAVY = ("rich", "jinja2", "sqlalchemy", "pydantic", "alembic", "anthropic", "httpx", "tiktoken")


def test_audit_as_json_has_the_published_shape(tmp_path: Path) -> None:
    demo = ROOT / "fixtures" / "sessions" / "demo.session.jsonl"
    result = run(tmp_path, "audit", str(demo), "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    tiers = dict.fromkeys(CONTRACT["totals"]["cache_write"], (int, type(None)))
    loose = {
        **CONTRACT,
        "data_quality": list,  # a clean recording has nothing to remark
        "totals": {**CONTRACT["totals"], "cache_write": tiers},
        "simulation": dict.fromkeys(CONTRACT["simulation"], (int, float, type(None))),
        "calls": [
            {**CONTRACT["calls"][0], "predicted": (dict, type(None)), "cost": (str, type(None))}
        ],
    }
    assert_shape(document, loose)
    assert len(document["calls"]) == document["scope"]["calls"]
    ids = {call["id"] for call in document["calls"]}
    assert len(ids) == len(document["calls"])
    for finding in document["findings"]:
        assert set(finding["calls"]) <= ids
        assert finding["verdict"] in ("proved", "consistent", "unknown")
        assert finding["evidence"] in ("reported", "body_diff", "replayed", "simulated", "usage")


@pytest.mark.parametrize(("agent", "sessions"), [("codex", 4), ("gemini_cli", 3), ("pi", 1)])
def test_audit_and_usage_count_the_same_sessions(tmp_path: Path, agent: str, sessions: int) -> None:
    folder = str(ROOT / "fixtures/sessions/agents" / agent)
    audited = json.loads(run(tmp_path, "audit", folder, "--json").stdout)
    used = json.loads(run(tmp_path, "usage", folder, "--by", "session", "--json").stdout)
    assert audited["scope"]["sessions"] == used["scope"]["sessions"] == sessions
    assert len(audited["by_session"]) == len(used["groups"]) == sessions


@pytest.mark.parametrize("by", ["day", "session", "model", "purpose", "agent", "project"])
def test_usage_groups_add_up_to_the_whole(tmp_path: Path, by: str) -> None:
    result = run(tmp_path, "usage", str(log(tmp_path)), "--by", by, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "cacheaudit.usage/1"
    assert document["totals"]["total_input"] == 43_000
    for field in ("total_input", "cache_read", "output", "calls"):
        whole = document["totals"][field]
        assert sum(group["totals"][field] for group in document["groups"]) == whole
    if by == "day":
        assert [group["key"] for group in document["groups"]] == ["2026-11-03", "2026-11-04"]


def modules_after(home: Path, *args: str) -> set[str]:
    script = (
        "import sys\n"
        "from cacheaudit.cli import main\n"
        "try:\n"
        f"    main({list(args)!r})\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "print('MODULES', *sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True
    )
    line = next(text for text in done.stderr.splitlines() if text.startswith("MODULES"))
    return set(line.split()[1:])


@pytest.mark.parametrize(
    ("args", "allowed"),
    [
        (("usage", "--json"), ()),
        (("audit", "--json"), ()),
        (("audit", "--format", "csv"), ()),
        (("usage",), ("rich",)),
        (("audit",), ("rich",)),
        (("audit", "--format", "html"), ("jinja2",)),
    ],
)
def test_a_command_imports_only_what_it_uses(
    tmp_path: Path, args: tuple[str, ...], allowed: tuple[str, ...]
) -> None:
    loaded = modules_after(tmp_path, args[0], str(log(tmp_path)), *args[1:])
    assert not {name for name in HEAVY if name not in allowed} & loaded
    assert "cacheaudit.cli.import_" not in loaded


def test_importing_the_package_imports_nothing_else() -> None:
    script = (
        "import sys, cacheaudit; print(*[m for m in sys.modules if m.startswith('cacheaudit')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert sorted(done.stdout.split()) == ["cacheaudit", "cacheaudit._version"]


def test_public_names_are_there() -> None:
    import cacheaudit

    for name in cacheaudit.__all__:
        assert getattr(cacheaudit, name) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        cacheaudit.nothing_here  # noqa: B018


def test_version_and_module_entry(tmp_path: Path) -> None:
    from cacheaudit import __version__

    done = process(tmp_path, "--version")
    assert done.returncode == 0
    assert __version__ in done.stdout.decode()


def commands() -> list[str]:
    return main.list_commands(click.Context(main))


def test_the_commands_of_the_contract_are_there() -> None:
    wanted = {"audit", "usage", "diff", "prices", "doctor", "import", "export"}
    assert wanted <= set(commands())


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_has_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"


def test_the_bar_draws_at_most_ten_times_a_second_and_is_taken_away() -> None:
    written: list[str] = []
    ticks = iter([0.0, 0.05, 0.5, 0.55, 0.7])
    bar = Bar(written.append, lambda: next(ticks))
    for done in (1, 2, 3, 4):
        bar(done, 4)
    assert len(written) == 2
    assert "50%" in written[0]
    assert "100%" in written[1]
    bar.clear()
    assert written[-1].strip("\r ") == ""


def test_the_bar_of_an_unknown_whole() -> None:
    assert describe(1_500_000, 0) == "Reading  1.5 MB"
    assert describe(250, 1_000).startswith("Reading ██████░")
