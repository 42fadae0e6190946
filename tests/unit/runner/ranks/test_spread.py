"""Ranks compute what one decoder does: in float64 they are equal, for every family and kind of file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.shards import Cut, check_cuts
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.source import CutSource, part_of
from fakes.rank_threads import ThreadedModel
from unit.runner.hybrids import States
from unit.runner.twins import DENSE, Twin, chunk, make_twin, random_tokens, request, run, shuffled_tables
from unit.runner.weights.test_gguf import Kind, stored, tensors, write
from unit.runner.weights.test_gguf_hybrids import make_file

STEPS = ((0, 1), (1, 22), (23, 1), (24, 15), (39, 1))


def logits_of(model: object, kv: object) -> list[torch.Tensor]:
    tokens = random_tokens(40)
    (table,) = shuffled_tables([40], 4, 40)
    return [run(model, kv, [chunk(tokens, start, count, table, request(tokens))])[0] for start, count in STEPS]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("family", [name for name in DENSE if not name.startswith(("olmo", "gemma4"))])
def test_ranks_give_the_logits_of_one_in_float64(tmp_path: Path, family: str, count: int) -> None:
    twin = make_twin(tmp_path, family)
    ranks = ThreadedModel(twin.config, lambda: HfTensors(tmp_path), count)
    alone = logits_of(twin.decoder(torch.float64), KvCache(twin.config, 40, 4, torch.float64, torch.device("cpu")))
    for ours, expected in zip(logits_of(ranks, ranks.caches(40, 4)), alone, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("family", ["olmo2", "olmo3"])
def test_norms_over_all_heads_are_not_cut(tmp_path: Path, family: str) -> None:
    config = make_twin(tmp_path, family).config
    check_cuts(config, 1)
    with pytest.raises(InvalidConfig, match=r"tensor_parallel 2: norms over all heads .*; use --tensor-parallel 1"):
        check_cuts(config, 2)


@pytest.mark.parametrize(
    ("family", "what"),
    [("gemma4-shared", "of Gemma4ForCausalLM take inputs"), ("gemma4-keys-as-values", "that share keys and values")],
)
def test_layers_that_share_keys_and_values_are_not_cut(tmp_path: Path, family: str, what: str) -> None:
    with pytest.raises(InvalidConfig, match=f"tensor_parallel 2: layers {what}"):
        check_cuts(make_twin(tmp_path, family).config, 2)


# The second: two ranks each have the same keys and values.
@pytest.mark.parametrize(
    ("family", "count", "changes"),
    [("qwen3.5", 2, {}), ("qwen3.5", 4, {"num_attention_heads": 8, "linear_num_key_heads": 4})],
)
def test_ranks_of_hybrids_give_the_logits_of_one_in_any_cut(
    tmp_path: Path, family: str, count: int, changes: dict[str, int]
) -> None:
    check_hybrid(make_twin(tmp_path, family, **changes).config, lambda: HfTensors(tmp_path), count)


def test_rows_by_key_head_are_cut_between_heads(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "qwen3-next", mlp_only_layers=[0, 1, 2, 3, 4])
    check_hybrid(twin.config, lambda: HfTensors(tmp_path), 2)


def test_tiled_heads_are_cut_by_their_heads_of_keys(tmp_path: Path) -> None:
    _, path = make_file(tmp_path, "qwen3.5", linear_num_value_heads=6)
    header = read_header(path)
    config = load_gguf(header)
    assert config.layers[0].mixer.is_tiled  # type: ignore[attr-defined]
    check_hybrid(config, lambda: GgufTensors(header), 2)


def check_hybrid(config: ModelConfig, open_source: Callable[[], CutSource], count: int) -> None:
    ranks, cpu = ThreadedModel(config, open_source, count), torch.device("cpu")
    whole = build_model(config, TorchOps(), open_source(), torch.float64, cpu, config.max_model_len)
    alone, spread = States(whole, 8), States(ranks, 8)
    texts = [random_tokens(length, seed) for seed, length in enumerate((43, 20))]
    tables = shuffled_tables([43, 20], 8, 40)
    for low, high in ((0, 9), (9, 10), (10, 20), (20, 41), (41, 43)):
        going = [(index, text) for index, text in enumerate(texts) if high <= len(text)]
        chunks = [chunk(text, low, high - low, tables[index], request(text, id=index)) for index, text in going]
        torch.testing.assert_close(spread.run(chunks), alone.run(chunks), atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize(
    ("changes", "count", "said"),
    [
        ({}, 4, "linear_num_key_heads 2 cannot be cut into so many equal parts; use --tensor-parallel 2"),
        (
            {"num_attention_heads": 6, "num_key_value_heads": 3, "linear_num_key_heads": 4}, 2,
            "num_key_value_heads 3 cannot be cut into so many equal parts, .* use --tensor-parallel 1 and",
        ),
    ],
)  # fmt: skip
def test_hybrids_are_cut_evenly_or_refused(tmp_path: Path, changes: dict[str, int], count: int, said: str) -> None:
    config = make_twin(tmp_path, "qwen3.5", **changes).config
    with pytest.raises(InvalidConfig, match=f"tensor_parallel {count}: {said}"):
        check_cuts(config, count)


@pytest.mark.sampled(3)
def test_ranks_give_the_logits_of_transformers(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "llama-gqa-tied", head_dim=16)
    ranks = ThreadedModel(twin.config, lambda: HfTensors(tmp_path), 4)
    expected = twin.reference_logits_in_float64(random_tokens(40))
    for (start, count), ours in zip(STEPS, logits_of(ranks, ranks.caches(40, 4)), strict=True):
        torch.testing.assert_close(ours, expected[start + count - 1], atol=1e-10, rtol=1e-10)


def test_ranks_that_do_not_divide_the_heads_give_the_same(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "qwen2-bias", num_attention_heads=6, num_key_value_heads=3, hidden_size=48)
    ranks = ThreadedModel(twin.config, lambda: HfTensors(tmp_path), 2)
    assert [rank.layers[0].spec.attention.num_kv_heads for rank in ranks.ranks] == [2, 1]
    alone = logits_of(twin.decoder(torch.float64), KvCache(twin.config, 40, 4, torch.float64, torch.device("cpu")))
    for ours, expected in zip(logits_of(ranks, ranks.caches(40, 4)), alone, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-12)


def test_dummy_weights_are_those_of_one_rank(tmp_path: Path) -> None:
    twin: Twin = make_twin(tmp_path, "llama-mha")
    source, cpu = DummyTensors(twin.config, torch.float64), torch.device("cpu")
    whole = build_model(twin.config, TorchOps(), source, torch.float64, cpu, twin.config.max_model_len)
    ranks = ThreadedModel(twin.config, lambda: DummyTensors(twin.config, torch.float64), 2)
    alone = logits_of(whole, KvCache(twin.config, 40, 4, torch.float64, cpu))
    for ours, expected in zip(logits_of(ranks, ranks.caches(40, 4)), alone, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.BF16, Kind.Q4_1, Kind.Q6_K])
def test_parts_of_a_gguf_tensor_are_those_of_the_whole(tmp_path: Path, kind: Kind) -> None:
    data = np.random.default_rng(0).standard_normal((8, 512), dtype=np.float32) if kind is Kind.F32 else None
    path = write(tmp_path / "a.gguf", {"w": (stored(kind, 8, 512) if data is None else data, kind)})
    source: GgufTensors = tensors(path)
    whole = source.read("w", (8, 512))
    for dim, spans in (
        (0, ((2, 5),)),
        (0, ((0, 1), (6, 8))),
        (1, ((256, 512),)),
        (1, ((7, 300),)),
        (1, ((0, 1), (5, 8))),
    ):
        cut = Cut("w", (8, 512), dim, spans)
        assert torch.equal(source.read("w", (8, 512), cut), part_of(whole, cut))


def test_blocks_are_cut_between_them_and_refused_inside(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", {"w": (stored(Kind.Q4_K, 8, 512), Kind.Q4_K)})
    source: GgufTensors = tensors(path)
    whole = source.stored("w", (8, 512))
    rows = source.stored("w", (8, 512), Cut("w", (8, 512), 0, ((1, 3), (6, 8))))
    columns = source.stored("w", (8, 512), Cut("w", (8, 512), 1, ((256, 512),)))
    assert whole is not None and rows is not None and columns is not None
    assert (rows.shape, columns.shape) == ((4, 512), (8, 256))
    assert torch.equal(rows.tensors[0], whole.tensors[0][[1, 2, 6, 7]])
    assert torch.equal(columns.tensors[0], whole.tensors[0][:, 1:])
    with pytest.raises(InvalidConfig, match="w is Q4_K, whose blocks of 256 cannot be cut at column 384 .* --quantize"):
        source.stored("w", (8, 512), Cut("w", (8, 512), 1, ((0, 384),)))


def test_parts_of_safetensors_are_read_without_the_whole_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_twin(tmp_path, "llama-mha")
    source, name, shape = HfTensors(tmp_path), "model.layers.0.mlp.down_proj.weight", (32, 56)
    whole, opened = source.read(name, shape), source._open("model.safetensors")
    only_slices = type("OnlySlices", (), {"get_slice": staticmethod(opened.get_slice)})
    monkeypatch.setattr(source, "_open", lambda _: only_slices)
    for dim, spans in ((0, ((3, 9),)), (1, ((8, 20),)), (0, ((0, 2), (30, 32)))):
        cut = Cut(name, shape, dim, spans)
        assert torch.equal(source.read(name, shape, cut), part_of(whole, cut))
