"""The compiled scanner in wheels: built where it can be, left out where not, the same results."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cacheaudit.ingest._build_hook import LIBRARY, PURE, SOURCE, NotBuiltError, compile_scanner
from fixtures.make.make_corpus import main as make_corpus
from tests.packaging.helpers import build

pytestmark = pytest.mark.packaging

NO_COMPILER = "no-such-compiler"
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang")))
    or not (Path(sysconfig.get_path("include")) / "Python.h").is_file(),
    reason="no C compiler, or no headers of Python, on this machine",
)


@pytest.fixture(scope="module")
def sdist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    build(root, folder, "--sdist")
    (found,) = folder.glob("cacheaudit-*.tar.gz")
    return found


@pytest.fixture
def tree(sdist: Path, tmp_path: Path) -> Path:
    """A source tree of one's own, as the source distribution holds it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (found,) = tmp_path.glob("cacheaudit-*")
    return found


def inside(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def tags(wheel: Path) -> tuple[str, list[str]]:
    """Whether it says that it is pure, and the tags that it names in its own record."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (n for n in archive.namelist() if n.endswith(".dist-info/WHEEL"))
        text = archive.read(path).decode()
    pure = re.findall(r"^Root-Is-Purelib: (\w+)$", text, re.MULTILINE)
    return pure[0], re.findall(r"^Tag: (\S+)$", text, re.MULTILINE)


def requirements(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return archive.read(path)


def only_wheel(folder: Path) -> Path:
    (found,) = folder.glob("*.whl")
    return found


@needs_compiler
def test_one_wheel_serves_every_python_of_a_platform(wheels: dict[str, Path]) -> None:
    wheel = wheels["cacheaudit"]
    platform = re.sub(r"\W", "_", sysconfig.get_platform())
    assert wheel.name == f"cacheaudit-0.1.0-cp311-abi3-{platform}.whl"
    assert tags(wheel) == ("false", [f"cp311-abi3-{platform}"])
    assert LIBRARY in inside(wheel)
    assert "cacheaudit/ingest/_lines.pyi" in inside(wheel)


@pytest.mark.parametrize(
    ("variables", "why"),
    [({PURE: "1"}, f"{PURE} is set"), ({"CC": NO_COMPILER}, NO_COMPILER)],
    ids=["asked", "no compiler"],
)
def test_without_a_scanner_the_wheel_is_pure_and_the_build_says_why(
    variables: dict[str, str], why: str, tmp_path: Path, root: Path, wheels: dict[str, Path]
) -> None:
    beside = root / LIBRARY
    before = beside.read_bytes() if beside.exists() else None
    said = build(root, tmp_path, "--wheel", **variables)
    wheel = only_wheel(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert tags(wheel) == ("true", ["py3-none-any"])
    assert not [name for name in inside(wheel) if name.endswith((".so", ".c", ".h"))]
    assert requirements(wheel) == requirements(wheels["cacheaudit"])
    (line,) = (line for line in said.splitlines() if "scanner" in line)
    assert why in line
    assert "everything works" in line
    assert (beside.read_bytes() if beside.exists() else None) == before, "the checkout is as it was"


def test_wheels_with_and_without_it_say_the_same(
    wheels: dict[str, Path],
    root: Path,
    tmp_path: Path,
    new_environment: Callable[[str], Any],
    record_property: Callable[[str, object], None],
) -> None:
    environment = new_environment("both-ways")
    environment.borrow()
    program = environment.folder / "bin" / "cacheaudit"
    build(root, tmp_path, "--wheel", CC=NO_COMPILER)
    transcripts = tmp_path / "corpus" / "projects"
    make_corpus([str(transcripts.parent), "--size", "2MB", "--seed", "3"])
    told, states = [], []
    for wheel in (wheels["cacheaudit"], only_wheel(tmp_path)):
        environment.install(wheel, "--no-deps", "--force-reinstall")
        usage = environment.run(program, "usage", transcripts, "--by", "session", "--json")
        assert usage.returncode == 0, usage.stderr
        told.append(json.loads(usage.stdout))
        doctor = environment.run(program, "doctor", "--json")
        checks = json.loads(doctor.stdout)["checks"]
        states += [check["state"] for check in checks if check["group"] == "scanner"]
        assert (
            str(environment.packages)
            in environment.run(
                environment.python, "-c", "import cacheaudit; print(cacheaudit.__file__)"
            ).stdout
        )
    assert told[0]["totals"]["total_input"] > 1_000_000
    assert told[0] == told[1]
    compiled = "abi3" in wheels["cacheaudit"].name
    assert states == ["ok" if compiled else "missing", "missing"]
    record_property("smoke", f"with and without the compiled scanner ({states[0]}): same totals")


def test_the_source_distribution_holds_what_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    files = ("_lines.c", "_json.h", "_lines.pyi", "_build_hook.py")
    assert held >= {f"cacheaudit/ingest/{name}" for name in files} | {"pyproject.toml"}
    assert not [name for name in held if name.endswith(".so")]


@needs_compiler
def test_a_wheel_from_the_source_distribution_is_the_same_to_the_byte(
    tree: Path, tmp_path: Path, wheels: dict[str, Path]
) -> None:
    build(tree, tmp_path / "out", "--wheel")
    wheel = only_wheel(tmp_path / "out")
    assert wheel.name == wheels["cacheaudit"].name
    assert wheel.read_bytes() == wheels["cacheaudit"].read_bytes()


def editable(tree: Path, **variables: str) -> str:
    """Run the hook as an editable install does; the wheel itself holds paths only."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel:editable", "--hooks-only")
    done = subprocess.run(
        command, cwd=tree, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@needs_compiler
def test_an_editable_install_puts_it_beside_its_source(tree: Path) -> None:
    editable(tree)
    code = f"import sys; sys.path.insert(0, {str(tree)!r}); import cacheaudit.ingest._lines as m"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}; print(m.__file__)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == str(tree / LIBRARY), done.stderr
    assert [p.name for p in (tree / LIBRARY).parent.glob("*.so*")] == ["_lines.abi3.so"]


@pytest.mark.parametrize("variables", [{PURE: "1"}, {"CC": NO_COMPILER}], ids=["asked", "no cc"])
def test_an_editable_install_leaves_no_old_scanner(tree: Path, variables: dict[str, str]) -> None:
    (tree / LIBRARY).write_bytes(b"of an older source")
    assert "no compiled scanner" in editable(tree, **variables)
    assert not (tree / LIBRARY).exists()


@needs_compiler
def test_a_source_that_does_not_compile_leaves_no_old_scanner(tree: Path) -> None:
    editable(tree)
    with (tree / SOURCE).open("a") as stream:
        stream.write("\n#error broken here\n")
    (line,) = editable(tree).strip().splitlines()
    assert "broken here" in line
    assert not (tree / LIBRARY).exists()


@needs_compiler
def test_the_source_compiles_without_a_warning(root: Path, tmp_path: Path) -> None:
    flags = {"CFLAGS": "-Wall -Wextra -Werror", "PATH": os.environ["PATH"]}
    compile_scanner(root / SOURCE, tmp_path / "made.so", flags)
    assert (tmp_path / "made.so").read_bytes()


@needs_compiler
@pytest.mark.parametrize("name", ["CC", "CFLAGS"])
def test_the_usual_variables_are_followed(name: str, tmp_path: Path) -> None:
    source = tmp_path / "small.c"
    source.write_text("#ifndef WANTED\n#error not told\n#endif\nint x;\n")
    plain = {"PATH": os.environ["PATH"]}
    with pytest.raises(NotBuiltError, match="not told"):
        compile_scanner(source, tmp_path / "small.so", plain)
    given = {"CC": "cc -DWANTED", "CFLAGS": "-DWANTED"}[name]
    compile_scanner(source, tmp_path / "small.so", {**plain, name: given})
    assert (tmp_path / "small.so").exists()


@needs_compiler
@pytest.mark.parametrize("value", ["", "0", "no", "False", "off"])
def test_no_is_no(value: str, root: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], PURE: value}
    compile_scanner(root / SOURCE, tmp_path / "made.so", environment)
    assert (tmp_path / "made.so").exists()


def test_missing_headers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / name))
    with pytest.raises(NotBuiltError, match=re.escape(str(tmp_path / "include"))):
        compile_scanner(tmp_path / "x.c", tmp_path / "x.so", {})


@needs_compiler
def test_the_stub_says_what_the_compiled_module_holds(root: Path, tmp_path: Path) -> None:
    compile_scanner(root / SOURCE, tmp_path / "_lines.abi3.so", os.environ)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import _lines; print(*dir(_lines))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    stub = ast.parse((root / "cacheaudit/ingest/_lines.pyi").read_text())
    named = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert {name for name in done.stdout.split() if not name.startswith("_")} == named
