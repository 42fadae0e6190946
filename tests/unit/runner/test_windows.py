"""Layers in groups that release what lies behind their windows compute what they compute with a full cache, bit for
bit: in chunked prompts, decodes past the window, prefix hits, preemption with and without swapping, forks, searches."""

from itertools import product

import pytest
import torch

from chairlift.core.events import Forked, Preempted
from chairlift.core.ids import BlockId
from chairlift.core.memory.preemption import Preemption
from chairlift.core.plan import BlockCopy
from chairlift.models.kv_groups import Fit, kv_groups
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block
from chairlift.runner.model import Model
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.native.tape import TapedDecoder
from chairlift.runner.ops import Ops
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.crowds import crowd, with_searches
from fakes.worlds.grouped import BothWays, grouped_limits, poison_tables, windowed
from fakes.worlds.models import world_limits
from fakes.worlds.world import World

CPU = torch.device("cpu")
CONFIG = windowed("wwFwwwF")  # three groups with a window, the last of one layer
# Layers that see all tokens keep half as much of each, and twice as much.
NARROW, WIDE = windowed("wwFwwwF", full={"num_kv_heads": 1}), windowed("wwFswwsF", full={"head_dim": 16})
SWAP = Preemption(mode="swap", num_host_blocks=2000)
KINDS = {
    "torch": (TorchOps, torch.float64),
    "exact": (lambda: TorchOps(exact=True), torch.float32),
    "native": (lambda: NativeOps(1), torch.float32),
    "native-bf16": (lambda: NativeOps(1), torch.bfloat16),
}


# Torch's own attention adds up by blocks, whose tokens differ where rows are narrow.
CONFIGS = {"same": (CONFIG, 220), "narrow": (NARROW, 260), "wide": (WIDE, 110)}  # and tokens of the pool


def model_of(config: ModelConfig, ops: Ops, dtype: torch.dtype) -> Model[KvCache]:
    decoder = build_model(config, ops, DummyTensors(config), dtype, CPU, config.max_model_len)
    return TapedDecoder(decoder, ops.calls) if isinstance(ops, NativeOps) else decoder


@pytest.mark.sampled(2)
@pytest.mark.parametrize("preemption", [Preemption(), SWAP], ids=lambda preemption: preemption.mode)
@pytest.mark.parametrize("block_size", [2, 4])
@pytest.mark.parametrize(("kind", "rows"), [each for each in product(KINDS, CONFIGS) if each != ("torch", "narrow")])
def test_the_logits_are_those_of_a_full_cache(
    monkeypatch: pytest.MonkeyPatch, kind: str, rows: str, block_size: int, preemption: Preemption
) -> None:
    if kind.startswith("native") and not available():
        pytest.skip("needs the native kernels: a C compiler when installing")
    (make_ops, dtype), (config, num_tokens) = KINDS[kind], CONFIGS[rows]
    limits = grouped_limits(config, world_limits(num_tokens // block_size, block_size, 5, 17))
    poison_tables(monkeypatch, limits.num_blocks)
    runner = BothWays(config, dtype, CPU, lambda _, kv: TorchRunner(model_of(config, make_ops(), dtype), kv, CPU))
    world = World(limits, runner, arrivals=with_searches(crowd(1), 1), preemption=preemption).drive()
    happened = world.happened
    assert min(happened[Preempted], happened[Forked], happened["hit"]) > 0, "the world was too easy to show anything"
    assert (happened["swap"] > 0) is (preemption.mode == "swap")
    assert happened["compared"] > 200


def test_layers_at_one_place_share_their_tensors() -> None:
    groups = kv_groups(CONFIG)
    assert groups.groups == (1, 1, 0, 2, 2, 3, 0)
    assert groups.places == (0, 1, 0, 0, 1, 0, 1)
    kv = KvCache(CONFIG, 3, 4, torch.float32, CPU, groups=groups)
    assert kv.state[0] is kv.state[2] is kv.state[3] is kv.state[5] and kv.state[1] is kv.state[6]
    assert kv.state[0][0] is not kv.state[1][0]
    assert 7 * kv_bytes_per_block(CONFIG, 4, torch.float32, groups) == 2 * kv_bytes_per_block(CONFIG, 4, torch.float32)
    kv.state[0][0][1] = 5.0
    kv.move_blocks(copies=[BlockCopy(BlockId(1), BlockId(2))])
    assert bool((kv.state[5][0][2] == 5.0).all())


def test_wider_and_narrower_rows_fill_pages_of_as_many_bytes() -> None:
    narrow, wide = kv_groups(NARROW), kv_groups(WIDE)
    assert narrow.groups == (1, 1, 0, 2, 2, 3, 0)
    assert (narrow.fit, narrow.declared[0].num_pages) == (Fit(pages_a_block=2), 6)
    assert (wide.groups, wide.places) == ((1, 1, 0, 1, 1, 1, 1, 0), (0, 0, 0, 0, 1, 1, 1, 1))
    assert (wide.fit, wide.parts) == (Fit(layers_a_place=2), (0, 1, 0, 1, 0, 1, 1, 0))
    for config, groups, shape in ((NARROW, narrow, (3, 2, 2, 8)), (WIDE, wide, (6, 2, 4, 8))):
        kv = KvCache(config, 3, 4, torch.float32, CPU, groups=groups)
        assert kv.state[0][0].shape == shape
        assert kv.state[0][0].data_ptr() == kv.state[2][0].data_ptr()


@pytest.mark.parametrize("kinds", ["FFF", "www", "F"])
def test_layers_that_are_all_alike_are_one_group(kinds: str) -> None:
    groups = kv_groups(windowed(kinds))
    assert groups.declared == ()
    assert groups.places == tuple(range(len(kinds)))


def test_what_lies_behind_other_windows_is_not_exchanged() -> None:
    layouts = {
        KvCache(config, 2, 4, torch.float32, CPU, groups=kv_groups(config)).host.layout
        for config in (CONFIG, windowed("wwFwwwF", window=8), windowed("wFwF"), windowed("FF"))
    }
    assert len(layouts) == 4
