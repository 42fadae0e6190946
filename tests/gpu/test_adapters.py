"""Adapters on a real GPU: the kernels against plain products, and bits alone and among others, captured or not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.plan import AdapterSlot
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.kv_groups import kv_groups
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.adapters.layout import RANKS, slot_layout
from chairlift.runner.cuda.adapters.pieces import Placed, SlotAdapter, packed
from chairlift.runner.cuda.adapters.slots import CudaSlots
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.kv_cache import KvCache, sizes_of
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock
from fakes.requests import make_request
from fakes.slot_adapters import flat_adapter
from unit.models.test_hybrids import SPARSE, read

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DEVICE = torch.device("cuda")
CONFIG = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=4096, num_layers=2, num_heads=32, num_kv_heads=8, head_dim=128,
    intermediate_size=11008, vocab_size=4001, max_model_len=512, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
HYBRID = read(  # a mixture, whose shared expert has a gate of one row
    SPARSE | {"num_hidden_layers": 4, "hidden_size": 1024, "vocab_size": 4001, "max_position_embeddings": 512,
              "linear_num_key_heads": 4, "linear_num_value_heads": 8, "num_attention_heads": 4, "num_experts": 16}
)  # fmt: skip
BLOCKS = {1: 1, 2: 4, 3: 2}  # of ranks, by adapter
SLOTS = {1: 2, 2: 0, 3: 3}
Rows = dict[tuple[int, int], Tensor]


def numbers_of(number: int, config: ModelConfig, dtype: torch.dtype) -> Tensor:
    """A random adapter, as it lies in a slot."""
    count = slot_layout(config).num_units * BLOCKS[number] * RANKS
    return (torch.randn(count, generator=torch.Generator().manual_seed(number)) * 0.02).to(dtype)


def store_of(config: ModelConfig, dtype: torch.dtype) -> AdapterStore[SlotAdapter]:
    def read(path: Any) -> SlotAdapter:
        number = int(path.name)
        return flat_adapter(numbers_of(number, config, dtype), BLOCKS[number])

    store: AdapterStore[SlotAdapter] = AdapterStore(read, 1 << 34, 64)
    for number in BLOCKS:
        store.read(number, str(number))
    return store


def matrices(number: int, dtype: torch.dtype, key: tuple[int, str]) -> list[tuple[int, Tensor, Tensor]]:
    """First row, A and B of each part of an adapter, as the layout has them."""
    place, rank = slot_layout(CONFIG).matrices[key], BLOCKS[number] * RANKS
    numbers = numbers_of(number, CONFIG, dtype)
    downs = numbers[place.down * rank :][: place.width * len(place.heights) * rank].view(-1, rank, place.width)
    ups = numbers[place.up * rank :][: sum(place.heights) * rank].view(-1, rank)
    firsts = np.cumsum((0, *place.heights)).tolist()
    return [
        (first, down.to(DEVICE), up.to(DEVICE))
        for first, down, up in zip(firsts, downs, ups.split(list(place.heights)), strict=False)
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("num_rows", [1, 3, 16, 64, 300])
def test_every_row_gets_what_its_adapter_adds(dtype: torch.dtype, num_rows: int) -> None:
    store = store_of(CONFIG, dtype)
    slots = CudaSlots(store, CONFIG, dtype, DEVICE, 4, 512)
    slots.load([AdapterSlot(*each) for each in SLOTS.items()])
    numbers = np.random.default_rng(num_rows).integers(0, 4, num_rows)
    numbers[0] = 2
    slots.send(np.array([SLOTS.get(int(n), -1) for n in numbers], np.int32), num_rows, None, 0)
    for key in ((0, "qkv"), (1, "gate_up"), (1, "down"), (0, "output")):
        place = slot_layout(CONFIG).matrices[key]
        x = torch.randn(num_rows, place.width, device=DEVICE, dtype=dtype)
        base = torch.randn(num_rows, sum(place.heights), device=DEVICE, dtype=dtype)
        expected = base.double()
        for number in BLOCKS:
            rows = torch.from_numpy(np.flatnonzero(numbers == number)).to(DEVICE)
            for first, down, up in matrices(number, dtype, key):
                added = (x[rows].double() @ down.double().T) @ up.double().T
                expected[rows, first : first + len(up)] += added
        out = base.clone()
        slots.add(key, False, x, out)
        tolerance = 1e-4 if dtype is torch.float32 else 3e-2
        torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)
        assert torch.equal(out[numbers == 0], base[numbers == 0])
        for row in (0, num_rows // 2, num_rows - 1):  # the same bits alone
            slots.send(np.array([SLOTS.get(int(numbers[row]), -1)], np.int32), 1, None, 0)
            alone = base[row : row + 1].clone()
            slots.add(key, False, x[row : row + 1], alone)
            assert torch.equal(alone[0], out[row])
        slots.send(np.array([SLOTS.get(int(n), -1) for n in numbers], np.int32), num_rows, None, 0)


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_slot_holds_the_rounded_numbers_of_the_last_adapter_and_nothing_of_the_one_before(
    stored: torch.dtype,
) -> None:
    """Ranks of less than a block leave numbers free; tensors are longer than a piece."""
    units, source = slot_layout(CONFIG).num_units, torch.Generator().manual_seed(5)
    ones = torch.ones(units * RANKS, dtype=torch.bfloat16)
    tensors, expected = [], torch.zeros(units * RANKS, dtype=torch.bfloat16)
    for place in slot_layout(CONFIG).matrices.values():
        down = torch.randn(12, place.width, generator=source).to(stored)
        up = torch.randn(sum(place.heights), 12, generator=source).to(stored)
        tensors += [Placed(down, place.down * RANKS, place.width), Placed(up, place.up * RANKS, RANKS, 0.3)]
        expected[place.down * RANKS :][: down.numel()] = down.flatten().bfloat16()
        scaled = (up.float() * 0.3).bfloat16()
        expected[place.up * RANKS :][: len(up) * RANKS].view(-1, RANKS)[:, :12] = scaled
    adapters = {1: flat_adapter(ones, 1), 2: packed(tensors, 1, len(expected))}
    store: AdapterStore[SlotAdapter] = AdapterStore(lambda path: adapters[int(path.name)], 1 << 34, RANKS)
    for number in adapters:
        store.read(number, str(number))
    slots = CudaSlots(store, CONFIG, torch.bfloat16, DEVICE, 2, 512)
    for _ in range(5):
        for number, wanted in ((1, ones), (2, expected)):
            slots.load([AdapterSlot(number, 1)])
            slots.send(np.array([1], np.int32), 1, None, 0)  # waits for it
            assert torch.equal(slots._bank[1].cpu(), wanted)
            assert not slots._bank[0].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_one_kernel_multiplies_a_single_row_and_adds_its_adapter(dtype: torch.dtype, number: int) -> None:
    store = store_of(CONFIG, dtype)
    slots = CudaSlots(store, CONFIG, dtype, DEVICE, 4, 512)
    slots.load([AdapterSlot(*each) for each in SLOTS.items()])
    for _ in range(50):  # programs that wait for others come in many orders
        slots.send(np.array([SLOTS.get(number, -1)], np.int32), 1, None, 0)
        for key in ((0, "qkv"), (1, "gate_up"), (1, "down"), (0, "output")):
            place = slot_layout(CONFIG).matrices[key]
            x = torch.randn(1, place.width, device=DEVICE, dtype=dtype)
            matrix = torch.randn(sum(place.heights), place.width, device=DEVICE, dtype=dtype) / place.width**0.5
            expected = x.double() @ matrix.double().T
            for first, down, up in matrices(number, dtype, key) if number else ():
                expected[:, first : first + len(up)] += (x.double() @ down.double().T) @ up.double().T
            if key[1] == "gate_up":
                found = slots.multiply_row(key, False, x, matrix, None, "silu")
                gate, up = expected.chunk(2, dim=1)
                expected = torch.nn.functional.silu(gate) * up
            else:
                found = slots.multiply_row(key, False, x, matrix, None)
            torch.testing.assert_close(found.double(), expected, atol=3e-2, rtol=3e-2)


NUM_REQUESTS = 40
LIMITS = Limits(
    vocab_size=CONFIG.vocab_size, max_model_len=512, block_size=16, num_blocks=2000, max_running=64,
    max_step_tokens=512, num_adapter_slots=3,
)  # fmt: skip


def run(limits: Limits, uses_graphs: bool = True, num_adapters: int = 3, config: ModelConfig = CONFIG) -> Rows:
    dtype = torch.bfloat16
    model = build_model(config, CudaOps(exact=True), DummyTensors(config, dtype, DEVICE), dtype, DEVICE, 512)
    groups = kv_groups(config, sizes=sizes_of(16, dtype, dtype))
    limits = replace(limits, groups=groups.declared)
    kv = KvCache(config, limits.num_blocks, 16, dtype, DEVICE, groups=groups)
    store = store_of(config, dtype) if num_adapters else None
    runner = CudaRunner(model, kv, DEVICE, limits, exact=True, adapters=store)
    runner.uses_graphs = uses_graphs
    rows: Rows = {}

    def see(requests: Any, positions: Any, logits: Tensor) -> None:
        rows.update(zip(zip(requests, positions, strict=True), logits.clone(), strict=True))

    runner.on_logits = see
    engine = Engine(Scheduler(limits, Fcfs()), runner, CountingClock())
    for i in range(NUM_REQUESTS):
        prompt = [(7 * i * place + place) % 4001 for place in range(1 + 17 * i % 200)]
        engine.add((make_request(i, prompt, 12, temperature=0.0, adapter=i % (1 + num_adapters)),))
    while engine.has_work:
        engine.step()
    return rows


@pytest.mark.parametrize("config", [CONFIG, HYBRID], ids=["llama", "hybrid"])
def test_bits_are_the_same_alone_and_among_other_adapters_and_in_fewer_slots(config: ModelConfig) -> None:
    alone = run(replace(LIMITS, max_running=1, num_adapter_slots=1), config=config)
    assert len(alone) == NUM_REQUESTS * 12
    for limits in (LIMITS, replace(LIMITS, num_adapter_slots=2, max_step_tokens=100)):
        together = run(limits, config=config)
        assert {place for place, row in alone.items() if not torch.equal(row, together[place])} == set()


@pytest.mark.parametrize("config", [CONFIG, HYBRID], ids=["llama", "hybrid"])
def test_captured_steps_are_those_that_are_launched_kernel_by_kernel(config: ModelConfig) -> None:
    captured, launched = run(LIMITS, config=config), run(LIMITS, uses_graphs=False, config=config)
    assert {place for place, row in captured.items() if not torch.equal(row, launched[place])} == set()


def test_base_rows_are_those_of_a_runner_without_adapters_and_others_differ() -> None:
    beside, without = run(LIMITS), run(replace(LIMITS, num_adapter_slots=0), num_adapters=0)
    for (request, position), row in without.items():
        if request % 4 and position != 17 * request % 200:  # later ones follow other tokens
            continue
        assert torch.equal(row, beside[request, position]) is (request % 4 == 0)
