"""The tables and slots of groups of layers with a window, as they cross to the device in step inputs."""

import numpy as np
import pytest

from chairlift.core.memory.pages import Kind
from chairlift.core.plan import StepPlan
from chairlift.runner.cuda.step.host import HostPart
from chairlift.runner.cuda.step.input import StepInput
from fakes.worlds.draws import full_world, random_world
from fakes.worlds.world import World


class Device:
    """What step inputs make of the block tables."""

    def __init__(self, num_rows: int, width: int, num_groups: int) -> None:
        self.tables = np.full((1 + num_groups, num_rows + 1, width), -1, np.int32)

    def take(self, step: StepInput) -> None:
        flat = self.tables.reshape(-1, self.tables.shape[2])
        for row, place, block in step.updates.tolist():
            flat[row, place] = block


def check_tables(plan: StepPlan, step: StepInput, device: Device, kind: Kind) -> None:
    """Every page that a chunk reads or writes is where its tokens say."""
    num, size, low = kind.num_pages, kind.block_size, 0
    slots = step.view_slots.reshape(num, -1)
    for chunk in plan.chunks:
        _, pages = chunk.tables
        row = int(step.columns.table_rows[low])
        end = chunk.start + chunk.count
        for group in range(num):
            first, last = kind.num_behind(chunk.start), -(-end // size)
            wanted = list(pages[first * num + group : last * num : num])
            assert device.tables[1 + group, row, first:last].tolist() == wanted
            places = [pages[i // size * num + group] * size + i % size for i in range(chunk.start, end)]
            assert slots[group, low : low + chunk.count].tolist() == places
        assert device.tables[0, row, : chunk.num_blocks].tolist() == list(chunk.blocks[: chunk.num_blocks])
        low += chunk.count


def follow(world: World) -> int:
    """The number of steps compared."""
    limits, num_rows = world.limits, 2 * world.limits.max_running + 15
    (kind,) = limits.pages.kinds
    width = -(-limits.max_model_len // limits.block_size)
    host = HostPart(num_rows, width, limits.block_size, limits.pages.kinds)
    device = Device(num_rows, width, kind.num_pages)
    submit = world.runner.submit
    count = 0

    def watched(plan: StepPlan) -> None:
        nonlocal count
        if plan.chunks:
            step = StepInput.from_bytes(host.input_of(plan).to_bytes())
            device.take(step)
            check_tables(plan, step, device, kind)
            count += 1
        submit(plan)

    world.runner.submit = watched  # type: ignore[method-assign]
    world.run()
    return count


@pytest.mark.nightly
def test_tables_and_slots_are_those_of_the_plan() -> None:
    assert sum(follow(random_world(seed, windows=True)) for seed in range(120)) > 1000


@pytest.mark.nightly
def test_so_they_are_after_steps_that_did_not_fit() -> None:
    """Rolled back plans name tables that are others from there on."""
    assert sum(follow(full_world(seed, windows=True)) for seed in range(60)) > 500
