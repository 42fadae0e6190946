"""Tiny random models of transformers, most of families that we do not declare, saved as folders."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from chairlift.config.model_words import TRANSFORMERS
from chairlift.models.files.hf import load_hf
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.runner.fallback.describe import describe
from chairlift.runner.fallback.load import load_fallback
from chairlift.runner.fallback.model import TransformersModel
from chairlift.runner.ops import PagedOps
from chairlift.runner.torch.ops import TorchOps
from unit.runner.twins import CPU, SHAPE

_GPT2: dict[str, Any] = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_inner": 56}
_MOE: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
_WINDOWS: dict[str, Any] = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"]}
_MLA: dict[str, Any] = {
    "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12,
    "head_dim": 8, "num_key_value_heads": 4, "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 1,
    "n_group": 2, "topk_group": 1, **_MOE,
}  # fmt: skip
LONGROPE = {
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5, 2.0, 2.5],
        "long_factor": [1.0, 3.0, 6.0, 9.0],
    },
    "original_max_position_embeddings": 64,
}  # fmt: skip
# By model_type: what differs from SHAPE, or all of it where the keys have other names.
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": _GPT2,  # learned positions, a bias everywhere
    "gpt_bigcode": _GPT2 | {"multi_query": True},  # one head of keys
    "gpt_neox": {"rotary_pct": 0.25},
    "opt": {"ffn_dim": 56, "word_embed_proj_dim": 24, "pad_token_id": 0},
    "phi": {"partial_rotary_factor": 0.5},
    "gemma": {"head_dim": 16},
    "olmo": {"clip_qkv": 2.0},
    "cohere": {"logit_scale": 0.3},
    "persimmon": {},
    "ctrl": _GPT2 | {"dff": 56},
    "nanochat": {},
    "arcee": {},
    "helium": {"head_dim": 8},
    "ernie4_5": {"head_dim": 16},
    "apertus": {},
    "olmoe": _MOE | {"num_experts": 8},
    "qwen2_moe": _MOE | {"num_experts": 8, "shared_expert_intermediate_size": 24, "decoder_sparse_step": 1},
    "granitemoe": _MOE | {"num_local_experts": 4, "attention_multiplier": 0.2, "logits_scaling": 3.0},
    "minimax_m2": _MOE | {"num_local_experts": 8, "head_dim": 8},
    "deepseek_v3": _MLA,  # keys wider than values
    "deepseek_v2": _MLA | {"topk_method": "greedy"},
    "gpt_oss": _MOE | _WINDOWS | {"num_local_experts": 4, "head_dim": 16},  # sinks
    "modernbert-decoder": {"layer_types": _WINDOWS["layer_types"], "local_attention": 18, "pad_token_id": 0},
    "gemma4_text": _WINDOWS | {
        "num_kv_shared_layers": 0, "head_dim": 16, "global_head_dim": 32, "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 97,
    },  # heads that differ by layer
    "vaultgemma": _WINDOWS | {"head_dim": 16, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    "diffllama": {},  # attends twice a layer
    "hrm_text": {"head_dim": 8},  # walks its layers several times
    # Declared ones, forced, or soon to be.
    "smollm3": {"pad_token_id": 0},
    "starcoder2": {},
    "cohere2": _WINDOWS,
    "olmo3": _WINDOWS,
    "glm4_moe": _MOE | {"n_routed_experts": 8, "head_dim": 8},
    "llama": {},
    "mistral": {"sliding_window": 9},
    "qwen3": {"head_dim": 16},
    "gemma2": _WINDOWS | {
        "head_dim": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
    },
    "phi3": {"pad_token_id": 0},
}  # fmt: skip


@dataclass
class FallbackTwin:
    folder: Path
    reference: Any
    config: ModelConfig

    def model(self, dtype: torch.dtype = torch.float32, ops: PagedOps | None = None) -> TransformersModel:
        source, longest = Source("folder", self.folder, "twin"), self.config.max_model_len
        config = describe(self.config, is_padded=False)
        return load_fallback(config, source, ops or TorchOps(), dtype, CPU, longest, has_weights=True)

    def reference_logits(self, tokens: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.reference(torch.tensor([tokens])).logits[0]


def make_twin(folder: Path, family: str, **changes: Any) -> FallbackTwin:
    torch.manual_seed(7)
    own = FAMILIES[family]
    shape = {} if "n_embd" in own else SHAPE
    config = transformers.AutoConfig.for_model(family, **{**shape, **own, **changes})
    config._attn_implementation = "eager"  # others may leave a cap out
    reference = transformers.AutoModelForCausalLM.from_config(config).eval()
    # Weights of the usual start are so small that every mistake in attention drowns; these make it matter.
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.25 + (1.0 if parameter.dim() == 1 else 0.0))
    reference.save_pretrained(folder)
    return FallbackTwin(folder, reference, load_hf(folder, TRANSFORMERS))
