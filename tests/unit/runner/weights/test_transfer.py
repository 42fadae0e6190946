"""Tensors in pieces over lanes; the device here is host memory that fetches as late as it may."""

import pytest
import torch
from torch import Tensor

from chairlift.runner.weights.transfer import PIECE, Lanes, Launch, Transfer
from fakes.lanes import LateLane


class Elsewhere(Tensor):
    """Host memory that claims another device."""

    @property
    def device(self) -> torch.device:
        return torch.device("meta")


def elsewhere(source: Tensor) -> Tensor:
    return torch.Tensor._make_subclass(Elsewhere, source)


@pytest.mark.parametrize(
    ("num_lanes", "stored", "count"),
    [(1, torch.bfloat16, PIECE // 2 + 1), (3, torch.float32, PIECE // 2 + 1), (1, torch.float32, 5 * PIECE // 2 - 3),
     (3, torch.bfloat16, 7 * PIECE)],
)  # fmt: skip
def test_every_piece_arrives_in_the_targets_type(num_lanes: int, stored: torch.dtype, count: int) -> None:
    made = [LateLane() for _ in range(num_lanes)]
    transfer = Transfer(lambda: Lanes(made))
    source = torch.arange(count, dtype=torch.int32).remainder(251).to(stored).view(1, count)
    around = torch.zeros(3, count, dtype=torch.bfloat16)
    for _ in range(2):
        around.zero_()
        transfer.copy(elsewhere(source), around[1:2])
        assert torch.equal(around[1], source[0].to(torch.bfloat16))
        assert not around[0].any() and not around[2].any()
    transfer.close()
    num_pieces = sum(lane.num_pieces for lane in made)
    assert num_pieces == 2 * -(-source.nbytes // PIECE)


def test_small_or_local_tensors_need_no_lanes() -> None:
    def none() -> Lanes:
        raise AssertionError("lanes were made")

    transfer = Transfer(none)
    target = torch.zeros(PIECE)
    transfer.copy(torch.ones(PIECE), target)
    assert target.all()
    transfer.copy(elsewhere(torch.full((10,), 2.0)), target[:10])
    assert target[:10].eq(2.0).all()
    transfer.close()


def test_an_error_on_a_lane_reaches_the_caller() -> None:
    class Broken(LateLane):
        def send(self, turn: int, launch: Launch) -> None:
            raise RuntimeError("the device is gone")

    transfer = Transfer(lambda: Lanes([Broken(), LateLane()]))
    with pytest.raises(RuntimeError, match="the device is gone"):
        transfer.copy(elsewhere(torch.ones(2 * PIECE)), torch.zeros(2 * PIECE))
    transfer.close()
