"""The bytes that torch would take of a GPU for steps: `python -m fakes.step_footprint SHAPES`.

SHAPES is JSON: a list of [what a config.json says, fields of limits]. For each: the largest step, with what the runner
keeps; the first captured one, and many captured ones in the order of their sizes behind it. Steps are launched without
a GPU, so not in Triton's interpreter: in a process of its own.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget

from chairlift.core.limits import Limits
from chairlift.models.files.hf import load_values
from chairlift.models.spec import ModelConfig
from chairlift.runner.cuda.ops import CudaOps, CudaWeight
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.start import dry_run
from chairlift.runner.cuda.step.graph_key import GraphKey
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.memory import measure
from chairlift.runner.weights.assemble import PLAIN, Assembly
from fakes.allocations import Watched

_CPU = torch.device("cpu")


def _logits(weight: CudaWeight, x: Tensor) -> Tensor:
    """As a GPU's: only there is a product in 16 bits rounded to 32."""
    return x.new_empty(len(x), len(weight.matrix), dtype=torch.float32)


@mock.patch.object(CudaWeight, "logits", _logits)
@torch.inference_mode()
def taken(model: ModelConfig, limits: Limits) -> list[int]:
    ops, watched = CudaOps(), Watched()
    with dry_run._noting(GPUTarget("cuda", 90, 32)), dry_run._ShapesOnly():
        empty, nowhere = dry_run._EmptyWeights(torch.bfloat16), dry_run._NoTransfer(list)
        weights = Assembly(model, ops, empty, torch.bfloat16, _CPU, PLAIN, nowhere)
        kv = KvCache(model, limits.num_blocks, limits.block_size, torch.bfloat16, _CPU)
        decoder = weights.build(limits.max_model_len)
        with watched:
            runner = CudaRunner(decoder, kv, _CPU, limits)
            runner.dry_run(measure.largest_step(limits, measure.largest_count(limits)))
        keys = runner.device._keys
        orders = [keys.largest], [keys.largest, *sorted(keys.likely)[::4]]
        return [watched.memory.taken, *(_captured(runner, order) for order in orders)]


def _captured(runner: CudaRunner, keys: Sequence[GraphKey]) -> int:
    watched = Watched()
    for key in keys:
        with runner.device._memory.padding(key), watched:
            runner.device._forward.run(key, None)
    return watched.memory.taken


def main(shapes: list[list[dict[str, Any]]]) -> None:
    found = [taken(load_values(Path("config.json"), model, Path()), Limits(**limits)) for model, limits in shapes]
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
