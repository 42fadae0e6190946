"""What torch computes of a captured step is as many operations whatever its tokens: none walks them."""

import json
import os
import subprocess
import sys

import pytest

# A dry run, whose kernels are noted and not launched: without Triton's interpreter.
COUNT = """
import json, sys
from collections import Counter
from unittest.mock import patch
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from chairlift.core.limits import Limits
from chairlift.models.kv_groups import kv_groups
from chairlift.runner import kernels
from chairlift.runner.cuda.start import dry_run
from chairlift.runner.kv_cache import KvCache, sizes_of
from chairlift.runner.model import Decoder
from chairlift.runner.start.synthetic_steps import GREEDY, synthetic_step
from chairlift.runner.weights.assemble import Assembly, WeightFormat
from fakes.family_configs import CONFIGS

BF16, CPU, HIDDEN = torch.bfloat16, torch.device("cpu"), Decoder.hidden

class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found[str(function)] += 1
        return function(*args, **(kwargs or {}))

def hidden(*args, **options):
    with Counting():
        return HIDDEN(*args, **options)

def operations(config):
    # By name, of a short prompt and a long one, of decodes and more.
    global found
    groups = kv_groups(config, sizes=sizes_of(16, BF16, BF16))
    limits = Limits(
        vocab_size=config.vocab_size, max_model_len=400, block_size=16, num_blocks=40, max_running=64,
        max_step_tokens=400, groups=groups.declared,
    )
    ops, empty = kernels.make_ops("triton", 1), dry_run._EmptyWeights(BF16)
    weights = Assembly(config, ops, empty, BF16, CPU, WeightFormat(), dry_run._NoTransfer(None)).build(400)
    for spans in [(0, 200)], [(0, 380)], [(0, 1)] * 33, [(0, 1)] * 60:
        found = Counter()
        runner = kernels.make_runner("triton", weights, KvCache(config, 40, 16, BF16, CPU, groups=groups), CPU, limits)
        with patch.object(Decoder, "hidden", hidden):
            runner.dry_run(synthetic_step(spans, limits, sum(count == 1 for _, count in spans), GREEDY))
        yield found

with torch.inference_mode(), dry_run._noting(GPUTarget("cuda", 90, 32)), dry_run._ShapesOnly():
    json.dump({family: list(operations(CONFIGS[family])) for family in sys.argv[1:]}, sys.stdout)
"""
FAMILIES = ("llama", "gemma2", "gemma4-shared", "gemma4-moe", "qwen3.5-moe", "gpt-oss")


@pytest.mark.slow
def test_a_longer_step_takes_the_same_operations_of_torch() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", COUNT, *FAMILIES], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert tuple(found) == FAMILIES
    for prompt, longer, decodes, more in found.values():
        assert prompt and prompt == longer
        assert decodes and decodes == more
