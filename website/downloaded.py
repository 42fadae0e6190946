"""The most downloaded text models of the Hugging Face hub, and what reading their config.json makes of them.

Always: the state of each is what `load_values` says of these keys, so it changes when a family or a format is added.
Shapes are those of a public catalogue or of the models' own pages; keys are written here as such files have them.
"""

import re
from pathlib import Path
from typing import Any

from chairlift.config.model_words import AUTO
from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import MXFP4, load_values
from chairlift.models.spec import ModelConfig
from tables import table

Values = dict[str, Any]
_PLACE = Path("config.json")
_CLAUSE = re.compile("[,;]")  # what ends the first of a message
_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "kv_cache_scheme": {"num_bits": 8}}


def _text(kind: str, name: str, shape: tuple[int, ...], **more: Any) -> Values:
    """shape: layers, width, feed-forward, heads, those of keys, vocabulary."""
    keys = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
            "vocab_size")  # fmt: skip
    own = {"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "hidden_act": "silu", "torch_dtype": "bfloat16"}
    given = {key: size for key, size in zip(keys, shape, strict=True) if size}
    return {"architectures": [name], "model_type": kind} | own | given | more


def _wrapped(name: str, text: Values, **more: Any) -> Values:
    inner = {key: value for key, value in text.items() if key != "architectures"}
    return {"architectures": [name], "text_config": inner, "vision_config": {"depth": 24}} | more


def _qwen2(*shape: int, **more: Any) -> Values:
    return _text("qwen2", "Qwen2ForCausalLM", shape, rope_theta=1e6, use_sliding_window=False, **more)


def _qwen3(*shape: int, **more: Any) -> Values:
    return _text("qwen3", "Qwen3ForCausalLM", shape, rope_theta=1e6, head_dim=128, attention_bias=False, **more)


def _qwen3_vl(*shape: int) -> Values:
    rope = {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}
    text = _qwen3(*shape, rope_scaling=rope) | {"model_type": "qwen3_vl_text"}
    return _wrapped("Qwen3VLForConditionalGeneration", text)


def _qwen2_vl(*shape: int) -> Values:
    rope = {"type": "mrope", "mrope_section": [16, 24, 24]}
    return _qwen2(*shape, rope_scaling=rope) | {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "vision_config": {},
    }  # fmt: skip


def _qwen3_5(*shape: int, values: int = 32, mixture: bool = False, **more: Any) -> Values:
    """values: heads of those in recurrent layers."""
    kind, name = ("qwen3_5_moe", "Qwen3_5Moe") if mixture else ("qwen3_5", "Qwen3_5")
    layers = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * (shape[0] // 4)
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
            "mrope_interleaved": True}  # fmt: skip
    experts = {"num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
               "shared_expert_intermediate_size": 512} if mixture else {}  # fmt: skip
    text = _text(
        f"{kind}_text", "", (*shape, 248320), head_dim=256, layer_types=layers, full_attention_interval=4,
        attn_output_gate=True, linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128,
        linear_num_key_heads=16, linear_num_value_heads=values, rope_parameters=rope, **experts,
    )  # fmt: skip
    return _wrapped(f"{name}ForConditionalGeneration", text, **more)


def _gemma4(*shape: int, every: int = 6, **more: Any) -> Values:
    layers = [f"{'full' if i % every == every - 1 else 'sliding'}_attention" for i in range(shape[0])]
    local = {"rope_type": "default", "rope_theta": 1e4}
    full = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}
    text = _text(
        "gemma4_text", "", (*shape, 262144), head_dim=256, global_head_dim=512, layer_types=layers,
        rope_parameters={"sliding_attention": local, "full_attention": full}, final_logit_softcapping=30.0,
        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, **more,
    )  # fmt: skip
    del text["hidden_act"]
    return _wrapped("Gemma4ForConditionalGeneration", text)


def _small_gemma4(*shape: int, every: int, shared: int, double: bool) -> Values:
    return _gemma4(
        *shape, every=every, sliding_window=512, hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144,
        num_kv_shared_layers=shared, use_double_wide_mlp=double,
    )  # fmt: skip


def _large_gemma4(*shape: int, full: int, **more: Any) -> Values:
    return _gemma4(
        *shape, sliding_window=1024, hidden_size_per_layer_input=0, attention_k_eq_v=True,
        num_global_key_value_heads=full, use_bidirectional_attention="vision", **more,
    )  # fmt: skip


def _gpt_oss(layers: int, experts: int) -> Values:
    rope = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 4096}  # fmt: skip
    return _text(
        "gpt_oss", "GptOssForCausalLM", (layers, 2880, 2880, 64, 8, 201088), head_dim=64, num_local_experts=experts,
        num_experts_per_tok=4, attention_bias=True, sliding_window=128, swiglu_limit=7.0, rope_theta=150000.0,
        layer_types=["sliding_attention", "full_attention"] * (layers // 2), rope_scaling=rope,
        quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    )  # fmt: skip


def _llama(*shape: int, **more: Any) -> Values:
    return _text("llama", "LlamaForCausalLM", shape, rope_theta=5e5, **more)


_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}  # fmt: skip
_MAMBA = {"hybrid_override_pattern": "M-M-M-MM-M-M*-", "ssm_state_size": 128, "mamba_num_heads": 96, "n_groups": 8}
_35B = (40, 2048, 0, 16, 2)
_27B = (64, 5120, 17408, 24, 4)
MODELS: tuple[tuple[str, float, Values], ...] = (
    ("Qwen/Qwen3-0.6B", 29.65, _qwen3(28, 1024, 3072, 16, 8, 151936)),
    ("openai-community/gpt2", 15.51, {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 12,
        "n_embd": 768, "n_head": 12, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257}),
    ("google/gemma-4-26B-A4B-it", 12.85, _large_gemma4(30, 2816, 2112, 16, 8, full=2, enable_moe_block=True,
        num_experts=128, top_k_experts=8, moe_intermediate_size=704)),
    ("Qwen/Qwen3-VL-8B-Instruct", 12.83, _qwen3_vl(36, 4096, 12288, 32, 8, 151936)),
    ("Qwen/Qwen3-8B", 10.15, _qwen3(36, 4096, 12288, 32, 8, 151936)),
    ("google/gemma-4-31B-it", 9.91, _large_gemma4(60, 5376, 21504, 32, 16, full=4)),
    ("Qwen/Qwen3.5-9B", 8.92, _qwen3_5(32, 4096, 12288, 16, 4)),
    ("Qwen/Qwen2.5-0.5B-Instruct", 8.67, _qwen2(24, 896, 4864, 14, 2, 151936)),
    ("Qwen/Qwen2.5-7B-Instruct", 8.35, _qwen2(28, 3584, 18944, 28, 4, 152064)),
    ("Qwen/Qwen3.5-4B", 7.82, _qwen3_5(32, 2560, 9216, 16, 4, tie_word_embeddings=True)),
    ("Qwen/Qwen3-4B", 7.67, _qwen3(36, 2560, 9728, 32, 8, 151936)),
    ("meta-llama/Llama-3.2-1B-Instruct", 7.58, _llama(16, 2048, 8192, 32, 8, 128256, rope_scaling=_LLAMA3)),
    ("Qwen/Qwen2.5-1.5B-Instruct", 7.26, _qwen2(28, 1536, 8960, 12, 2, 151936)),
    ("Qwen/Qwen3.8-27B", 6.82, _qwen3_5(*_27B, values=48)),
    ("facebook/opt-125m", 6.75, {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 768,
        "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072, "vocab_size": 50272,
        "max_position_embeddings": 2048, "do_layer_norm_before": True, "activation_function": "relu"}),
    ("openai/gpt-oss-20b", 6.43, _gpt_oss(24, 32)),
    ("meta-llama/Llama-3.1-8B-Instruct", 6.11, _llama(32, 4096, 14336, 32, 8, 128256, rope_scaling=_LLAMA3)),
    ("nvidia/Qwen3.6-35B-A3B-NVFP4", 6.05, _qwen3_5(*_35B, mixture=True, quantization_config=_NVFP4)),
    ("Qwen/Qwen2.5-VL-7B-Instruct", 5.74, _qwen2_vl(28, 3584, 18944, 28, 4, 152064)),
    ("Qwen/Qwen3.6-35B-A3B-FP8", 5.34, _qwen3_5(*_35B, mixture=True, quantization_config=_FP8)),
    ("Qwen/Qwen3.8-27B-FP8", 4.89, _qwen3_5(*_27B, values=48, quantization_config=_FP8)),
    ("Qwen/Qwen3.5-2B", 4.82, _qwen3_5(24, 2048, 6144, 8, 2, values=16, tie_word_embeddings=True)),
    ("dphn/dolphin-2.9.1-yi-1.5-34b", 4.73, _llama(60, 7168, 20480, 56, 8, 64000)),
    ("openai/gpt-oss-120b", 4.45, _gpt_oss(36, 128)),
    ("google/gemma-4-E4B-it", 4.42, _small_gemma4(42, 2560, 10240, 8, 2, every=6, shared=18, double=False)),
    ("Qwen/Qwen2.5-3B-Instruct", 4.21, _qwen2(36, 2048, 11008, 16, 2, 151936)),
    ("Qwen/Qwen3-32B", 3.85, _qwen3(64, 5120, 25600, 64, 8, 151936)),
    ("Qwen/Qwen3-4B-Instruct-2507", 3.68, _qwen3(36, 2560, 9728, 32, 8, 151936)),
    ("Qwen/Qwen3-VL-4B-Instruct", 3.49, _qwen3_vl(36, 2560, 9728, 32, 8, 151936)),
    ("EleutherAI/pythia-160m", 3.46, {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "vocab_size": 50304, "max_position_embeddings": 2048, "rotary_pct": 0.25, "use_parallel_residual": True}),
    ("Qwen/Qwen3.6-27B-FP8", 3.44, _qwen3_5(*_27B, values=48, quantization_config=_FP8)),
    ("google/gemma-3-1b-it", 3.39, _text("gemma3_text", "Gemma3ForCausalLM", (26, 1152, 6912, 4, 1, 262144),
        head_dim=256, sliding_window=512, sliding_window_pattern=6, query_pre_attn_scalar=256, rope_theta=1e6,
        rope_local_base_freq=1e4, hidden_activation="gelu_pytorch_tanh", hidden_act="gelu_pytorch_tanh")),
    ("Qwen/Qwen3.6-35B-A3B", 3.37, _qwen3_5(*_35B, mixture=True)),
    ("microsoft/Florence-2-base", 3.09, {"architectures": ["Florence2ForConditionalGeneration"],
        "model_type": "florence2", "is_encoder_decoder": True}),
    ("Qwen/Qwen3-1.7B", 3.09, _qwen3(28, 2048, 6144, 16, 8, 151936)),
    ("Qwen/Qwen3-14B", 3.06, _qwen3(40, 5120, 17408, 40, 8, 151936)),
    ("google/gemma-4-E2B-it", 3.03, _small_gemma4(35, 1536, 6144, 8, 1, every=5, shared=20, double=True)),
    ("nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16", 2.93, _text("nemotron_h", "NemotronHForCausalLM",
        (42, 3136, 12544, 40, 8, 131072), head_dim=128, **_MAMBA)),
    ("Qwen/Qwen3-14B-AWQ", 2.90, _qwen3(40, 5120, 17408, 40, 8, 151936, quantization_config=_AWQ)),
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", 2.84, _qwen2(28, 3584, 18944, 28, 4, 152064, quantization_config=_AWQ)),
)  # fmt: skip


def downloaded_table() -> str:
    rows, served = [], 0.0
    for name, million, values in MODELS:
        state = _state(values)
        served += 0.0 if state.startswith("refused") else million
        rows.append((f"`{name}`", f"{million:.2f}", state))
    whole = sum(million for _, million, _ in MODELS)
    told = f"{served:.0f} of {whole:.0f} million downloads a month are of models that are served."
    return f"{table(('repository', 'million a month', 'state'), rows)}\n{told}\n"


def _state(values: Values) -> str:
    try:
        model = load_values(_PLACE, values, _PLACE.parent, AUTO)
    except InvalidConfig as error:
        return f"refused: {_CLAUSE.split(str(error).removeprefix(f'{_PLACE}: '))[0]}"
    ends = [what for what in (_how(model), "its text alone" if model.towers else "") if what]
    return ", ".join(ends) if ends else "served"


def _how(model: ModelConfig) -> str:
    if model.fallback is not None:
        return "served slowly, by transformers"
    if model.four_bits is not None:
        return f"served, experts in {MXFP4} on a GPU"
    if model.quantisation is None:
        return "served" if model.towers else ""
    on_cpu = "integers stay on a CPU" if model.blocks is not None else "widened at load on a CPU"
    method, integers = model.quantisation.method, model.quantisation.integers
    if integers and integers[0] <= 4 and not any(layer.feed_forward.experts for layer in model.layers):
        return f"served; {method} stays packed on a GPU, {on_cpu}"
    return f"served slowly on a GPU, which widens {method} before each product; {on_cpu}"
