"""The documents say what the tree holds, and files stay small."""

from __future__ import annotations

import re
from pathlib import Path

CEILING = 500


def packages(root: Path) -> set[str]:
    """Name the packages and modules right under ``cacheaudit``."""
    folder = root / "cacheaudit"
    found = {p.parent.name for p in folder.glob("*/__init__.py")}
    found |= {p.stem for p in folder.glob("*.py") if p.stem not in ("__init__", "__main__")}
    return found


def test_every_package_is_described(root: Path) -> None:
    text = (root / "docs" / "architecture.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert packages(root) <= named


def test_no_file_is_too_long(root: Path) -> None:
    long = {
        str(path.relative_to(root)): count
        for folder in ("cacheaudit", "local_backend", "kernels", "fixtures", "tests")
        for path in (root / folder).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > CEILING
    }
    assert long == {}


def test_links_in_the_documents_lead_somewhere(root: Path) -> None:
    pages = [root / "README.md", root / "CHANGELOG.md", *(root / "docs").rglob("*.md")]
    broken = [
        (page.name, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_nothing_names_a_machine_or_a_registry(root: Path) -> None:
    bad = re.compile(r"pypi\.org|pythonhosted|npmjs\.org|deb\.debian|(?<![\w.])/(?:work|root)/")
    kinds = (".py", ".md", ".toml", ".sh", ".html", ".css", ".js", ".txt")
    found = [
        str(path.relative_to(root))
        for folder in ("cacheaudit", "local_backend", "kernels", "docs", "fixtures", "tests")
        for path in (root / folder).rglob("*")
        if path.suffix in kinds
        and path.name != "test_architecture.py"
        and bad.search(path.read_text())
    ]
    assert found == []


def test_the_rows_of_the_atlas_name_what_is_there(root: Path) -> None:
    text = (root / "docs" / "atlas.md").read_text()
    paths = re.findall(r"`((?:cacheaudit|tests)/[\w/.]+)`", text)
    assert len(paths) > 30
    assert [path for path in paths if not (root / path).exists()] == []
    rows = re.findall(r"\bA\d\d\b", text)
    assert set(rows) == {f"A{number:02}" for number in range(1, 22)}
    rules = {f"{name}.py" for name in re.findall(r"`(\w+)\.py`", text)}
    assert [
        name for name in rules if not (root / "cacheaudit/diagnose/rules" / name).exists()
    ] == []
