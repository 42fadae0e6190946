"""Ranks on GPUs without a GPU: the other rank gets bytes alone, and its device holds what the first one's does."""

import os
from typing import Any

import msgspec
import pytest
import torch
import triton

from chairlift.core.memory.preemption import Preemption
from chairlift.core.ports import DeviceLost
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.step.device import DevicePart
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.ranks.cuda import CudaPart
from chairlift.runner.ranks.orders import Capture, Finish, Launch, Order, Orders
from unit.runner.cuda import test_structured as structured
from unit.runner.cuda.test_runner import CONFIG, CPU, GROUPS, LIMITS, Pairs, run

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu"),
]
HOST_BLOCKS = 40


class OtherRank:
    """A pipe at whose other end a rank carries orders out at once."""

    def __init__(self) -> None:
        self.kv = KvCache(CONFIG, LIMITS.num_blocks, LIMITS.block_size, torch.float32, CPU, HOST_BLOCKS)
        self.device = DevicePart(Pairs(), self.kv, CPU, LIMITS)  # type: ignore[arg-type]
        self.orders: list[Order] = []
        self._part = CudaPart(self.device)

    @torch.inference_mode()
    def send_bytes(self, data: bytes) -> None:
        self.orders.append(msgspec.msgpack.decode(data, type=Order))
        self._part.carry_out(self.orders[-1])


class RankedRunner(CudaRunner):
    """The first of two ranks."""

    made: "list[RankedRunner]" = []  # noqa: RUF012

    def __init__(self, model: Any, kv: KvCache, device: torch.device, matchers: Any = None) -> None:
        self.other, self.kv = OtherRank(), kv
        super().__init__(model, kv, device, LIMITS, matchers=matchers, orders=Orders([self.other]))  # type: ignore[list-item]
        self.made.append(self)


@pytest.mark.nightly
@pytest.mark.parametrize(("groups", "shapes"), [(GROUPS, None), (structured.GROUPS, structured.matchers)])
def test_another_rank_chooses_the_same_tokens_and_keeps_the_same_cache(groups: Any, shapes: Any) -> None:
    swap = Preemption(mode="swap", num_host_blocks=HOST_BLOCKS)
    want, _ = run(CudaRunner, groups, swap, shapes and shapes())
    got, kinds = run(RankedRunner, groups, swap, shapes and shapes())
    assert kinds["swap"] and kinds["Forked"]
    assert got == want
    first, other = RankedRunner.made[-1], RankedRunner.made[-1].other
    assert torch.equal(other.kv.tokens, first.kv.tokens)
    assert torch.equal(other.device._memory.last, first.device._part._memory.last)  # type: ignore[union-attr]
    assert {Launch, Finish} == {type(order) for order in other.orders}
    assert any(order.masks for order in other.orders if isinstance(order, Finish)) == (shapes is not None)


def test_likely_steps_are_captured_by_all() -> None:
    kv = KvCache(CONFIG, LIMITS.num_blocks, LIMITS.block_size, torch.float32, CPU)
    runner = RankedRunner(Pairs(), kv, CPU)
    assert not runner.prepare()  # nothing is captured here
    assert runner.other.orders == [Capture()]


@pytest.mark.parametrize("error", [RuntimeError("NCCL"), torch.OutOfMemoryError("full"), triton.TritonError("no")])
def test_a_step_that_fails_on_one_rank_ends_the_engine(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Pairs, "logits", fail)
    monkeypatch.setattr(OtherRank, "send_bytes", lambda *_: None)
    with pytest.raises(DeviceLost, match=f"a step failed on some ranks: {error}"):
        run(RankedRunner, GROUPS, Preemption())
