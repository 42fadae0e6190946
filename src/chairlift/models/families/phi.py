"""Phi-3 and 4: as Llama, with stacked matrices, a part of each head turned, and longrope."""

from dataclasses import replace

from chairlift.config.fields import Fields
from chairlift.models.families.family import Family
from chairlift.models.families.reading import num_layers, read_attention, read_model, require, with_windows
from chairlift.models.families.rope import Turning
from chairlift.models.spec import HF_NAMES, ModelConfig

_NAMES = replace(HF_NAMES, qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",))
_ORIGINAL_LEN = "original_max_position_embeddings"


def _phi3(config: Fields) -> ModelConfig:
    require(config, "hidden_act", "silu")
    config.get(_ORIGINAL_LEN)  # files without longrope have it too
    heads = config.size("num_attention_heads")
    attention = read_attention(config, num_kv_heads=heads, turning=Turning(share=1.0))
    sliding = [config.get("sliding_window") is not None] * num_layers(config)
    return read_model(config, with_windows(config, attention, sliding), eps=1e-5)


def _from_gguf(metadata: Fields, config: ModelConfig) -> ModelConfig:
    return replace(config, names=replace(config.names, qkv=("attn_qkv",), gate_up=("ffn_up",)))


PHI3 = Family(
    architecture="Phi3ForCausalLM", model_type="phi3", read=_phi3, names=_NAMES, gguf="phi3", from_gguf=_from_gguf
)
