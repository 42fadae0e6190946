"""Folders of models without weights, for runs with random ones: the shapes of known models, made-up tokenizers.

    python benchmarks/gpu/make_models.py FOLDER [NAME...]

`chairlift serve FOLDER/NAME --load-format dummy` serves one, and vLLM does with the same option. All take up to 40,960
tokens. Files that are there are replaced. `benchmarks/cpu/make_adapter.py` makes an adapter for any of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

_LONGEST = 40960
_COMMON: dict[str, Any] = {
    "hidden_act": "silu", "max_position_embeddings": _LONGEST, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "attention_bias": False,
}  # fmt: skip


def _shape(hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocab: int, theta: float) -> dict[str, Any]:
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": width, "vocab_size": vocab, "rope_theta": theta,
    }  # fmt: skip


def _gemma4(**keys: Any) -> dict[str, Any]:
    return {
        "model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], "head_dim": 256, "global_head_dim": 512,
        "sliding_window": 512, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "pad_token_id": 0,
        "rms_norm_eps": 1e-6, "hidden_act": None, "rope_theta": None, **keys,
    }  # fmt: skip


MODELS: dict[str, dict[str, Any]] = {
    "llama2-7b": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    | _shape(4096, 32, 32, 32, 11008, 32000, 1e4),
    "llama3-8b": {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    | _shape(4096, 32, 32, 8, 14336, 128256, 5e5),
    "qwen3-8b": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 128}
    | _shape(4096, 36, 32, 8, 12288, 151936, 1e6),
    "phi4": {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "pad_token_id": 0}
    | _shape(5120, 40, 40, 10, 17920, 100352, 2.5e5),
    "gemma3-12b": {
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "head_dim": 256,
        "query_pre_attn_scalar": 256, "sliding_window": 1024, "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "tie_word_embeddings": True, "pad_token_id": 0,
        "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": ["full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(48)],
    }
    | _shape(3840, 48, 16, 8, 15360, 262208, 1e6),
    "gemma4-e4b": _shape(2560, 42, 8, 2, 10240, 262144, 1e6)
    | _gemma4(num_kv_shared_layers=18, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144),
    "gemma4-26b-a4b": _shape(2816, 30, 16, 8, 2112, 262144, 1e6)
    | _gemma4(
        num_kv_shared_layers=0, hidden_size_per_layer_input=0, num_global_key_value_heads=2, attention_k_eq_v=True,
        enable_moe_block=True, num_experts=128, top_k_experts=8, moe_intermediate_size=704,
    ),
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "head_dim": 128, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    | _shape(2048, 48, 32, 4, 6144, 151936, 1e6),
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "head_dim": 64, "num_local_experts": 32,
        "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": 128, "attention_bias": True,
        "swiglu_limit": 7.0, "initial_context_length": 4096,
        "layer_types": ["full_attention" if layer % 2 else "sliding_attention" for layer in range(24)],
        "rope_scaling": {
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
            ],
        },
    }
    | _shape(2880, 24, 64, 8, 2880, 201088, 1.5e5),
}  # fmt: skip


def write_model(parent: Path, name: str) -> Path:
    config = {key: value for key, value in (_COMMON | MODELS[name]).items() if value is not None}
    folder = parent / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    _write_tokenizer(folder, config["vocab_size"])
    return folder


def _write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Bytes, and words that no text has, up to the size."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for character in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab[character] = len(vocab)
    while len(vocab) < vocab_size:
        vocab[f"Ġw{len(vocab):x}"] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "model_max_length": _LONGEST,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(MODELS)} (default: all)")
    args = parser.parse_args()
    if unknown := set(args.names) - set(MODELS):
        parser.error(f"NAME must be one of {', '.join(MODELS)}, got {', '.join(unknown)}")
    for name in args.names or MODELS:
        print(write_model(args.folder, name))


if __name__ == "__main__":
    main()
