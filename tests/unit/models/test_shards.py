"""How a model is cut for ranks: every number of it lies in a rank, and parts fit together."""

from collections.abc import Iterator
from math import prod

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.models.shards import Rank, check_cuts, cuts, is_even, shard
from chairlift.models.spec import BlockWeights, ModelConfig, Names, uniform_model
from chairlift.models.tensors import expected_parts, num_parameters

FUSED = Names(qkv=("attn.qkv",), gate_up=("mlp.gate_up",))


def model(heads: int = 8, groups: int = 4, inner: int = 96, **more: object) -> ModelConfig:
    return uniform_model(
        architecture="LlamaForCausalLM", hidden_size=64, num_layers=2, num_heads=heads, num_kv_heads=groups,
        head_dim=8, intermediate_size=inner, vocab_size=101, max_model_len=64, rms_norm_eps=1e-5, rope_theta=1e4,
        **more,
    )  # fmt: skip


CASES = [
    pytest.param(model(), 2, id="even"),
    pytest.param(model(), 3, id="uneven"),
    pytest.param(model(), 8, id="shared keys"),
    pytest.param(model(groups=1), 4, id="one head of keys"),
    pytest.param(model(has_qkv_bias=True), 4, id="biases"),
    pytest.param(model(names=FUSED), 4, id="fused"),
    pytest.param(model(heads=9, groups=3, inner=1536, is_tied=True), 2, id="tied"),
]


def places(config: ModelConfig, count: int) -> Iterator[tuple[str, int, int]]:
    """(tensor, dimension, index) that some rank reads."""
    for index in range(count):
        for cut in cuts(config, Rank(index, count)).values():
            yield from ((cut.name, cut.dim, at) for low, high in cut.spans for at in range(low, high))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("config", "count"), CASES)
def test_ranks_hold_every_row_and_column_and_only_keys_and_values_twice(config: ModelConfig, count: int) -> None:
    seen = list(places(config, count))
    sizes = {
        (cut.name, cut.dim): cut.shape[cut.dim]
        for index in range(count)
        for cut in cuts(config, Rank(index, count)).values()
    }
    assert set(seen) == {(name, dim, at) for (name, dim), size in sizes.items() for at in range(size)}
    groups = config.layers[0].attention.num_kv_heads
    twice = {name for name, dim, at in set(seen) if seen.count((name, dim, at)) > 1}
    assert all("k_proj" in name or "v_proj" in name for name in twice)
    assert bool(twice) == (count > groups)


@pytest.mark.parametrize(("config", "count"), CASES)
def test_cuts_have_the_shapes_that_a_rank_declares(config: ModelConfig, count: int) -> None:
    for index in range(count):
        rank = Rank(index, count)
        found = cuts(config, rank)
        declared = {(part.name, part.shape) for part in expected_parts(shard(config, rank))}
        assert found.keys() <= declared
        for (_, shape), cut in found.items():
            size = sum(high - low for low, high in cut.spans)
            assert shape == tuple(size if dim == cut.dim else full for dim, full in enumerate(cut.shape))


@pytest.mark.parametrize(("config", "count"), CASES)
def test_a_rank_holds_about_its_part_of_the_layers(config: ModelConfig, count: int) -> None:
    embedding = config.vocab_size * config.hidden_size
    whole = num_parameters(config) - embedding * (1 if config.is_tied else 2)
    parts = [num_parameters(shard(config, Rank(index, count))) - embedding for index in range(count)]
    heads = sum(prod((shard(config, Rank(i, count)).num_head_rows or 0, config.hidden_size)) for i in range(count))
    assert heads == embedding
    assert max(parts) == parts[0]
    assert sum(parts) - heads >= whole


def test_query_heads_stay_with_their_keys() -> None:
    heads = [shard(model(heads=9, groups=3), Rank(index, 2)).layers[0].attention for index in range(2)]
    assert [(each.num_heads, each.num_kv_heads) for each in heads] == [(6, 2), (3, 1)]
    heads = [shard(model(heads=8, groups=2), Rank(index, 4)).layers[0].attention for index in range(4)]
    assert [(each.num_heads, each.num_kv_heads) for each in heads] == [(2, 1)] * 4
    rank = cuts(model(heads=8, groups=2), Rank(2, 4))
    assert rank["model.layers.0.self_attn.k_proj.weight", (8, 64)].spans == ((8, 16),)


def test_widths_are_cut_between_blocks_where_weights_have_some() -> None:
    blocks = BlockWeights(type_name="Q4_K", num_bytes=1000, num_weights=2000)
    parts = [shard(model(inner=11008, blocks=blocks), Rank(index, 2)) for index in range(2)]
    assert [part.layers[0].feed_forward.width for part in parts] == [22 * 256, 21 * 256]
    even = [shard(model(inner=11008), Rank(index, 2)).layers[0].feed_forward.width for index in range(2)]
    assert even == [5504, 5504]


@pytest.mark.parametrize(("config", "count", "said"), [
    (model(groups=4), 6, "num_key_value_heads 4 cannot be cut into so many parts; use --tensor-parallel 4"),
    (model(heads=9, groups=3), 4, "num_attention_heads 9 .* use --tensor-parallel 3"),
    (model(heads=8, groups=1), 16, "num_attention_heads 8 .* use --tensor-parallel 8"),
    (model(inner=2), 4, "intermediate_size 2 cannot"),
])  # fmt: skip
def test_what_cannot_be_cut_is_refused_with_a_number_that_can(config: ModelConfig, count: int, said: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^tensor_parallel {count}: .*{said}"):
        check_cuts(config, count)


def test_uneven_parts_are_known() -> None:
    assert is_even(model(), 2) and is_even(model(), 8)
    assert not is_even(model(), 3)
