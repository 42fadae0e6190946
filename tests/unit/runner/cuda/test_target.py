"""How far ahead a product reads on GPUs with more and with less memory for it."""

from collections.abc import Iterator

import pytest
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from chairlift.runner.cuda.products.exact import Tile
from chairlift.runner.cuda.start.compiler import DriverStub
from chairlift.runner.cuda.target import shared_memory

TILE = Tile(64, 32, 16, 256, 4, 5)
BYTES = 2


@pytest.fixture
def on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(knobs.runtime, "interpret", False)
    driver.set_active(DriverStub(GPUTarget("cuda", request.param, 32)))
    yield
    driver.set_active(None)


@pytest.mark.parametrize(
    ("on", "num_stages"), [(80, 4), (86, 2), (89, 2), (90, 5), (100, 5), (120, 2)], indirect=["on"]
)
@pytest.mark.usefixtures("on")
def test_a_tile_is_read_as_far_ahead_as_there_is_memory(num_stages: int) -> None:
    assert TILE.num_stages(BYTES) == num_stages
    assert num_stages * (TILE.outputs + TILE.rows) * TILE.stretch * BYTES <= shared_memory()
