"""Keys of a config.json that its family did not read.

Always: a key that changes the arithmetic of some family, was not read and is not neutral is refused by name; all other
keys that were neither read nor are known to be harmless are named in one warning, which the model carries. A model run
with such a key ignored may answer fluently and wrongly.
"""

from typing import Any

from chairlift.config.fields import Fields

_OFF, _ON = (False,), (True,)
_0, _1 = (0,), (1,)
_NULL = ()  # no value but null is neutral
# Neutral values of keys that change what some family computes; of a list, each item must be neutral. Null always is.
ARITHMETIC: dict[str, tuple[Any, ...]] = {
    # Caps
    "attn_logit_softcapping": _0, "final_logit_softcapping": _0, "logit_softcapping": _0, "logits_soft_cap": _0,
    "output_logit_soft_cap": _0, "logit_cap": _0, "attn_logit_cap": _0, "clip_qkv": _NULL, "qkv_clip": _NULL,
    "swiglu_limit": _NULL, "swiglu_alpha": _NULL,
    # Factors of logits, residuals, embeddings and attention
    "logit_scale": _1, "logits_scale": _1, "logits_scaling": _1, "lm_head_multiplier": _1, "output_multiplier": _1,
    "dim_model_base": _NULL, "residual_multiplier": _1, "residual_scale": _1, "residual_scaling": _1,
    "scale_depth": _NULL, "embedding_multiplier": _1, "embedding_scale": _1, "embed_scale": _1, "scale_emb": _1,
    "scale_embedding": _OFF, "normalize_embedding": _OFF, "attention_multiplier": _NULL, "attention_in_multiplier": _1,
    "attention_out_multiplier": _1, "attention_value_scale": _1, "key_multiplier": _1, "mlp_multipliers": _1,
    "attn_scale": _NULL, "attention_scale": _NULL, "softmax_scale": _NULL, "query_pre_attn_scalar": _NULL,
    "attn_temperature_tuning": _OFF, "scale_attn_weights": _ON, "scale_attn_by_inverse_layer_idx": _OFF,
    "mup_enabled": _OFF, "use_mup": _OFF,
    # Norms, biases and activations
    "use_qk_norm": _OFF, "qk_norm": _OFF, "qk_layernorm": _OFF, "use_qk_layernorm": _OFF, "use_post_norm": _OFF,
    "post_norm": _OFF, "do_layer_norm_before": _ON, "norm_after": _OFF,
    "attention_bias": _OFF, "attention_out_bias": _OFF, "attention_qkv_bias": _OFF, "qkv_bias": _OFF,
    "use_qkv_bias": _OFF, "add_qkv_bias": _OFF, "mlp_bias": _OFF, "use_bias": _OFF, "bias": _OFF,
    "add_bias_linear": _OFF, "enable_bias": _OFF, "lm_head_bias": _OFF, "norm_bias": _OFF, "no_bias": _ON,
    "hidden_act": _NULL, "hidden_activation": _NULL, "activation_function": _NULL,
    # Branches in parallel, layers that share or add something
    "parallel_attn": _OFF, "parallel_residual": _OFF, "use_parallel_residual": _OFF, "parallel_block": _OFF,
    "num_kv_shared_layers": _0, "hidden_size_per_layer_input": _0, "attention_k_eq_v": _OFF,
    "use_double_wide_mlp": _OFF, "add_cross_attention": _OFF, "is_encoder_decoder": _OFF,
    # Positions
    "partial_rotary_factor": _1, "rotary_pct": _1, "rope_pct": _1, "rotary_percent": _1, "rotary_emb_fraction": _1,
    "rotary_dim": _NULL, "rope_interleaved": _OFF, "rope_interleave": _OFF, "rotary_emb_interleaved": _OFF,
    "rope_theta": _NULL, "rope_parameters": _NULL, "rope_scaling": _NULL, "rope_local_base_freq": _NULL,
    "no_rope_layers": _1, "no_rope_layer_interval": _0, "use_rope": _ON, "use_mrope": _OFF, "mrope_section": _NULL,
    "alibi": _OFF, "use_alibi": _OFF,
    # Which positions are seen
    "sliding_window": _NULL, "sliding_window_size": _NULL, "sliding_window_pattern": _NULL,
    "_sliding_window_pattern": _NULL, "use_sliding_window": _OFF, "attention_window_size": _NULL,
    "window_size": _NULL, "attention_chunk_size": _NULL, "layer_types": ("full_attention",),
    "global_attn_every_n_layers": _1, "use_bidirectional_attention": _OFF, "is_causal": _ON, "prefix_lm": _OFF,
    "attention_sink": _OFF, "add_swa_attention_sink_bias": _OFF, "add_full_attention_sink_bias": _OFF,
    # Keys and values of another size, experts, recurrent layers
    "global_head_dim": _NULL, "num_global_key_value_heads": _NULL, "per_layer_config": _NULL, "top_k_experts": _0,
    "kv_lora_rank": _NULL, "q_lora_rank": _NULL, "qk_rope_head_dim": _NULL, "qk_nope_head_dim": _NULL,
    "v_head_dim": _NULL, "num_experts": _0, "num_local_experts": _0, "n_routed_experts": _0, "n_shared_experts": _0,
    "num_shared_experts": _0, "moe_num_experts": _0, "num_experts_per_tok": _0, "num_experts_per_token": _0,
    "moe_topk": _0, "moe_intermediate_size": _0, "enable_moe_block": _OFF, "is_moe": _OFF, "ssm_state_size": _NULL,
    "mamba_d_state": _NULL, "conv_kernel": _NULL, "compression_config": _NULL,
}  # fmt: skip
# What training, other outputs, sampling and other programs are told.
_HARMLESS = frozenset({
    "_name_or_path", "_commit_hash", "transformers_version", "transformers.js_config", "auto_map", "custom_pipelines",
    "tokenizer_class", "processor_class", "task_specific_params", "finetuning_task", "problem_type", "id2label",
    "label2id", "num_labels", "prefix", "is_llama_config", "unsloth_fixed", "unsloth_version",
    "dropout", "initializer_range", "initializer_factor", "init_std", "gradient_checkpointing", "pretraining_tp",
    "router_aux_loss_coef", "output_router_logits", "router_jitter_noise", "pruned_heads", "tf_legacy_loss",
    "use_cache", "cache_implementation", "return_dict", "return_dict_in_generate", "output_attentions",
    "output_hidden_states", "output_scores", "chunk_size_feed_forward", "torchscript", "use_bfloat16", "use_flash_attn",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "is_decoder", "tie_encoder_decoder",
    "cross_attention_hidden_size", "num_logits_to_keep", "num_nextn_predict_layers",
    "max_window_layers",  # counts where use_sliding_window is true, which is refused
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
})  # fmt: skip
_HARMLESS_ENDINGS = ("_token_id", "_dropout", "_dropout_prob", "_pdrop")


def check_unread(config: Fields, architecture: str) -> tuple[str, ...]:
    """Warnings. To be called once everything has been read from it."""
    unread = config.unread
    for key in unread:
        if key in ARITHMETIC and not _is_neutral(config, key):
            raise config.bad(key, f"is not supported in {architecture}")
    unknown = [key for key in unread if key not in ARITHMETIC and not _is_harmless(key)]
    if not unknown:
        return ()
    return (f"{config.origin}: ignored keys that are not known for {architecture}: {', '.join(unknown)}",)


def _is_neutral(config: Fields, key: str) -> bool:
    if key == "sliding_window" and config.values.get("use_sliding_window") is False:
        return True
    value = config.values[key]
    return all(_is_one_of(ARITHMETIC[key], each) for each in (value if isinstance(value, list) else [value]))


def _is_one_of(neutral: tuple[Any, ...], value: Any) -> bool:
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in neutral)


def _is_harmless(key: str) -> bool:
    return key in _HARMLESS or key.endswith(_HARMLESS_ENDINGS)
