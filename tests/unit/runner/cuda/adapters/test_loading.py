"""Adapters on their way to slots: lanes whose device is host memory, and which go on when they are told to."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chairlift.runner.cuda.adapters.layout import RANKS
from chairlift.runner.cuda.adapters.loading import SlotLoading
from chairlift.runner.cuda.adapters.pieces import KINDS, Placed, SlotAdapter, packed, unpack
from chairlift.runner.weights.transfer import PIECE, Lanes, Launch
from fakes.lanes import LateLane, Mark
from fakes.patience import HANG_S
from fakes.slot_adapters import flat_adapter

WIDTH = 3 * PIECE // 4 + 5 * RANKS  # numbers of four bytes: three whole pieces and a small one


class HeldLane(LateLane):
    """Its thread waits before the first piece until it may `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.num_launched = 0  # steps, by the engine
        self.waited_for: list[int] = []  # of these, by each copy
        self.fails = False

    def mark(self) -> Any:
        return self.num_launched

    def start(self, after: Any = None) -> None:
        if isinstance(after, Mark):
            super().start(after)
        else:
            self.waited_for.append(after)
            assert self.go.wait(HANG_S)

    def send(self, turn: int, launch: Launch) -> None:
        if self.fails:
            raise RuntimeError("the device is gone")
        super().send(turn, launch)


def numbers(seed: int, count: int = WIDTH) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(count, np.float32))


def adapter(seed: int, count: int = WIDTH) -> SlotAdapter:
    return flat_adapter(numbers(seed, count), 1)


class World:
    def __init__(self) -> None:
        self.bank = torch.zeros(3, WIDTH)
        self.lane = HeldLane()
        self.lanes = [self.lane, LateLane(), LateLane()]
        self.loading = SlotLoading(self.bank, Lanes(self.lanes), unpack)

    def arrive(self, *slots: int) -> None:
        self.loading.arrive(slots)


def test_steps_that_do_not_use_a_slot_go_on_while_it_is_written_and_those_that_do_wait() -> None:
    world = World()
    world.loading.begin(1, adapter(1))
    world.lane.num_launched += 1  # a step beside it
    world.arrive(0, 2)
    with ThreadPoolExecutor(1) as thread:
        step = thread.submit(world.arrive, 0, 1)
        assert not step.done() and not world.bank.any()
        world.lane.go.set()
        step.result(HANG_S)
    assert torch.equal(world.bank[1], numbers(1)) and not world.bank[[0, 2]].any()
    assert sum(lane.num_pieces for lane in world.lanes) == 4 and world.lane.waited_for == [0]


def test_a_slot_is_written_after_the_steps_that_were_launched_before_and_no_others() -> None:
    world = World()
    world.lane.num_launched = 5
    world.loading.begin(0, adapter(1))
    world.lane.num_launched = 7
    world.loading.begin(2, adapter(2))
    world.lane.num_launched = 9
    world.lane.go.set()
    world.arrive(0, 2)
    assert world.lane.waited_for == [5, 7]


def test_of_two_loads_of_a_slot_the_last_counts() -> None:
    world = World()
    half = WIDTH // RANKS // 2 * RANKS
    world.loading.begin(0, adapter(1))
    world.loading.begin(0, adapter(2, half))
    world.lane.go.set()
    world.arrive(0)
    assert torch.equal(world.bank[0, :half], numbers(2, half))


def test_what_an_adapter_has_no_numbers_for_is_cleared() -> None:
    world = World()
    world.lane.go.set()
    world.loading.begin(0, adapter(1))
    world.arrive(0)
    rows = numbers(2, 40).view(10, 4)
    sparse = packed([Placed(rows, 8, 16, 0.5), Placed(rows[:3], 800, 4)], 1, WIDTH)
    world.loading.begin(0, sparse)
    world.arrive(0)
    expected = torch.zeros(WIDTH)
    expected[8:168].view(10, 16)[:, :4] = 0.5 * rows
    expected[800:812] = rows[:3].flatten()
    assert torch.equal(world.bank[0], expected)


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kept", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_numbers_are_rounded_once(stored: torch.dtype, kept: torch.dtype, factor: float) -> None:
    rows = numbers(3, 600).view(60, 10).to(stored)
    bank = torch.zeros(2, 1000, dtype=kept)
    adapters = [packed([Placed(rows, 7, 16, factor)], 1, 1000)] * 2
    for slot, lanes in enumerate((None, Lanes([LateLane()]))):
        loading = SlotLoading(bank, lanes, unpack)
        loading.begin(slot, adapters[slot])
        loading.arrive([slot])
    expected = (rows.float() * np.float32(factor).item()).to(kept)
    found = torch.stack([slot[7:967].view(60, 16)[:, :10] for slot in bank])
    assert torch.equal(found, expected.expand(2, -1, -1))


def test_pieces_fit_and_fill_a_slot_with_every_row() -> None:
    """Tensors of several types, side by side in one memory or not, in any order and with others between them."""
    rng = np.random.default_rng(4)
    num_stretches = 0
    for _ in range(100):
        memory = torch.from_numpy(rng.integers(0, 255, 20_000, np.uint8))
        tensors, place = [], int(rng.integers(0, 3)) * 8
        slot, expected = torch.full((9 * 1200,), -1.0), torch.full((9 * 1200,), -1.0)
        for index in range(int(rng.integers(1, 9))):
            height, width = int(rng.integers(1, 40)), int(rng.integers(1, 30))
            dtype = KINDS[rng.integers(0, len(KINDS))]
            numbers = torch.from_numpy(rng.integers(-9, 9, (height, width))).to(dtype)
            if rng.random() < 0.8:
                place = -(-place // dtype.itemsize) * dtype.itemsize + int(rng.random() < 0.2) * 8
                own = memory[place : place + numbers.nbytes].view(dtype).view(height, width)
                place += numbers.nbytes
                numbers = own.copy_(numbers)
            tensors.append(Placed(numbers, 1200 * index, 30, 0.5))
            expected[1200 * index :][: 30 * height].view(height, 30)[:, :width] = 0.5 * numbers.float()
        rng.shuffle(tensors)  # type: ignore[arg-type]
        size = int(rng.integers(400, 2048))
        made = packed([Placed(*each) for each in tensors], 1, len(slot), size)
        for piece in made.pieces:
            assert 0 < piece.num_bytes <= size and len(piece.records)
            buffer = torch.full((size,), 255, dtype=torch.uint8)
            piece.fill(buffer.numpy())
            unpack(buffer, len(piece.records), slot)
            num_stretches += len(piece.stretches)
        assert torch.equal(slot, expected)
    assert num_stretches < 1500


def test_an_error_reaches_every_step_that_uses_the_slot_and_no_other() -> None:
    world = World()
    world.lane.fails = True
    world.lane.go.set()
    world.lanes[1:] = []
    world.loading = SlotLoading(world.bank, Lanes(world.lanes), unpack)
    world.loading.begin(0, adapter(1))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the device is gone"):
            world.arrive(0)
    world.lane.fails = False
    world.lane.drain()
    world.loading.begin(1, adapter(2))
    world.arrive(1)
    world.loading.begin(0, adapter(1))
    world.arrive(0)
    assert torch.equal(world.bank[0], numbers(1))
