"""Adapters on their way to slots: lanes whose device is host memory, and which go on when they are told to."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chairlift.runner.cuda.adapters.loading import SlotLoading
from chairlift.runner.weights.transfer import PIECE
from fakes.lanes import LateLane
from fakes.patience import HANG_S

WIDTH = 3 * PIECE // 4 + 5  # numbers of four bytes: three whole pieces and a small one


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
        self.waited_for.append(after)
        assert self.go.wait(HANG_S)

    def send(self, part: Tensor, turn: int, target: Tensor) -> None:
        if self.fails:
            raise RuntimeError("the device is gone")
        assert part.nbytes <= PIECE
        super().send(part, turn, target)


def numbers(seed: int, count: int = WIDTH) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(count, np.float32))


class World:
    def __init__(self) -> None:
        self.bank = torch.zeros(3, WIDTH)
        self.lane = HeldLane()
        self.loading = SlotLoading(self.bank, self.lane)

    def arrive(self, *slots: int) -> None:
        self.loading.arrive(slots)


def test_steps_that_do_not_use_a_slot_go_on_while_it_is_written_and_those_that_do_wait() -> None:
    world = World()
    world.loading.begin(1, numbers(1))
    world.lane.num_launched += 1  # a step beside it
    world.arrive(0, 2)
    with ThreadPoolExecutor(1) as thread:
        step = thread.submit(world.arrive, 0, 1)
        assert not step.done() and not world.bank.any()
        world.lane.go.set()
        step.result(HANG_S)
    assert torch.equal(world.bank[1], numbers(1)) and not world.bank[[0, 2]].any()
    assert (world.lane.num_pieces, world.lane.waited_for) == (4, [0])


def test_a_slot_is_written_after_the_steps_that_were_launched_before_and_no_others() -> None:
    world = World()
    world.lane.num_launched = 5
    world.loading.begin(0, numbers(1))
    world.lane.num_launched = 7
    world.loading.begin(2, numbers(2))
    world.lane.num_launched = 9
    world.lane.go.set()
    world.arrive(0, 2)
    assert world.lane.waited_for == [5, 7]


def test_of_two_loads_of_a_slot_the_last_counts() -> None:
    world = World()
    world.loading.begin(0, numbers(1))
    world.loading.begin(0, numbers(2, WIDTH // 2))
    world.lane.go.set()
    world.arrive(0)
    assert torch.equal(world.bank[0, : WIDTH // 2], numbers(2, WIDTH // 2))


def test_an_error_reaches_every_step_that_uses_the_slot_and_no_other() -> None:
    world = World()
    world.lane.fails = True
    world.lane.go.set()
    world.loading.begin(0, numbers(1))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the device is gone"):
            world.arrive(0)
    world.lane.fails = False
    world.lane.drain()
    world.loading.begin(1, numbers(2))
    world.arrive(1)
    world.loading.begin(0, numbers(1))
    world.arrive(0)
    assert torch.equal(world.bank[0], numbers(1))
