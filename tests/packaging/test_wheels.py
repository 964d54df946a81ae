"""The two wheels: what is in them, that they run, that they leave other people's packages alone."""

from __future__ import annotations

import base64
import csv
import email
import hashlib
import json
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.packaging

HEAVY = (
    "torch",
    "triton",
    "anthropic",
    "openai",
    "httpx",
    "httpx2",
    "rich",
    "pandas",
    "alembic",
    "sqlalchemy",
    "pydantic",
    "jinja2",
    "local_backend",
    "cacheaudit.ingest",
)
BUILD_ONLY = {
    "cacheaudit/ingest/_build_hook.py",
    "cacheaudit/ingest/_json.h",
    "cacheaudit/ingest/_lines.c",
}


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(path))


def tree(folder: Path, under: str) -> set[str]:
    """Every file of a package that belongs into its wheel, links followed."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            found.add(f"{under}/{path.relative_to(folder).as_posix()}")
    return found


def test_base_wheel_holds_the_auditor_alone(wheels: dict[str, Path], root: Path) -> None:
    inside = names(wheels["cacheaudit"])
    tops = {name.split("/")[0] for name in inside}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"cacheaudit"}
    # The compiled scanner is made by the build, the one in a checkout is none of its business.
    ours = {n for n in inside if n.startswith("cacheaudit/") and not n.endswith(".so")}
    kept = {n for n in tree(root / "cacheaudit", "cacheaudit") if ".abi3.so" not in n}
    assert ours == kept - BUILD_ONLY


def test_second_wheel_holds_engine_and_kernels_under_one_name(
    wheels: dict[str, Path], root: Path
) -> None:
    inside = names(wheels["cacheaudit_local"])
    tops = {name.split("/")[0] for name in inside}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"local_backend"}
    code = {n for n in inside if not n.split("/")[0].endswith(".dist-info")}
    kernels = tree(root / "kernels", "local_backend/kernels")
    engine = {
        n for n in tree(root / "local_backend", "local_backend") if n.endswith((".py", "typed"))
    }
    assert code == kernels | engine
    assert "local_backend/kernels/registry.py" in code


@pytest.mark.parametrize("name", ["cacheaudit", "cacheaudit_local"])
def test_wheels_carry_licence_and_version(name: str, wheels: dict[str, Path], root: Path) -> None:
    found = metadata(wheels[name])
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Version"] == metadata(wheels["cacheaudit"])["Version"]
    with zipfile.ZipFile(wheels[name]) as archive:
        (path,) = (n for n in archive.namelist() if n.endswith("licenses/LICENSE"))
        assert archive.read(path) == (root / "LICENSE").read_bytes()


def test_the_extra_draws_the_second_wheel_of_the_same_version(wheels: dict[str, Path]) -> None:
    found = metadata(wheels["cacheaudit"])
    wanted = f"cacheaudit-local[server,torch]=={found['Version']}; extra == 'local'"
    assert wanted in found.get_all("Requires-Dist", [])
    plain = [need for need in found.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert not any(need.startswith(("torch", "cacheaudit-local")) for need in plain)


def test_base_wheel_runs_in_a_fresh_environment(
    wheels: dict[str, Path],
    root: Path,
    new_environment: Callable[[str], Any],
    record_property: Callable[[str, object], None],
) -> None:
    environment = new_environment("base")
    constraints = root / "tests" / "constraints.txt"
    environment.install(wheels["cacheaudit"], "--constraint", constraints)
    program = environment.folder / "bin" / "cacheaudit"

    helped = environment.run(program, "--help")
    assert helped.returncode == 0, helped.stderr
    assert "audit" in helped.stdout
    assert "usage" in helped.stdout

    code = (
        "import time, sys; t = time.perf_counter(); import cacheaudit;"
        "took = time.perf_counter() - t; import json;"
        f"print(json.dumps([took, [m for m in {HEAVY!r} if m in sys.modules]]))"
    )
    imported = environment.run(environment.python, "-c", code)
    assert imported.returncode == 0, imported.stderr
    took, loaded = json.loads(imported.stdout)
    assert loaded == []
    record_property("smoke", f"import of the base wheel took {took * 1000:.0f} ms")

    session = root / "fixtures" / "sessions" / "demo.session.jsonl"
    audited = environment.run(program, "audit", session, "--json")
    assert audited.returncode == 0, audited.stderr
    calls = sum(1 for line in session.read_text().splitlines() if line.strip())
    assert json.loads(audited.stdout)["scope"]["calls"] == calls
    record_property("smoke", f"base wheel audits the bundled session: {calls} calls")


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_the_other_kernels_package_keeps_working(
    first: str,
    wheels: dict[str, Path],
    new_environment: Callable[[str], Any],
    record_property: Callable[[str, object], None],
) -> None:
    environment = new_environment("both")
    steps: dict[str, tuple[str | Path, ...]] = {
        "ours": (wheels["cacheaudit_local"], "--no-deps"),
        "theirs": ("kernels",),
    }
    for step in (first, *(steps.keys() - {first})):
        environment.install(*steps[step])
    environment.install(wheels["cacheaudit"], "--no-deps")

    for distribution in ("kernels", "cacheaudit_local", "cacheaudit"):
        assert damaged(environment.packages, distribution) == []
    code = (
        "import kernels, local_backend.kernels as ours, importlib.metadata as m;"
        "print(kernels.__file__, *m.packages_distributions()['kernels']);"
        "assert callable(kernels.get_kernel);"
        "print(ours.__file__, *m.packages_distributions()['local_backend']);"
        "print(ours.get('prefix_compare')([1, 2, 3], [1, 2, 4]))"
    )
    done = environment.run(environment.python, "-c", code)
    assert done.returncode == 0, done.stderr
    theirs, ours, answer = done.stdout.splitlines()
    place = environment.packages
    assert theirs == f"{place / 'kernels' / '__init__.py'} kernels"
    assert ours == f"{place / 'local_backend' / 'kernels' / '__init__.py'} cacheaudit-local"
    assert answer == "2"
    record_property("smoke", f"beside the other kernels package, {first} first: both work")


def damaged(packages: Path, distribution: str) -> list[str]:
    """Files of an installed distribution that are missing or not as it delivered them."""
    (record,) = packages.glob(f"{distribution}-*.dist-info/RECORD")
    wrong = []
    for path, digest, _ in csv.reader(record.read_text().splitlines()):
        if not digest:
            continue
        kind, _, text = digest.partition("=")
        file = packages / path
        actual = hashlib.new(kind, file.read_bytes()).digest() if file.is_file() else b""
        if base64.urlsafe_b64encode(actual).rstrip(b"=").decode() != text:
            wrong.append(path)
    return wrong
