"""A tiny random Llama, or hybrid, as a Hugging Face folder: real files, real weights, no sense.

Its context is long and its memory per token small, so that a request may run for as long as a test needs it to.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors.numpy import save_file

from chairlift.models.source import locate
from chairlift.text.find import load_tokenizer
from fakes.small_tokenizer import BOS, EOS, TEMPLATE, trained

HIDDEN, MLP, LAYERS, HEADS, KV_HEADS, HEAD_DIM, CONTEXT = 64, 96, 2, 4, 2, 16, 100_000
DELTA_DIM, TAPS = 16, 4  # of the hybrid's delta nets


def write_tiny_model(folder: Path, core: tokenizers.Tokenizer | None = None, **config: Any) -> Path:
    """`core`: a tokenizer of its own; `config` replaces entries of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    core = core or trained()
    vocab_size = core.get_vocab_size()
    core.save(str(folder / "tokenizer.json"))
    facts = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": vocab_size,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": core.token_to_id(BOS),
        "eos_token_id": core.token_to_id(EOS),
    } | config
    (folder / "config.json").write_text(json.dumps(facts))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": BOS, "eos_token": EOS, "chat_template": TEMPLATE, "add_bos_token": False})
    )
    weights = _hybrid_weights if facts["model_type"] == "qwen3_5_text" else _weights
    save_file(weights(vocab_size), str(folder / "model.safetensors"), {"format": "pt"})
    return folder


def write_tiny_hybrid(folder: Path) -> Path:
    """Layers as Qwen3.5-0.8B has them, once through: three gated delta nets with as many keys as values, and attention
    with a gate."""
    return write_tiny_model(
        folder, architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text", num_hidden_layers=4,
        linear_num_key_heads=KV_HEADS, linear_num_value_heads=KV_HEADS, linear_key_head_dim=DELTA_DIM,
        linear_value_head_dim=DELTA_DIM, tie_word_embeddings=True, hidden_act="silu",
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
    )  # fmt: skip


def write_wide_model(folder: Path) -> Path:
    """One with the embedded model's vocabulary and chat template."""
    tokenizer = load_tokenizer(locate(None))
    return write_tiny_model(folder, tokenizer._core)


def write_reranker(folder: Path) -> Path:
    """One whose logits of "yes" and "no" are scores, with --task rerank."""
    core = tokenizers.Tokenizer.from_str(trained().to_str())
    core.add_tokens(["yes", "no"])
    return write_tiny_model(folder, core)


def _weights(vocab_size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    shapes = {"model.embed_tokens.weight": (vocab_size, HIDDEN), "lm_head.weight": (vocab_size, HIDDEN)}
    for i in range(LAYERS):
        shapes |= {
            f"model.layers.{i}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"model.layers.{i}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"model.layers.{i}.mlp.gate_proj.weight": (MLP, HIDDEN),
            f"model.layers.{i}.mlp.up_proj.weight": (MLP, HIDDEN),
            f"model.layers.{i}.mlp.down_proj.weight": (HIDDEN, MLP),
        }
    # Large enough that the context decides the next token, not the last token alone.
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    norms = [
        f"model.layers.{i}.{name}.weight"
        for i in range(LAYERS)
        for name in ("input_layernorm", "post_attention_layernorm")
    ]
    return weights | {name: np.ones(HIDDEN, np.float32) for name in (*norms, "model.norm.weight")}


def _hybrid_weights(vocab_size: int) -> dict[str, np.ndarray]:
    rng, outputs, channels = np.random.default_rng(7), KV_HEADS * DELTA_DIM, 3 * KV_HEADS * DELTA_DIM
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab_size, HIDDEN)}
    weights = {"model.norm.weight": np.zeros(HIDDEN, np.float32)}  # to which 1 is added
    for i in range(4):
        at = f"model.layers.{i}."
        own = {
            "linear_attn.in_proj_qkv.weight": (channels, HIDDEN), "linear_attn.in_proj_z.weight": (outputs, HIDDEN),
            "linear_attn.in_proj_b.weight": (KV_HEADS, HIDDEN), "linear_attn.in_proj_a.weight": (KV_HEADS, HIDDEN),
            "linear_attn.out_proj.weight": (HIDDEN, outputs), "linear_attn.conv1d.weight": (channels, 1, TAPS),
        }  # fmt: skip
        if i == 3:
            own = {
                "self_attn.q_proj.weight": (2 * HEADS * HEAD_DIM, HIDDEN),  # and the gates
                "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            }
        mlp = {"gate_proj": (MLP, HIDDEN), "up_proj": (MLP, HIDDEN), "down_proj": (HIDDEN, MLP)}
        own |= {f"mlp.{name}.weight": shape for name, shape in mlp.items()}
        shapes |= {at + name: shape for name, shape in own.items()}
        norms = {"input_layernorm": HIDDEN, "post_attention_layernorm": HIDDEN}
        norms |= {"self_attn.q_norm": HEAD_DIM, "self_attn.k_norm": HEAD_DIM} if i == 3 else {}
        weights |= {f"{at}{name}.weight": np.zeros(size, np.float32) for name, size in norms.items()}
        if i < 3:  # a state remembers for tens of tokens to hundreds
            weights |= {
                f"{at}linear_attn.norm.weight": np.ones(DELTA_DIM, np.float32),
                f"{at}linear_attn.A_log": rng.uniform(-3, 0, KV_HEADS).astype(np.float32),
                f"{at}linear_attn.dt_bias": rng.normal(-2, 0.5, KV_HEADS).astype(np.float32),
            }
    return weights | {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
