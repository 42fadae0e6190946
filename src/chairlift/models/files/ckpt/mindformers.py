"""A MindFormers model file (YAML or JSON), as the config.json it would be.

Always: what changes the arithmetic and has no counterpart here is refused by its key in the file. Keys that are neither
read nor known to be harmless stay as they are, for `unread.py` to judge.

    model: {model_config: {type: LlamaConfig, num_layers: 32, ...}}      or model_config alone, or its keys alone
"""

import math
from pathlib import Path
from typing import Any

from chairlift.config.fields import MAX_LAYERS, Fields, shown
from chairlift.config.mindformers import model_section, read_document
from chairlift.config.model_words import DTYPES
from chairlift.core.errors import InvalidConfig
from chairlift.models.families.rope import rotation_at

_READ = frozenset({
    "type", "model_type", "hidden_size", "num_layers", "num_heads", "n_kv_heads", "head_dim", "intermediate_size",
    "multiple_of", "ffn_dim_multiplier", "vocab_size", "rms_norm_eps", "theta", "max_position_embedding",
    "seq_length", "extend_method", "scaling_factor", "param_init_type", "qkv_has_bias", "tie_word_embeddings",
    "bos_token_id", "eos_token_id", "moe_config", "quant", "quant_config", "attn_proj_has_bias",
})  # fmt: skip
# How MindFormers computes, trains and samples, which is decided here by other options.
_HARMLESS = frozenset({
    "batch_size", "compute_dtype", "layernorm_compute_type", "softmax_compute_type", "rotary_dtype",
    "embedding_init_type", "residual_dtype", "qkv_concat", "ffn_concat", "parallel_config", "parallel_optimizer",
    "use_past", "use_past_shard", "pretrain_seqlen", "compute_in_2d", "is_dynamic", "use_kvcache_op",
    "is_flexible_shape", "use_rope_slice", "use_flash_attention", "use_paged_attention", "use_prompt_flash_attention",
    "use_incre_flash_attention", "use_attn_mask_compression", "use_ring_attention", "fine_grain_interleave",
    "pp_interleave_num", "offset", "checkpoint_name_or_path", "max_decode_length", "max_new_tokens", "block_size",
    "num_blocks", "fused_rms_norm", "rl_config", "auto_map", "return_hidden_states", "init_method_std", "run_mode",
    "llm_backend", "input_sliced_sig", "calculate_per_token_loss", "chunk_prefill", "enable_emb_opt",
})  # fmt: skip


def as_config_json(path: Path) -> dict[str, Any]:
    """The keys and values of a config.json that says the same."""
    section = model_section(read_document(path))
    if section is None:
        raise InvalidConfig(f"{path}: has no model_config with num_layers, as a MindFormers model file has")
    if strange := [key for key in section if not isinstance(key, str)]:
        raise InvalidConfig(f"{path}: the keys of model_config must be text, got {shown(strange[0])}")
    given = Fields(str(path), section)
    _refuse_others(given)
    heads = given.size("num_heads", 32)
    architecture, model_type = ("Qwen2ForCausalLM", "qwen2") if given.flag("qkv_has_bias", False) else (
        "LlamaForCausalLM", "llama"
    )  # fmt: skip
    seq_length = given.size("seq_length", 2048)
    own = {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": given.size("hidden_size", 4096),
        "intermediate_size": _intermediate_size(given),
        "num_hidden_layers": given.size("num_layers", most=MAX_LAYERS),
        "num_attention_heads": heads,
        "num_key_value_heads": given.size("n_kv_heads", heads),
        "vocab_size": given.size("vocab_size", 32000),
        "max_position_embeddings": max(seq_length, given.size("max_position_embedding", seq_length)),
        "rms_norm_eps": given.positive("rms_norm_eps", 1e-5),
        **_rotation(given),
        **({"head_dim": given.size("head_dim")} if given.get("head_dim") is not None else {}),
        "tie_word_embeddings": given.flag("tie_word_embeddings", False),
        "torch_dtype": given.get("param_init_type") or "float16",
        "bos_token_id": given.get("bos_token_id", 1),
        "eos_token_id": given.get("eos_token_id", 2),
    }
    _check(given, own)
    others = {key: value for key, value in section.items() if key not in _READ | _HARMLESS}
    return others | own


def _check(given: Fields, own: dict[str, Any]) -> None:
    """Refuses by the file's keys what would be refused by those of a config.json, and those where they differ."""
    heads = own["num_attention_heads"]
    if heads % own["num_key_value_heads"]:
        raise given.bad("n_kv_heads", f"must divide num_heads {heads}")
    if "head_dim" not in own and own["hidden_size"] % heads:
        raise given.bad("hidden_size", f"must be a multiple of num_heads {heads}")
    if own["torch_dtype"] not in DTYPES:
        raise given.bad("param_init_type", f"must be one of {', '.join(DTYPES)}")
    for key, value in own.items():
        if key not in _READ and given.get(key) not in (None, value):
            raise given.bad(key, f"is a key of config.json, and MindFormers' own keys make it {shown(value)}")


def _refuse_others(given: Fields) -> None:
    """What is no Llama, has experts or is quantised."""
    if given.get("type") not in (None, "LlamaConfig"):
        raise given.bad("type", "must be LlamaConfig, which MindFormers uses for Llama, Mistral and Qwen 2")
    experts = given.get("moe_config")
    if isinstance(experts, dict) and experts.get("expert_num", 1) not in (None, 0, 1):
        raise given.bad("moe_config", "with experts is not supported")
    for key in ("quant", "quant_config", "attn_proj_has_bias"):
        if given.get(key):
            raise given.bad(key, "is not supported")


def _intermediate_size(given: Fields) -> int:
    """As MindFormers rounds it, where the file gives a multiple and perhaps a factor."""
    if given.get("intermediate_size") is not None:
        return given.size("intermediate_size")
    width = 4 * given.size("hidden_size", 4096)
    if given.get("ffn_dim_multiplier") is not None:
        width = int((given.positive("ffn_dim_multiplier") + 0.01) * width)
    multiple = given.size("multiple_of", 256)
    return multiple * math.ceil(int(2 * width / 3) / multiple)


def _rotation(given: Fields) -> dict[str, Any]:
    theta, method = given.positive("theta", 10000.0), given.get("extend_method") or "None"
    if method == "None":
        return {"rope_theta": theta}
    if method == "NTK":
        return {"rope_theta": theta * given.positive("scaling_factor", 1.0)}
    if method == "PI":
        return {
            "rope_theta": theta,
            "rope_scaling": {"rope_type": "linear", "factor": given.number("scaling_factor", least=1.0)},
        }
    factors = given.get("scaling_factor")
    if method not in ("LINEAR", "LLAMA3"):
        raise given.bad("extend_method", "must be None, NTK, PI, LINEAR or LLAMA3")
    if not isinstance(factors, dict):
        raise given.bad("scaling_factor", f"must be a map with extend_method {method}")
    scaling = {**factors, "rope_type": method.lower()}
    rotation_at(Fields(given.origin, {"scaling_factor": scaling}), "scaling_factor", theta)  # for its refusals alone
    return {"rope_theta": theta, "rope_scaling": scaling}
