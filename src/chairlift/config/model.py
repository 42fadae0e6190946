"""What a model is, as numbers: the one description that weights, kernels and tokenizer checks read.

Built from a Hugging Face `config.json` or from GGUF metadata. An architecture or RoPE variant that is not known is
refused by name, never guessed.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Rotary frequencies other than the plain ones."""

    kind: str  # "llama3" or "linear"
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """What generation_config.json suggests where a request says nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWeights:
    """Weights that a file has in blocks of integers with scales."""

    type_name: str  # of most of them: "Q4_1", ...
    num_bytes: int
    num_weights: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    architecture: str  # "LlamaForCausalLM", ...
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_model_len: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    is_tied: bool = False  # the output matrix is the embedding
    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    sliding_window: int = 0  # 0: none
    dtype: str = "float32"  # as stored
    blocks: BlockWeights | None = None  # where a GGUF file has weights that can be kept quantised
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
