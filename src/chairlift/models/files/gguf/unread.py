"""Keys of a GGUF file's architecture that nothing read.

Always: one that changes the arithmetic of some architecture and is not neutral is refused by name; of the others those
that are not known to be harmless are named in one warning, which the model carries.
"""

from typing import Any

from chairlift.config.fields import Fields

_0, _1, _OFF, _ON = (0,), (1,), (False,), (True,)
_NONE = ()  # no value is neutral
# Neutral values; of a list, each item must be neutral.
_ARITHMETIC: dict[str, tuple[Any, ...]] = {
    "attn_logit_softcapping": _0, "final_logit_softcapping": _0, "router_logit_softcapping": _0,
    "attention.clamp_kqv": _0, "attention.max_alibi_bias": _0, "attention.causal": _ON, "attention.scale": _NONE,
    "attention.output_scale": _1, "attention.value_scale": _1, "attention.temperature_scale": _0,
    "attention.shared_kv_layers": _0, "attention.recurrent_layers": _OFF,
    "attention.key_length_swa": _NONE, "attention.value_length_swa": _NONE,
    "attention.q_lora_rank": _0, "attention.kv_lora_rank": _0, "attention.key_length_mla": _NONE,
    "attention.value_length_mla": _NONE, "attention.indexer.top_k": _0,
    "logit_scale": _1, "residual_scale": _1, "embedding_scale": _1, "use_parallel_residual": _OFF,
    "embedding_length_per_layer_input": _0, "embedding_length_out": _NONE, "full_attention_interval": _1,
    "activation_sparsity_scale": _0, "hidden_act": _NONE, "hidden_activation": _NONE,
    "swiglu_clamp_exp": _0, "swiglu_clamp_shexp": _0, "altup.num_inputs": _NONE, "hyper_connection.count": _NONE,
    "expert_count": _0, "expert_used_count": _0, "expert_shared_count": _0, "expert_shared_feed_forward_length": _0,
    "expert_group_count": _1, "expert_weights_norm": _ON, "expert_weights_scale": _1, "moe_every_n_layers": _1,
    "leading_dense_block_count": _0, "interleave_moe_layer_step": _1, "nextn_predict_layers": _0,
    "rope.dimension_count_swa": _NONE, "rope.dimension_sections": _0, "rope.scaling.alpha": _NONE,
    "rope.scaling.yarn_ext_factor": _1, "ssm.conv_kernel": _NONE, "ssm.inner_size": _NONE, "ssm.state_size": _NONE,
    "ssm.time_step_rank": _NONE, "ssm.group_count": _NONE, "ssm.dt_b_c_rms": _OFF, "pooling_type": _0,
}  # fmt: skip
# Sizes that tensors say, what others count, and what follows from other keys.
_HARMLESS = frozenset({
    "vocab_size", "tensor_data_layout", "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_epsilon", "attention.sliding_window",
    "attention.sliding_window_pattern", "expert_feed_forward_length", "expert_gating_func", "expert_group_used_count",
    "feed_forward_length", "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa", "rope.scale_linear",
    "rope.scaling.attn_factor", "rope.scaling.factor", "rope.scaling.finetuned",
    "rope.scaling.original_context_length", "rope.scaling.type", "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier",
})  # fmt: skip


def check_unread(metadata: Fields, architecture: str) -> tuple[str, ...]:
    """Warnings. To be called once everything has been read from it."""
    for key in metadata.unread:
        if key in _ARITHMETIC and not _is_neutral(_ARITHMETIC[key], metadata.values[key]):
            raise metadata.bad(key, f"is not supported in {architecture}")
    unknown = [key for key in metadata.unread if key not in _ARITHMETIC and key not in _HARMLESS]
    if not unknown:
        return ()
    return (f"{metadata.origin}: ignored keys that are not known for {architecture}: {', '.join(unknown)}",)


def _is_neutral(neutral: tuple[Any, ...], value: Any) -> bool:
    return all(each in neutral for each in (value if isinstance(value, list) else [value]))
