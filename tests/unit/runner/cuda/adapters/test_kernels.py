"""The kernels of adapters in Triton's interpreter, against plain products."""

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from chairlift.core.plan import AdapterSlot
from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.files.hf import load_hf
from chairlift.models.spec import ModelConfig
from chairlift.runner.adapters.low_rank import read_matrices
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.adapters import slots
from chairlift.runner.cuda.adapters.layout import RECORD, max_tiles, slot_layout, tiles_of
from chairlift.runner.cuda.adapters.pieces import KINDS, Placed, SlotAdapter, make_slot_adapter, packed, unpack
from chairlift.runner.cuda.adapters.place_kernel import place_kernel
from chairlift.runner.cuda.adapters.slots import CudaSlots
from fakes.adapters import SHAPES, write_adapter
from fakes.family_configs import CONFIGS
from fakes.slot_adapters import flat_adapter
from fakes.tiny_model import write_tiny_model

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)
CPU = torch.device("cpu")
RANKS = {1: 4, 2: 20, 3: 16}
MODULES = {1: ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj"), 3: ("mlp.down_proj", "self_attn.k_proj")}


class World:
    """Three adapters of different ranks and modules in slots 2, 0 and 3; slot 1 is empty."""

    def __init__(self, folder: Path) -> None:
        self.config: ModelConfig = load_hf(write_tiny_model(folder / "model"))
        every = tuple(SHAPES)
        paths = {
            number: write_adapter(folder / str(number), number, rank, MODULES.get(number, every))
            for number, rank in RANKS.items()
        }
        specs = {number: read_adapter(path, self.config, 32) for number, path in paths.items()}
        self.matrices = {number: read_matrices(spec, torch.float32) for number, spec in specs.items()}
        store: AdapterStore[SlotAdapter] = AdapterStore(
            lambda path: make_slot_adapter(specs[int(path.name)], self.config), 1 << 30, 32
        )
        for number, path in paths.items():
            store.read(number, str(path))
        self.slots = CudaSlots(store, self.config, torch.float32, CPU, 4, 64)
        self.slot_of = {1: 2, 2: 0, 3: 3}
        self.slots.load([AdapterSlot(*each) for each in self.slot_of.items()])

    def expected(self, key: tuple[int, str], numbers: list[int], x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        out = out.clone()
        for row, number in enumerate(numbers):
            for first, down, up in self.matrices[number].get(key, ()) if number else ():
                out[row, first : first + len(up)] += up @ (down @ x[row])
        return out


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("adapters"))


def rows_of(world: World, numbers: list[int]) -> np.ndarray:
    return np.array([world.slot_of.get(number, -1) for number in numbers], np.int32)


# Outputs of a turn: parts have several strips, or less than one.
@pytest.mark.parametrize(("role", "num_outputs"), [("qkv", 256), ("output", 16), ("gate_up", 256), ("down", 16)])
def test_every_row_gets_what_its_adapter_adds(
    world: World, role: str, num_outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "_OUTPUTS", num_outputs)
    numbers = [1, 0, 2, 3, 1, *[2] * 19, 0, 3]
    place = slot_layout(world.config).matrices[1, role]
    x, out = torch.randn(len(numbers), place.width), torch.randn(len(numbers), sum(place.heights))
    expected = world.expected((1, role), numbers, x, out)
    world.slots.send(rows_of(world, numbers), len(numbers) + 6, None, 0)
    padded = torch.cat([x, torch.randn(6, place.width)])
    found = torch.cat([out, torch.zeros(6, out.shape[1])])
    world.slots.add((1, role), False, padded, found)
    torch.testing.assert_close(found[: len(numbers)], expected, atol=1e-4, rtol=1e-4)
    assert not found[len(numbers) :].any()


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_what_adapters_add_is_activated_in_one_kernel_also_where_rows_have_none(world: World, activation: str) -> None:
    numbers = [0, 2, 0, 3, 1, *[0] * 17, 2]
    place, key = slot_layout(world.config).matrices[1, "gate_up"], (1, "gate_up")
    x, product = torch.randn(len(numbers), place.width), torch.randn(len(numbers), sum(place.heights))
    x, product = x / 20, product / 4  # the interpreter's exponential must not overflow
    gate, up = world.expected(key, numbers, x, product).chunk(2, dim=1)
    activate = (
        torch.nn.functional.silu if activation == "silu" else partial(torch.nn.functional.gelu, approximate="tanh")
    )
    world.slots.send(rows_of(world, numbers), len(numbers) + 3, None, 0)
    world.slots.multiply_low(key, False, torch.cat([x, torch.randn(3, place.width)]))
    found = world.slots.activate_up(key, False, torch.cat([product, torch.randn(3, product.shape[1])]), activation)
    torch.testing.assert_close(found[: len(numbers)], activate(gate) * up, atol=1e-4, rtol=1e-4)


def test_gate_and_up_of_one_tensor_are_activated_as_those_of_two() -> None:
    config, key = CONFIGS["phi3"], (0, "gate_up")
    place = slot_layout(config).matrices[key]
    assert len(place.heights) == 1
    store: AdapterStore[SlotAdapter] = AdapterStore(
        lambda path: flat_adapter(torch.randn(slot_layout(config).num_units * 32) * 0.1, 2), 1 << 30, 32
    )
    store.read(1, "1")
    own = CudaSlots(store, config, torch.float32, CPU, 2, 64)
    own.load([AdapterSlot(1, 1)])
    own.send(np.array([1, -1, *[1] * 17], np.int32), 19, None, 0)
    x, product = torch.randn(19, place.width), torch.randn(19, place.heights[0])
    own.multiply_low(key, False, x)
    found = own.activate_up(key, False, product, "silu")
    own.add(key, False, x, product)
    gate, up = product.chunk(2, dim=1)
    torch.testing.assert_close(found, torch.nn.functional.silu(gate) * up, atol=1e-4, rtol=1e-4)


def test_chosen_rows_have_tiles_of_their_own(world: World) -> None:
    numbers = [1, 1, 2, 0, 3]
    place = slot_layout(world.config).matrices[0, "down"]
    logit_rows = np.array([1, 2, 2, 3], np.int32)
    world.slots.send(rows_of(world, numbers), 5, logit_rows, 4)
    x, out = torch.randn(4, place.width), torch.randn(4, sum(place.heights))
    expected = world.expected((0, "down"), [numbers[row] for row in logit_rows], x, out)
    world.slots.add((0, "down"), True, x, out)
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [1, 2, 3, 0])
@pytest.mark.parametrize("role", ["qkv", "output", "gate_up", "down"])
def test_one_kernel_multiplies_a_single_row_and_adds_its_adapter(world: World, role: str, number: int) -> None:
    place, key = slot_layout(world.config).matrices[1, role], (1, role)
    x, matrix = torch.randn(1, place.width), torch.randn(sum(place.heights), place.width)
    bias = torch.randn(sum(place.heights))
    expected = world.expected(key, [number], x, x @ matrix.T + bias)
    world.slots.send(rows_of(world, [number]), 1, None, 0)
    torch.testing.assert_close(world.slots.multiply_row(key, False, x, matrix, bias), expected, atol=1e-4, rtol=1e-4)
    world.slots.send(rows_of(world, [2, number, 1]), 3, np.array([1], np.int32), 1)  # the only one that goes on
    torch.testing.assert_close(world.slots.multiply_row(key, True, x, matrix, bias), expected, atol=1e-4, rtol=1e-4)


def test_one_kernel_activates_too(world: World) -> None:
    place, key = slot_layout(world.config).matrices[0, "gate_up"], (0, "gate_up")
    x, matrix = torch.randn(1, place.width), torch.randn(sum(place.heights), place.width)
    world.slots.send(rows_of(world, [2]), 1, None, 0)
    found = world.slots.multiply_row(key, False, x, matrix, None, "silu")
    gate, up = world.expected(key, [2], x, x @ matrix.T).chunk(2, dim=1)
    torch.testing.assert_close(found, torch.nn.functional.silu(gate) * up, atol=1e-4, rtol=1e-4)


def test_bits_of_a_row_are_the_same_alone_and_among_others(world: World, ordered_dots: None) -> None:
    numbers = [2, 1, 2, 0, 3, *[2] * 20, 1]
    place = slot_layout(world.config).matrices[0, "qkv"]
    x, base = torch.randn(len(numbers), place.width), torch.randn(len(numbers), sum(place.heights))
    world.slots.send(rows_of(world, numbers), len(numbers), None, 0)
    together = base.clone()
    world.slots.add((0, "qkv"), False, x, together)
    for row in (0, 1, 4, 20, 25):
        world.slots.send(rows_of(world, [numbers[row]]), 1, None, 0)
        alone = base[row : row + 1].clone()
        world.slots.add((0, "qkv"), False, x[row : row + 1], alone)
        assert torch.equal(alone[0], together[row])


def test_tiles_hold_each_row_once_and_are_no_more_than_there_is_room_for() -> None:
    rng = np.random.default_rng(1)
    for num_slots in (1, 3, 8):
        for count in (1, 5, 16, 17, 100):
            slots = rng.integers(-1, num_slots, count).astype(np.int32)
            blocks = rng.integers(1, 5, num_slots).tolist()
            tiles = tiles_of(slots, blocks)
            assert tiles.shape[1] == RECORD and len(tiles) <= max_tiles(count, num_slots)
            found = {int(row): (int(tile[0]), int(tile[1])) for tile in tiles for row in tile[2:] if row >= 0}
            assert found == {row: (slot, blocks[slot] if slot >= 0 else 0) for row, slot in enumerate(slots.tolist())}
            assert tiles[:, 0].tolist() == sorted(tiles[:, 0].tolist(), key=lambda slot: (slot < 0, slot))


@pytest.mark.parametrize("kept", [torch.float32, torch.float16, torch.bfloat16])
def test_a_piece_fills_its_slot_as_torch_does(kept: torch.dtype) -> None:
    source = torch.Generator().manual_seed(1)
    tensors = [
        Placed(torch.randn(height, width, generator=source).to(dtype), 3000 * number + 7, step, factor)
        for number, (height, width, step, factor, dtype) in enumerate(
            zip((1, 50, 7, 40), (2999, 10, 300, 1), (3000, 16, 301, 16), (1.0, 0.3, -1.7, 3.0), KINDS, strict=True)
        )
    ]
    (piece,) = packed(tensors, 1, 12_000, 1 << 20).pieces
    buffer, slots = torch.zeros(piece.num_bytes, dtype=torch.uint8), torch.full((2, 12_000), 9.0, dtype=kept)
    piece.fill(buffer.numpy())
    place_kernel[(len(piece.records), 2)](buffer, slots[0])
    unpack(buffer, len(piece.records), slots[1])
    ulp = 2**-7 if kept is torch.bfloat16 else 0  # the interpreter cuts off; a GPU does not, as tests/gpu sees
    torch.testing.assert_close(slots[0], slots[1], rtol=ulp, atol=0)
    assert (slots[0] != 9).sum() == sum(each.rows.numel() for each in tensors)
