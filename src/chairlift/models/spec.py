"""What a model is, as values: each layer, the ends around the layers, and the names of its tensors.

One declaration: loading, expected names, sizes, the memory forecast and kernels follow from it (`tensors.py` derives
the tensors). Family files build it from a configuration; what they do not read is judged by `unread.py`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chairlift.models.mixers.attention import AttentionSpec, RopeScaling, Rotation
from chairlift.models.mixers.mixer import MixerSpec

if TYPE_CHECKING:
    from chairlift.models.embedding.declared import EmbeddingConfig


# Of the activation "clamped": gate * sigmoid(STEEPNESS * gate) * (up + 1), gate at most CLAMP, up within +-CLAMP.
CLAMP, STEEPNESS = 7.0, 1.702
ACTIVATIONS = ("silu", "gelu_tanh", "clamped")
SCORES = ("softmax", "chosen", "sigmoid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsSpec:
    """A mixture: each token chooses some of many feed-forwards of one width and adds up what they give, weighed."""

    count: int
    num_chosen: int
    scores: str = "softmax"  # of SCORES: softmax over all experts, over the chosen ones, or sigmoid
    is_normalised: bool = False  # weights of the chosen are divided by their sum
    factor: float = 1.0  # of all weights
    has_correction: bool = False  # a number for each expert is added to its score for the choice alone
    num_groups: int = 1  # of neighbours, among which those with the largest sum of two scores are chosen first
    num_chosen_groups: int = 1
    shared_width: int = 0  # of the feed-forward that every token takes beside; 0: there is none
    has_shared_gate: bool = False  # what that gives is multiplied by the sigmoid of one number more
    has_router_bias: bool = False
    has_bias: bool = False  # of each expert's matrices
    has_factors: bool = False  # each expert's weight is multiplied by a number of its own
    # The router, the experts and what every token takes beside have norms of the same residual, and the latter two
    # further ones after them.
    has_norms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForwardSpec:
    """down(activation(gate(x)) * up(x)), without a gate down(activation(up(x)))"""

    width: int  # of one expert, where there are several
    activation: str = "silu"  # one of ACTIVATIONS
    has_gate: bool = True  # experts always have one
    has_bias: bool = False  # of gate, up and down that every token takes
    experts: ExpertsSpec | None = None

    @property
    def dense_width(self) -> int:
        """Of what every token takes; 0: nothing."""
        return self.width if self.experts is None else self.experts.shared_width


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """residual += factor * norm_after(branch(norm_before(residual))), for the mixer, then for the feed-forward.

    In parallel both branches begin with the same norm, the mixer's, of the same residual.
    """

    mixer: MixerSpec
    feed_forward: FeedForwardSpec
    has_norm_before: bool = True
    has_norm_after: bool = False
    is_parallel: bool = False
    residual_factor: float = 1.0
    has_scalar: bool = False  # the residual is multiplied by a number of the file at the end

    def __post_init__(self) -> None:
        assert self.has_norm_before or not self.is_parallel, "branches in parallel share the norm before them"

    @property
    def attention(self) -> AttentionSpec:
        """Its mixer, where it is known to be attention."""
        assert isinstance(self.mixer, AttentionSpec)
        return self.mixer


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What tensors are called in the files, without .weight or .bias, and how they are stored there.

    {} stands for the layer's number. A matrix that a file keeps in parts has several names, in the order in which they
    are stacked.
    """

    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"
    head: str = "lm_head"
    layer: str = "model.layers.{}."  # before each of the following
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    q_norm: str = "self_attn.q_norm"
    k_norm: str = "self_attn.k_norm"
    output: str = "self_attn.o_proj"
    sinks: str = "self_attn.sinks"  # whole
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")  # the last alone where there is no gate
    down: str = "mlp.down_proj"
    router: str = "mlp.gate"
    router_norm: str = "router.scale"  # whole, as the next
    expert_factors: str = "router.per_expert_scale"
    correction: str = "mlp.gate.e_score_correction_bias"  # whole
    # Of experts; {} stands for the expert's number where each has tensors of its own.
    expert_gate_up: tuple[str, ...] = ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj")
    expert_down: str = "mlp.experts.{}.down_proj"
    # rows: [out, in], called as other matrices; columns: [experts, in, out], gate and up take turns; mxfp4:
    # [experts, out, in], gate and up take turns
    expert_form: str = "rows"
    shared_gate_up: tuple[str, ...] = ("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj")
    shared_down: str = "mlp.shared_experts.down_proj"
    shared_gate: str = "mlp.shared_expert_gate"
    before_attention: str = "input_layernorm"
    after_attention: str = ""
    before_feed_forward: str = "post_attention_layernorm"
    after_feed_forward: str = ""
    before_experts: str = "pre_feedforward_layernorm_2"
    after_experts: str = "post_feedforward_layernorm_2"
    after_shared: str = "post_feedforward_layernorm_1"
    scalar: str = "layer_scalar"  # whole
    # Of gated delta nets; one name: rows are stored by key head.
    delta_inputs: tuple[str, ...] = ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z")
    delta_rates: tuple[str, ...] = ("linear_attn.in_proj_b", "linear_attn.in_proj_a")
    delta_output: str = "linear_attn.out_proj"
    delta_norm: str = "linear_attn.norm"
    delta_taps: str = "linear_attn.conv1d.weight"  # whole, as the next two
    delta_decay: str = "linear_attn.A_log"
    delta_bias: str = "linear_attn.dt_bias"
    has_log_decay: bool = True  # that tensor holds the logarithm of minus the decay
    has_tiled_heads: bool = False  # value heads are stored as those of `DeltaNetSpec.is_tiled`
    # Of what each token brings to each layer.
    token_table: str = "model.embed_tokens_per_layer"
    token_projection: str = "model.per_layer_model_projection"
    token_norm: str = "model.per_layer_projection_norm"
    token_gate: str = "per_layer_input_gate"
    token_output: str = "per_layer_projection"
    after_token: str = "post_per_layer_input_norm"
    # Queries and keys are stored for interleaved rotation: the values of a pair are neighbours.
    has_paired_rows: bool = False
    norm_offset: float = 0.0  # what the stored weights of norms lack
    qk_norm_offset: float | None = None  # the same, of q_norm and k_norm; None: as of all norms


HF_NAMES = Names()


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

    type_name: str  # of most of them: "Q4_1", "W4", ...
    num_bytes: int
    num_weights: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """What a configuration says of quantised matrices in safetensors, which the tensors do not say."""

    method: str = ""
    bits: int = 0  # of every module; 0: not said, or not one number
    group: int = 0  # columns that share a scale; 0: the same
    adds_one: bool = True  # GPTQ's zeros are stored less 1
    block: tuple[int, int] = (128, 128)  # rows and columns that share a scale, where scales are of blocks
    integers: tuple[int, int] | None = None  # bits and group (0: a row) of most modules, where they are whole numbers
    floats: str = ""  # "FP8", "NVFP4", "MXFP4", "MXFP8" or "NF4", of most modules, where these are


PLAIN_QUANTISATION = Quantisation()


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackModel:
    """A model without a declaration, which transformers computes."""

    config_json: str  # all that its config.json says
    num_parameters: int = 0  # 0, and no layers: not described yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    architecture: str  # "LlamaForCausalLM", ...
    hidden_size: int
    vocab_size: int
    max_model_len: int
    layers: tuple[LayerSpec, ...]
    rms_norm_eps: float  # of all norms
    has_centred_norms: bool = False  # LayerNorm in place of RMSNorm, but for those of heads
    has_norm_biases: bool = False  # of all but those of heads
    num_further_layers: int = 0  # in the files behind these, which guess further tokens and are not read
    further: tuple[str, ...] = ()  # beginnings of names of others that do so
    towers: tuple[str, ...] = ()  # beginnings of names in the files that are of images, and not read
    embedding_factor: float = 1.0
    token_width: int = 0  # of what each token brings to each layer beside the residual; 0: nothing
    logit_factor: float = 1.0  # of the logits, before the cap
    logit_cap: float = 0.0  # as the cap of attention, over the logits
    is_tied: bool = False  # the output matrix is the embedding
    num_head_rows: int | None = None  # of the output matrix, where a rank has some of them; None: all
    names: Names = HF_NAMES
    dtype: str = "float32"  # as stored
    blocks: BlockWeights | None = None  # where a file has weights that a CPU can keep quantised
    four_bits: BlockWeights | None = None  # where a file has experts in MXFP4, which a GPU can keep
    packed: BlockWeights | None = None  # where a file has quantised matrices, which a GPU can keep
    quantisation: Quantisation | None = None  # of safetensors
    fallback: FallbackModel | None = None  # None: it is computed from this declaration
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    warnings: tuple[str, ...] = field(default=(), compare=False)  # of its files, for the command to print
    embedding: "EmbeddingConfig | None" = None  # what it makes instead of text

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def kinds_of_layers(self) -> tuple[LayerSpec, ...]:
        """Each once, in order of appearance."""
        return tuple(dict.fromkeys(self.layers))

    @property
    def mixers(self) -> tuple[MixerSpec, ...]:
        """Each once, in order of appearance."""
        return tuple(dict.fromkeys(layer.mixer for layer in self.layers))

    @property
    def attentions(self) -> tuple[AttentionSpec, ...]:
        """Those of them that are attention."""
        return tuple(mixer for mixer in self.mixers if isinstance(mixer, AttentionSpec))


def uniform_model(
    *, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int, intermediate_size: int, rope_theta: float,
    rope_scaling: RopeScaling | None = None, sliding_window: int = 0, has_qkv_bias: bool = False,
    has_output_bias: bool = False, has_inner_bias: bool = False, has_qk_norm: bool = False, **ends: Any,
) -> ModelConfig:  # fmt: skip
    """A model whose layers are all alike, as Llama's are; `ends`: the other fields of `ModelConfig`."""
    attention = AttentionSpec(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rotation=Rotation(theta=rope_theta, scaling=rope_scaling),
        window=sliding_window,
        has_bias=has_qkv_bias,
        has_output_bias=has_output_bias,
        has_qk_norm=has_qk_norm,
    )
    feed_forward = FeedForwardSpec(width=intermediate_size, has_bias=has_inner_bias)
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward)
    return ModelConfig(layers=(layer,) * num_layers, **ends)
