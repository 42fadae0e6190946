"""One native kernel adds what all adapters of a step do, to the bit, called by Python or replayed from a tape."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chairlift.core.attributes import Attributes
from chairlift.core.plan import AdapterSlot, Chunk, StepPlan
from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.files.hf import load_hf
from chairlift.runner.adapters.low_rank import HostAdapter, make_host_adapter
from chairlift.runner.adapters.model import AdaptedModel, HostSlots, Slots, adapted
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native import ops as native
from chairlift.runner.native.adapters import NativeSlots
from chairlift.runner.native.tape import TapedDecoder
from chairlift.runner.torch.batching import batch_of
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from fakes.adapters import SHAPES, write_adapter
from fakes.tiny_model import write_tiny_model
from unit.runner.twins import CPU, chunk, random_tokens, request, shuffled_tables, step

pytestmark = pytest.mark.skipif(not native.available(), reason="the native kernels are not built: make kernels")

NUM_SLOTS, MAX_ROWS, BLOCK_SIZE, NUM_BLOCKS = 3, 24, 4, 60
RANKS = {1: 4, 2: 20, 3: 16, 4: 1}
MODULES = {1: ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj"), 3: ("mlp.down_proj", "self_attn.k_proj")}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


class World:
    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.config, self.ops, self.dtype = load_hf(write_tiny_model(folder / "model")), native.NativeOps(2), dtype
        self.decoder = build_model(self.config, self.ops, HfTensors(folder / "model"), dtype, CPU, 128)
        self.store: AdapterStore[HostAdapter] = AdapterStore(
            lambda path: make_host_adapter(read_adapter(path, self.config, 64), self.ops, dtype), 1 << 30
        )
        for number, rank in RANKS.items():
            path = write_adapter(folder / str(number), number, rank, MODULES.get(number, tuple(SHAPES)))
            self.store.read(number, str(path))

    def native_slots(self) -> NativeSlots:
        return NativeSlots(self.store, NUM_SLOTS, self.decoder.config, MAX_ROWS, self.ops.calls)


@DTYPES
def test_it_adds_what_products_one_after_the_other_add(tmp_path: Path, dtype: torch.dtype) -> None:
    world, rng = World(tmp_path, dtype), random.Random(0)
    ours, plain = world.native_slots(), HostSlots(world.store, NUM_SLOTS)
    some = batch_of(step([chunk((1,), 0, 1, (0,), request((1,)))]), BLOCK_SIZE, {}, CPU)
    with torch.inference_mode():
        for _ in range(12):
            loads = [AdapterSlot(rng.choice(list(RANKS)), slot) for slot in range(NUM_SLOTS)]
            num_rows = rng.randint(1, MAX_ROWS)
            adapters = [rng.randint(-1, NUM_SLOTS - 1) for _ in range(num_rows)]
            chosen = sorted(rng.sample(range(num_rows), rng.randint(1, num_rows)))
            batch = replace(some, adapters=torch.tensor(adapters), logit_rows=torch.tensor(chosen))
            for slots in (ours, plain):
                slots.load(loads)
                slots.begin(batch)
            layer = world.decoder.layers[1]
            weights = {**layer.weights, "output": layer.output, "gate_up": layer.gate_up, "down": layer.down}
            for role, weight in weights.items():
                for is_chosen, count in ((False, num_rows), (True, len(chosen))):
                    x = torch.randn(count, width_of(world, role)).to(dtype)
                    added, expected = weight.linear(x), weight.linear(x)
                    ours.add((1, role), is_chosen, x, added)
                    plain.add((1, role), is_chosen, x, expected)
                    assert torch.equal(added, expected)


def width_of(world: World, role: str) -> int:
    return world.config.hidden_size if role != "down" else world.config.layers[0].feed_forward.width


@DTYPES
def test_replayed_steps_have_the_bits_of_steps_that_python_makes(tmp_path: Path, dtype: torch.dtype) -> None:
    """While adapters come and go and rows change theirs."""
    world, rng = World(tmp_path, dtype), random.Random(1)
    pairs = []
    for is_taped in (True, False):
        slots: Slots = world.native_slots()
        decoder = adapted(world.decoder, slots)
        taped = TapedDecoder(decoder, world.ops.calls) if is_taped else decoder
        pairs.append(
            (AdaptedModel(world.decoder, taped, slots), KvCache(world.config, NUM_BLOCKS, BLOCK_SIZE, dtype, CPU))
        )
    lengths = [20, 21, 20]
    tokens, tables = (
        [random_tokens(length, seed=i) for i, length in enumerate(lengths)],
        shuffled_tables(lengths, BLOCK_SIZE, NUM_BLOCKS),
    )

    def decodes(place: int, numbers: list[int], places: tuple[AdapterSlot, ...]) -> StepPlan:
        chunks: list[Chunk] = []
        for i, number in enumerate(numbers):
            asked = replace(request(tokens[i], id=i), attributes=Attributes(adapter=number))
            chunks.append(chunk(tokens[i], place, 1, tables[i], asked))
        return step(chunks)._replace(adapters=places)

    with torch.inference_mode():
        for place in range(18):
            held = rng.sample(list(RANKS), NUM_SLOTS)
            places = tuple(AdapterSlot(number, slot) for slot, number in enumerate(held))
            plan = decodes(place, [rng.choice([0, *held]) for _ in lengths[: rng.randint(2, 3)]], places)
            if not any(each.request.attributes.adapter for each in plan.chunks):
                continue
            found = []
            for model, kv in pairs:
                model.slots.load(places)
                found.append(model.hidden(batch_of(plan, BLOCK_SIZE, {}, CPU), kv).clone())
            assert torch.equal(*found)
