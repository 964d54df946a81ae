"""The documents keep up with the commands. Update the sample with CACHEAUDIT_UPDATE_GOLDEN=1."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from cacheaudit.cli import main
from tests.unit.cli.helpers import ROOT, run
from tests.unit.report.golden import SWITCH

GUIDE = ROOT / "docs" / "guide" / "commands.md"
README = ROOT / "README.md"
START, END = "<!-- sample:start -->\n", "<!-- sample:end -->\n"
CONTEXT = click.Context(main)
NAMES = main.list_commands(CONTEXT)


def section(name: str) -> str:
    text = GUIDE.read_text(encoding="utf-8")
    found = re.search(rf"^## `{name}`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/guide/commands.md has no section on {name}"
    return found[1]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_option_is_described(name: str) -> None:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    text = section(name)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            long = max(parameter.opts, key=len)
            assert f"`{long}`" in text, f"{long} of {name} is not described"


@pytest.mark.parametrize("name", NAMES)
def test_no_option_is_described_that_is_not_there(name: str) -> None:
    command = main.get_command(CONTEXT, name)
    assert command is not None
    known = {opt for p in command.params for opt in p.opts}
    for option in re.findall(r"`(--[a-z-]+)`", section(name)):
        assert option in known or option == "--format", f"{name} has no {option}"


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_lists_every_command(name: str) -> None:
    assert f"`cacheaudit {name}" in README.read_text(encoding="utf-8")


def sample(home: Path) -> str:
    """Take the beginning of a real audit, up to its first finding."""
    result = run(home, "audit", "fixtures/sessions/demo.session.jsonl", env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.stderr
    shown = re.split(r"\n\n 2 ", result.stdout)[0]
    return f"```\n{shown.rstrip()}\n…\n```\n"


def test_the_sample_in_the_readme_is_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = README.read_text(encoding="utf-8")
    head, rest = text.split(START)
    old, tail = rest.split(END)
    made = sample(tmp_path)
    if os.environ.get(SWITCH):
        README.write_text(head + START + made + END + tail, encoding="utf-8")
        return
    assert old == made, f"run this test with {SWITCH}=1 and look at the difference"


@pytest.mark.parametrize(
    "file", [README, *sorted((ROOT / "docs" / "guide").glob("*.md")), ROOT / "docs/glossary.md"]
)
def test_links_between_documents_have_an_end(file: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (file.parent / link).exists(), f"{file.name} → {link}"


def test_the_glossary_is_in_order_and_says_each_word_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [row.split("|")[1].strip().lower() for row in text.splitlines() if row.startswith("| ")]
    words = words[1:]
    assert len(words) > 30
    assert words == sorted(set(words))
