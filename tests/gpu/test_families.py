"""Every declared family on a real GPU: captured steps give the tokens of torch's operations, and `exact` holds."""

from dataclasses import replace

import pytest
import torch

from chairlift.core.memory.preemption import Preemption
from chairlift.models.families.gemma4 import GEMMA4
from chairlift.models.spec import ModelConfig
from fakes.family_configs import CONFIGS, GEMMA4_LAYERS, read
from fakes.requests import make_samples
from gpu import test_cuda_runner as runners
from gpu import test_exact as exact

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


# Others run on torch's operations: test_hybrids.py, test_torch_runner_cuda.py.
ATTENDING = [name for name, config in CONFIGS.items() if len(config.attentions) == len(config.mixers)]


# Heads as wide as Gemma 4's files have them.
WIDE = {"head_dim": 256, "global_head_dim": 512, "hidden_size": 512, "num_hidden_layers": 4, "sliding_window": 64}
WIDE |= {"layer_types": GEMMA4_LAYERS, "num_attention_heads": 8, "num_key_value_heads": 2}
WIDE_HEADS = {
    "wide-shared": read(GEMMA4, **WIDE, hidden_size_per_layer_input=16, num_kv_shared_layers=2),
    "wide-keys-as-values": read(
        GEMMA4, **WIDE, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1
    ),
}


def widened(name: str, vocab_size: int, max_len: int) -> ModelConfig:
    return replace((CONFIGS | WIDE_HEADS)[name], vocab_size=vocab_size, max_model_len=max_len)


@pytest.mark.parametrize("name", ATTENDING)
def test_a_crowd_gets_the_tokens_that_torch_gives(name: str) -> None:
    config = widened(name, runners.LIMITS.vocab_size, runners.LIMITS.max_model_len)
    got, want = (
        runners.run(runners.make(kernels, config, torch.float32), runners.crowd()) for kernels in ("triton", "torch")
    )
    assert got.num_preempted > 0
    assert got.tokens == want.tokens


@pytest.mark.parametrize("name", [*ATTENDING, *WIDE_HEADS])
def test_no_bit_depends_on_what_shares_a_step(name: str) -> None:
    config = widened(name, 301, exact.LIMITS.max_model_len)
    model = exact.build(config, exact=True)
    groups = [
        make_samples(10 * i, [(7 * i * place) % 301 for place in range(length)], 1 + i % 2, 12, temperature=0.0)
        for i, length in enumerate((5, 30, 150, 600, 64, 1, 300, 90, 200, 17, 400, 33))
    ]
    one = exact.run(model, groups, exact.Way(replace(exact.LIMITS, max_running=3, max_step_tokens=500)))
    other = exact.run(model, groups, exact.Way(replace(exact.LIMITS, num_blocks=160), Preemption(), shuffle=3))
    assert exact.differing(one, other) == 0
