"""What the CUDA runner shows of its logits is what torch's runner shows, padded or not, whatever is asked of them."""

from typing import Any

import numpy as np
import pytest
import torch

from chairlift.core.engine import Engine
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.step.graph_key import GraphKeys
from chairlift.runner.hooks import LogitsRecorder, ShowsLogits
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.runner import TorchRunner
from fakes.clocks import CountingClock
from unit.runner.cuda.test_runner import CPU, GROUPS, LIMITS, Pairs

SWAP = Preemption(mode="swap", num_host_blocks=20)


def rows_of(kind: Any) -> dict[tuple[int, int], np.ndarray]:
    kv = KvCache(Pairs().config, LIMITS.num_blocks, LIMITS.block_size, torch.float32, CPU, SWAP.num_host_blocks)
    runner = kind(Pairs(), kv, CPU, *[LIMITS][: kind is CudaRunner])
    assert isinstance(runner, ShowsLogits)
    wanted = {request.id for group in GROUPS for request in group}
    seen = runner.on_logits = LogitsRecorder(lambda request, _: request in wanted)
    engine = Engine(Scheduler(LIMITS, Fcfs(), preemption=SWAP), runner, CountingClock())
    for group in GROUPS:
        engine.add(group)
    while engine.has_work:
        engine.step()
    return {(found.request, found.position): found.row for found in seen.take()}


@pytest.mark.nightly
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("is_padded", [True, False])
def test_both_runners_show_the_same_rows(monkeypatch: pytest.MonkeyPatch, is_padded: bool) -> None:
    if not is_padded:
        monkeypatch.setattr(GraphKeys, "of", lambda *_: None)
    expected, found = rows_of(TorchRunner), rows_of(CudaRunner)
    assert expected.keys() <= found.keys()  # a step that is in flight when its request ends is shown too
    assert len(expected) > 50
    for place, row in expected.items():
        np.testing.assert_array_equal(found[place], row)
