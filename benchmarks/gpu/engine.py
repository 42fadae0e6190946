"""Engine and runner on a GPU without what stands around them, for benchmarks: a shape of model, random weights, runs.

Always: greedy, full lengths, no prefix cache; a run's prompts depend on its seed alone.
"""

import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from chairlift.config.fields import Fields
from chairlift.core.engine import Engine
from chairlift.core.events import Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.policy import Policy
from chairlift.core.ports import Runner
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.clock import WallClock
from chairlift.models.families.cohere import COHERE2
from chairlift.models.families.family import Family
from chairlift.models.families.gemma4 import GEMMA4
from chairlift.models.families.olmo import OLMO2
from chairlift.models.families.phi import PHI3
from chairlift.models.families.qwen_hybrid import QWEN3_5, QWEN3_5_MOE
from chairlift.models.kv_groups import kv_groups
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block, sizes_of
from chairlift.runner.model import Decoder
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors

Lengths = list[tuple[int, int]]  # tokens in, tokens out
MakeScheduler = Callable[[Limits, Policy], Scheduler]

DEVICE = torch.device("cuda")
DTYPE = torch.bfloat16
BLOCK_SIZE = 16
MAX_LEN = 4096
_KV_BYTES = 64 << 30
_WARM, _TIMED = 24, 128  # steps
STREAM = (128, _WARM + _TIMED + 16)


def _declared(family: Family, **keys: Any) -> ModelConfig:
    return family.model(Fields(family.architecture, {"max_position_embeddings": MAX_LEN, **keys}))


_HYBRID = {
    "head_dim": 256, "vocab_size": 248320, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}  # fmt: skip
_GEMMA4 = {
    "head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "vocab_size": 262144, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
SHAPES = {
    "llama2-7b": uniform_model(
        architecture="LlamaForCausalLM", hidden_size=4096, num_layers=32, num_heads=32, num_kv_heads=32, head_dim=128,
        intermediate_size=11008, vocab_size=32000, max_model_len=MAX_LEN, rms_norm_eps=1e-5, rope_theta=10000.0,
    ),
    "llama3-8b": uniform_model(
        architecture="LlamaForCausalLM", hidden_size=4096, num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128,
        intermediate_size=14336, vocab_size=128256, max_model_len=MAX_LEN, rms_norm_eps=1e-5, rope_theta=500000.0,
    ),
    "qwen3-8b": uniform_model(
        architecture="Qwen3ForCausalLM", hidden_size=4096, num_layers=36, num_heads=32, num_kv_heads=8, head_dim=128,
        intermediate_size=12288, vocab_size=151936, max_model_len=MAX_LEN, rms_norm_eps=1e-6, rope_theta=1000000.0,
        has_qk_norm=True,
    ),
    "phi4": _declared(
        PHI3, hidden_size=5120, num_hidden_layers=40, num_attention_heads=40, num_key_value_heads=10,
        intermediate_size=17920, vocab_size=100352, rope_theta=250000.0,
    ),
    # Norms over all heads; centred norms and branches in parallel.
    "olmo2-7b": _declared(
        OLMO2, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32,
        intermediate_size=11008, vocab_size=100352, rope_theta=500000.0,
    ),
    "command-r7b": _declared(
        COHERE2, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
        intermediate_size=14336, vocab_size=256000, rope_theta=50000.0,
    ),
    # Three of four layers with states.
    "qwen3.5-0.8b": _declared(
        QWEN3_5, hidden_size=1024, num_hidden_layers=24, num_attention_heads=8, num_key_value_heads=2,
        intermediate_size=3584, linear_num_value_heads=16, tie_word_embeddings=True, **_HYBRID,
    ),
    "qwen3.8-27b": _declared(
        QWEN3_5, hidden_size=5120, num_hidden_layers=64, num_attention_heads=24, num_key_value_heads=4,
        intermediate_size=17408, linear_num_value_heads=48, **_HYBRID,
    ),
    "qwen3.6-35b-a3b": _declared(
        QWEN3_5_MOE, hidden_size=2048, num_hidden_layers=40, num_attention_heads=16, num_key_value_heads=2,
        linear_num_value_heads=32, num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512,
        shared_expert_intermediate_size=512, **_HYBRID,
    ),
    # Heads of 512 numbers in layers without a window; inputs of each token to each layer, and experts beside the MLP.
    "gemma4-e4b": _declared(
        GEMMA4, hidden_size=2560, num_hidden_layers=42, num_attention_heads=8, num_key_value_heads=2,
        intermediate_size=10240, num_kv_shared_layers=18, hidden_size_per_layer_input=256,
        vocab_size_per_layer_input=262144, **_GEMMA4,
    ),
    "gemma4-26b-a4b": _declared(
        GEMMA4, hidden_size=2816, num_hidden_layers=30, num_attention_heads=16, num_key_value_heads=8,
        num_global_key_value_heads=2, attention_k_eq_v=True, intermediate_size=2112, enable_moe_block=True,
        num_experts=128, top_k_experts=8, moe_intermediate_size=704, hidden_size_per_layer_input=0, **_GEMMA4,
    ),
}  # fmt: skip


def plain_scheduler(limits: Limits, policy: Policy) -> Scheduler:
    return Scheduler(limits, policy, has_prefix_index=False)


class GpuEngine:
    """One model and one runner, for as many engines as are asked for, one after the other."""

    def __init__(
        self, config: ModelConfig, max_running: int, max_step_tokens: int, exact: bool = False,
        model: Decoder | None = None, num_tokens: int = 0,
    ) -> None:  # fmt: skip
        """model: None: one of random weights. num_tokens: that the cache holds; 0: as many as fit 64 GiB."""
        has_states = any(mixer.fixed for mixer in config.mixers)
        groups = kv_groups(config, has_states, sizes_of(BLOCK_SIZE, DTYPE, DTYPE))
        fitting = _KV_BYTES // kv_bytes_per_block(config, BLOCK_SIZE, DTYPE, groups)
        self.limits = Limits(
            vocab_size=config.vocab_size, max_model_len=MAX_LEN, block_size=BLOCK_SIZE,
            num_blocks=-(-num_tokens // BLOCK_SIZE) or fitting, max_running=max_running,
            max_step_tokens=max_step_tokens, groups=groups.beside(MAX_LEN),
        )  # fmt: skip
        drawn = DummyTensors(config, DTYPE, DEVICE)
        self.model = model or build_model(config, CudaOps(exact), drawn, DTYPE, DEVICE, MAX_LEN)
        self.kv = KvCache(config, self.limits.num_blocks, BLOCK_SIZE, DTYPE, DEVICE, groups=groups)
        self.runner = CudaRunner(self.model, self.kv, DEVICE, self.limits, exact=exact)

    def engine(
        self, policy: Policy, lengths: Lengths, runner: Runner | None = None, scheduler: MakeScheduler = plain_scheduler
    ) -> Engine:
        """With a request for each of the lengths waiting."""
        engine = Engine(scheduler(self.limits, policy), runner or self.runner, WallClock())
        for request in _requests(lengths, self.limits.vocab_size):
            engine.add((request,))
        return engine


def drain(engine: Engine) -> tuple[float, int, int]:
    """(seconds, steps, tokens) until nothing is left to do."""
    began, num_steps, num_tokens = time.perf_counter(), 0, 0
    while engine.has_work:
        num_tokens += sum(type(event) is Token for event in engine.step())
        num_steps += 1
    torch.cuda.synchronize()
    return time.perf_counter() - began, num_steps, num_tokens


def step_ms(engine: Engine) -> float:
    """The middle of steps of streams (`STREAM`) that decode, all of them captured."""
    took = []
    for _ in range(_WARM + _TIMED):
        began = time.perf_counter()
        engine.step()
        took.append(time.perf_counter() - began)
    drain(engine)
    return 1000 * statistics.median(took[_WARM:])


def lengths_of(workload: Path) -> Lengths:
    """One token is added to each prompt, as a beginning-of-sequence token would be."""
    with workload.open() as file:
        return [(row["prompt_tokens"] + 1, row["output_tokens"]) for row in map(json.loads, file)]


def _requests(lengths: Lengths, vocab_size: int, seed: int = 0) -> list[Request]:
    rng = random.Random(seed)
    requests = []
    for index, (num_in, num_out) in enumerate(lengths):
        prompt = tuple(rng.randrange(16, vocab_size - 16) for _ in range(num_in))
        params = SamplingParams(temperature=0, max_tokens=num_out, ignore_eos=True)
        requests.append(Request(id=RequestId(index + 1), prompt=prompt, params=params, max_output=num_out, seed=0))
    return requests
