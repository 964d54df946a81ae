"""The little decoder: its shape, and that no way of computing it gives other bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from local_backend.errors import ForwardError  # noqa: E402
from local_backend.kvcache.specs import FullKV, group_layers  # noqa: E402
from local_backend.layers.context import Chunk, ForwardContext, Logits  # noqa: E402
from local_backend.layers.operators import ExactOperators, TorchOperators  # noqa: E402
from local_backend.models.tiny import tiny_decoder  # noqa: E402
from tests.unit.local_backend.models.running import Runner, draw  # noqa: E402

DTYPES = ("float32", "float64", "bfloat16")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_shape_is_the_one_of_the_source() -> None:
    model = tiny_decoder()
    config = model.config
    assert (config.layers, config.heads, config.kv_heads, config.head_dim) == (3, 4, 2, 8)
    assert model.specs == (FullKV(kv_heads=2, head_dim=8),) * 3
    (group,) = group_layers(model.specs, 16)
    assert group.page_bytes == 3 * 16 * 2 * 2 * 8 * 4


def test_seed_decides_the_weights() -> None:
    ids = draw(20, 1)
    first, again, other = (Runner(tiny_decoder(seed), 20).split(ids, [20]) for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert tiny_decoder(7).weights_id == tiny_decoder(7, "float64").weights_id
    assert tiny_decoder(7).weights_id != tiny_decoder(8).weights_id
    assert tiny_decoder(7).numerics != tiny_decoder(7, "float64").numerics


@pytest.mark.parametrize("dtype", DTYPES)
def test_full_split_and_cached_paths_agree_to_the_bit(dtype: str) -> None:
    """47 tokens of which 32 are in the cache: 15 are computed (B02)."""
    model, ids = tiny_decoder(0, dtype), draw(47, 2)
    full = Runner(model, 47).split(ids, [47])
    split = Runner(model, 47).split(ids, [32, 15])
    # The cached path: another request of 45 tokens left two pages that begin alike.
    runner = Runner(model, 48, sequences=2)
    runner.run(runner.chunk(ids[:32] + draw(13, 3)))
    for mine, theirs in zip(runner.tables[1], runner.tables[0], strict=True):
        mine[:2] = theirs[:2]
    runner.past[1] = 32
    cached = runner.run(runner.chunk(ids[32:], 1))
    assert cached.shape == (15, 264)
    assert float((full - split).abs().max()) == 0
    assert float((full[32:] - cached).abs().max()) == 0


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    page_size=st.sampled_from([1, 3, 16, 64]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
def test_any_cut_and_any_page_size_give_the_same_bits(
    sizes: list[int], page_size: int, dtype: str, seed: int
) -> None:
    model, ids = tiny_decoder(1, dtype), draw(sum(sizes), seed)
    whole = Runner(model, len(ids)).split(ids, [len(ids)])
    assert torch.equal(Runner(model, len(ids), page_size=page_size).split(ids, sizes), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_batch_changes_no_bit_of_its_members(dtype: str) -> None:
    model = tiny_decoder(0, dtype)
    prompts = [draw(count, count) for count in (70, 1, 33, 16, 5)]
    together = Runner(model, 80, sequences=len(prompts))
    got = together.run(*(together.chunk(ids, i) for i, ids in enumerate(prompts)))
    alone = [Runner(model, 80).split(ids, [len(ids)]) for ids in prompts]
    assert torch.equal(got, torch.cat(alone))
    # Decode all of them together, two of them with several tokens at once.
    steps = [draw(count, 50 + i) for i, count in enumerate((1, 3, 1, 1, 4))]
    got = together.run(*(together.chunk(ids, i) for i, ids in enumerate(steps)))
    alone = [
        Runner(model, 80).split(ids + step, [len(ids) + len(step)])[len(ids) :]
        for ids, step in zip(prompts, steps, strict=True)
    ]
    assert torch.equal(got, torch.cat(alone))


def test_plain_operators_agree_within_rounding() -> None:
    ids = draw(130, 4)
    exact = Runner(tiny_decoder(0, "float64"), 130).split(ids, [130])
    for dtype, bound in (("float64", 1e-12), ("float32", 2e-4)):
        model = tiny_decoder(0, dtype, operators=TorchOperators())
        for sizes in ([130], [100, 1, 29]):
            got = Runner(model, 130).split(ids, sizes)
            assert float((got - exact).abs().max()) < bound


def test_logits_only_where_wanted() -> None:
    model, ids = tiny_decoder(), draw(30, 5)
    every = Runner(model, 30).split(ids, [30])
    runner = Runner(model, 30, sequences=3)
    chunks = [
        runner.chunk(ids, 0, Logits.LAST),
        runner.chunk(ids[:9], 1, Logits.NONE),
        runner.chunk(ids[:4], 2, Logits.ALL),
    ]
    got = runner.run(*chunks)
    assert torch.equal(got, torch.cat([every[29:], every[:4]]))


def test_early_layers_alone() -> None:
    model, ids = tiny_decoder(), draw(10, 6)
    runner = Runner(model, 10)
    context = ForwardContext.build([runner.chunk(ids)], runner.memory)
    one, all_three = model.hidden(context, layers=1), model.hidden(context)
    assert torch.equal(model.hidden(context, layers=3), all_three)
    assert not torch.equal(one, all_three)
    assert model.logits(one).shape == (10, 264)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_invalid_splice_is_wrong_from_the_second_layer_on(dtype: str) -> None:
    """B25: K of a document behind another text of equal length, taken over as it is."""
    model = tiny_decoder(0, dtype)
    before, other, document, question = draw(32, 7), draw(32, 8), draw(32, 9), draw(4, 10)
    runner = Runner(model, 80, sequences=3)
    runner.run(runner.chunk(before + document, 0))
    right = runner.run(runner.chunk(other + document, 1), runner.chunk(other, 2))[-1]
    assert right.isfinite().all()

    def difference(layer: int) -> float:
        mine, theirs = (runner.keys(layer, i, 32, 64) for i in (0, 1))
        return float((mine - theirs).abs().max())

    assert difference(0) == 0
    assert difference(1) > 0.1
    assert difference(2) > 0.1
    # Splice: the pages of the document come from the first sequence.
    for mine, theirs in zip(runner.tables[2], runner.tables[0], strict=True):
        mine[2:4] = theirs[2:4]
    runner.past[2] = 64
    truth, spliced = runner.run(runner.chunk(question, 1), runner.chunk(question, 2)).chunk(2)
    assert float((truth - spliced).abs().max()) > 0.1
    # Repair: compute the document again behind the new text.
    fresh = Runner(model, 80)
    replayed = fresh.split(other + document + question, [32, 32, 4])[64:]
    assert float((truth - replayed).abs().max()) == 0


def test_errors_say_what_is_wrong() -> None:
    model = tiny_decoder()
    runner = Runner(model, 32)
    with pytest.raises(ForwardError, match="ids must be from 0 to 263"):
        runner.run(Chunk([1, 264], 0, runner.tables[0]))
    with pytest.raises(ForwardError, match="needs 3 pages below 3; its table has 2"):
        runner.run(Chunk([1] * 40, 0, runner.tables[0]))
    with pytest.raises(ForwardError, match="needs 1 pages"):
        runner.run(Chunk([1], 0, [[3]]))
    with pytest.raises(ForwardError, match="chunk 0"):
        runner.run(Chunk([], 0, runner.tables[0]))
    small = tiny_decoder(operators=ExactOperators(), config=None)
    assert small.config == model.config
