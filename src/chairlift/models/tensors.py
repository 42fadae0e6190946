"""The tensors of a declared model: names, shapes, and which of them are stacked into one matrix.

Always: what is listed here is what is read; sizes and expected names are sums over the same lists. Knows nothing of
files or numbers.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from chairlift.models.parts import Matrix, MixerTensors, Part, stacked
from chairlift.models.spec import BlockWeights, ExpertsSpec, LayerSpec, ModelConfig, Names

MXFP4_GROUP = 32  # columns that share a scale


class ExpertTensors(NamedTuple):
    """A part is one expert's, all of an expert before those of the next, or it has the same part of every expert,
    [experts, ...]."""

    router: Matrix  # [experts, hidden]
    correction: Part | None
    gate_up: Matrix
    down: Matrix
    factors: Part | None  # [experts]
    norms: dict[str, Part]  # of the router, and by their names in `Names`; none: they are the layer's
    shared_gate: Matrix | None = None  # [1, hidden]


class TokenTensors(NamedTuple):
    """Of what each token brings to each layer."""

    table: Matrix  # [vocab, layers * width]
    projection: Matrix  # of its row of the embedding [layers * width, hidden]
    norm: Part  # [width]


class LayerTensors(NamedTuple):
    mixer: MixerTensors
    gate_up: Matrix | None  # None: every token takes nothing but experts
    down: Matrix | None
    norms: dict[str, Part]  # of the branches, by their names in `Names`; those that the layer has
    norm_biases: dict[str, Part]  # the same
    experts: ExpertTensors | None = None
    scalar: Part | None = None
    # Of what each token brings: None: nothing.
    token_gate: Matrix | None = None
    token_output: Matrix | None = None

    @property
    def by_role(self) -> dict[str, Matrix]:
        """The matrices that every token takes."""
        found = {**self.mixer.matrices, "output": self.mixer.output, "gate_up": self.gate_up, "down": self.down}
        found |= {"token_gate": self.token_gate, "token_output": self.token_output}
        return {role: matrix for role, matrix in found.items() if matrix is not None}

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        own = self.experts
        experts = () if own is None else (own.router, own.gate_up, own.down, own.shared_gate)
        return *self.by_role.values(), *(matrix for matrix in experts if matrix is not None)


class EndTensors(NamedTuple):
    embedding: Matrix
    norm: Part
    head: Matrix | None  # None: it is the embedding
    norm_bias: Part | None = None
    token: TokenTensors | None = None


def end_tensors(config: ModelConfig) -> EndTensors:
    names, shape = config.names, (config.vocab_size, config.hidden_size)
    head_shape = (config.vocab_size if config.num_head_rows is None else config.num_head_rows, config.hidden_size)
    head = None if config.is_tied else Matrix((Part(f"{names.head}.weight", head_shape),))
    norm = Part(f"{names.norm}.weight", (config.hidden_size,), offset=names.norm_offset)
    bias = Part(f"{names.norm}.bias", (config.hidden_size,)) if config.has_norm_biases else None
    token = _token(config, names) if config.token_width else None
    return EndTensors(Matrix((Part(f"{names.embedding}.weight", shape),)), norm, head, bias, token)


def _token(config: ModelConfig, names: Names) -> TokenTensors:
    width = config.num_layers * config.token_width
    return TokenTensors(
        stacked("", (names.token_table,), (config.vocab_size,), width),
        stacked("", (names.token_projection,), (width,), config.hidden_size),
        Part(f"{names.token_norm}.weight", (config.token_width,), offset=names.norm_offset),
    )


def layer_tensors(config: ModelConfig, index: int) -> LayerTensors:
    layer, names, hidden = config.layers[index], config.names, config.hidden_size
    inner, mixture = layer.feed_forward.dense_width, layer.feed_forward.experts
    gate_up, down = (names.shared_gate_up, names.shared_down) if mixture else (names.gate_up, names.down)
    has_bias = layer.feed_forward.has_bias
    prefix = names.layer.format(index)
    inner_rows = (inner, inner) if layer.feed_forward.has_gate else (inner,)
    width = config.token_width
    return LayerTensors(
        mixer=layer.mixer.tensors(prefix, names, hidden),
        gate_up=stacked(prefix, gate_up[-len(inner_rows) :], inner_rows, hidden, has_bias) if inner else None,
        down=stacked(prefix, (down,), (hidden,), inner, has_bias) if inner else None,
        norms=_norms(layer, names, prefix, hidden, width),
        norm_biases={
            role: Part(f"{prefix}{getattr(names, role)}.bias", part.shape)
            for role, part in _norms(layer, names, prefix, hidden, width).items()
            if config.has_norm_biases
        },
        experts=_experts(prefix, names, mixture, layer.feed_forward.width, hidden) if mixture else None,
        scalar=Part(f"{prefix}{names.scalar}", (1,)) if layer.has_scalar else None,
        token_gate=stacked(prefix, (names.token_gate,), (width,), hidden) if width else None,
        token_output=stacked(prefix, (names.token_output,), (hidden,), width) if width else None,
    )


def _experts(prefix: str, names: Names, mixture: ExpertsSpec, width: int, hidden: int) -> ExpertTensors:
    make = {"rows": _of_each, "columns": _in_columns, "mxfp4": _in_mxfp4}[names.expert_form]
    correction = Part(f"{prefix}{names.correction}", (mixture.count,)) if mixture.has_correction else None
    return ExpertTensors(
        router=stacked(prefix, (names.router,), (mixture.count,), hidden, mixture.has_router_bias),
        correction=correction,
        gate_up=make(prefix, names.expert_gate_up, mixture, 2 * width, hidden),
        down=make(prefix, (names.expert_down,), mixture, hidden, width),
        factors=Part(f"{prefix}{names.expert_factors}", (mixture.count,)) if mixture.has_factors else None,
        norms=_expert_norms(prefix, names, hidden) if mixture.has_norms else {},
        shared_gate=stacked(prefix, (names.shared_gate,), (1,), hidden) if mixture.has_shared_gate else None,
    )


def _expert_norms(prefix: str, names: Names, hidden: int) -> dict[str, Part]:
    roles = ("before_experts", "after_experts", "after_shared")
    norms = {
        role: Part(f"{prefix}{getattr(names, role)}.weight", (hidden,), offset=names.norm_offset) for role in roles
    }
    return {"router": Part(f"{prefix}{names.router_norm}", (hidden,)), **norms}


def _of_each(prefix: str, names: tuple[str, ...], mixture: ExpertsSpec, rows: int, columns: int) -> Matrix:
    """A file that keeps all rows in one tensor has one name for it."""
    rows //= len(names)
    if "{}" in names[0]:
        owners: list[tuple[str, tuple[int, ...]]] = [
            (prefix + name.format(expert), ()) for expert in range(mixture.count) for name in names
        ]
    else:
        owners = [(prefix + name, (mixture.count,)) for name in names]
    return Matrix(
        tuple(Part(f"{name}.weight", (*count, rows, columns)) for name, count in owners),
        tuple(Part(f"{name}.bias", (*count, rows)) for name, count in owners) if mixture.has_bias else (),
    )


def _in_columns(prefix: str, names: tuple[str, ...], mixture: ExpertsSpec, rows: int, columns: int) -> Matrix:
    return _in_one(prefix, names, mixture, rows, (mixture.count, columns, rows), is_transposed=True)


def _in_mxfp4(prefix: str, names: tuple[str, ...], mixture: ExpertsSpec, rows: int, columns: int) -> Matrix:
    return _in_one(prefix, names, mixture, rows, (mixture.count, rows, columns), is_transposed=False)


def _in_one(
    prefix: str,
    names: tuple[str, ...],
    mixture: ExpertsSpec,
    rows: int,
    shape: tuple[int, ...],
    is_transposed: bool,
) -> Matrix:
    """All experts in one tensor, whose rows are of the gate and the up projection in turn if it has both."""
    (name,) = names
    is_alternating = name.rsplit(".", 1)[-1].startswith("gate_up")
    bias = Part(f"{prefix}{name}_bias", (mixture.count, rows), is_alternating=is_alternating)
    part = Part(f"{prefix}{name}", shape, is_transposed=is_transposed, is_alternating=is_alternating)
    return Matrix((part,), (bias,) if mixture.has_bias else ())


def _norms(layer: LayerSpec, names: Names, prefix: str, hidden: int, token_width: int) -> dict[str, Part]:
    """By role, of the branches."""
    roles = ["before_attention", *([] if layer.is_parallel else ["before_feed_forward"])] * layer.has_norm_before
    roles += ["after_attention", "after_feed_forward"] * layer.has_norm_after
    roles += ["after_token"] * (token_width > 0)
    return {role: Part(f"{prefix}{getattr(names, role)}.weight", (hidden,), offset=names.norm_offset) for role in roles}


def expected_parts(config: ModelConfig) -> Iterator[Part]:
    """Every tensor that the model reads."""
    embedding, norm, head, bias, token = end_tensors(config)
    yield from (*embedding.parts, norm, *(head.parts if head else ()), *([bias] if bias else ()))
    if token is not None:
        yield from (*token.table.parts, *token.projection.parts, token.norm)
    for index in range(config.num_layers):
        layer = layer_tensors(config, index)
        for matrix in layer.matrices:
            yield from (*matrix.parts, *matrix.bias)
        if layer.experts is not None:
            yield from filter(None, (layer.experts.correction, layer.experts.factors))
            yield from layer.experts.norms.values()
        yield from filter(None, (layer.scalar,))
        yield from (*layer.mixer.norms.values(), *layer.mixer.further.values())
        yield from (*layer.norms.values(), *layer.norm_biases.values())


def norm_parts(config: ModelConfig) -> Iterator[Part]:
    """The weights of every norm, and what else multiplies."""
    ends = end_tensors(config)
    yield from (ends.norm, *((ends.token.norm,) if ends.token else ()))
    for index in range(config.num_layers):
        layer = layer_tensors(config, index)
        yield from (*layer.mixer.norms.values(), *layer.norms.values(), *filter(None, (layer.scalar,)))
        if layer.experts is not None:
            yield from (*layer.experts.norms.values(), *filter(None, (layer.experts.factors,)))


def unread_names(config: ModelConfig) -> tuple[str, ...]:
    """Beginnings of names that files may have, and that nothing needs."""
    return tuple(name for index in range(config.num_layers) for name in layer_tensors(config, index).mixer.unread)


def layers_size(config: ModelConfig) -> int:
    """Numbers in the matrices of layers."""
    layers = (layer_tensors(config, index) for index in range(config.num_layers))
    return sum(part.num_weights for layer in layers for matrix in layer.matrices for part in matrix.parts)


def ends_size(config: ModelConfig) -> int:
    """Numbers in the embedding, the head, and the table and projection of what tokens bring to layers."""
    ends = end_tensors(config)
    token = (ends.token.table, ends.token.projection) if ends.token else ()
    return sum(prod(part.shape) for matrix in (ends.embedding, ends.head, *token) if matrix for part in matrix.parts)


def num_parameters(config: ModelConfig) -> int:
    if config.fallback is not None:
        return config.fallback.num_parameters
    return sum(part.num_weights for part in expected_parts(config))


def integer_weights(config: ModelConfig, bits: int, group: int) -> BlockWeights:
    """Of a model whose layers' matrices are all stored so, as the kernels keep them; group: 0: a row."""
    count, is_wide = layers_size(config), bits > 4
    scales = count // (group or config.hidden_size)
    return BlockWeights(
        type_name="W8" if is_wide else "W4",
        num_bytes=count * (8 if is_wide else 4) // 8 + scales * 4,  # half a float, and a zero as such
        num_weights=count,
    )


_BYTES = {"FP8": 1 + 4 / 128, "NVFP4": 9 / 16, "MXFP4": 17 / 32, "MXFP8": 1 + 2 / 32, "NF4": 9 / 16}  # with scales


def float_weights(config: ModelConfig, kind: str) -> BlockWeights:
    """The same of small floats or of tables."""
    count = layers_size(config)
    return BlockWeights(type_name=kind, num_bytes=round(count * _BYTES[kind]), num_weights=count)


def mxfp4_weights(config: ModelConfig) -> BlockWeights:
    """Of a model whose experts are stored so."""
    experts = [layer_tensors(config, index).experts for index in range(config.num_layers)]
    matrices = [matrix for each in experts if each for matrix in (each.gate_up, each.down)]
    count = sum(part.num_weights for matrix in matrices for part in matrix.parts)
    return BlockWeights(type_name="MXFP4", num_bytes=count // 2 + count // MXFP4_GROUP, num_weights=count)


def weight_bytes(config: ModelConfig, itemsize: int, layer_itemsize: int) -> int:
    """`layer_itemsize`: of the matrices of layers, which may be kept in another type than all else."""
    layers = 0 if config.fallback is not None else layers_size(config)
    return layers * layer_itemsize + (num_parameters(config) - layers) * itemsize


GGUF_NAMES = Names(
    embedding="token_embd", norm="output_norm", head="output", layer="blk.{}.",
    qkv=("attn_q", "attn_k", "attn_v"), q_norm="attn_q_norm", k_norm="attn_k_norm", output="attn_output",
    sinks="attn_sinks.weight",
    gate_up=("ffn_gate", "ffn_up"), down="ffn_down", router="ffn_gate_inp", correction="exp_probs_b.bias",
    expert_gate_up=("ffn_gate_exps", "ffn_up_exps"), expert_down="ffn_down_exps",
    shared_gate_up=("ffn_gate_shexp", "ffn_up_shexp"), shared_down="ffn_down_shexp",
    shared_gate="ffn_gate_inp_shexp", router_norm="ffn_gate_inp.scale", expert_factors="ffn_down_exps.scale",
    before_attention="attn_norm", after_attention="post_attention_norm",
    before_feed_forward="ffn_norm", after_feed_forward="post_ffw_norm",
    before_experts="pre_ffw_norm_2", after_experts="post_ffw_norm_2", after_shared="post_ffw_norm_1",
    scalar="layer_output_scale.weight",
    delta_inputs=("attn_qkv", "attn_gate"), delta_rates=("ssm_beta", "ssm_alpha"), delta_output="ssm_out",
    delta_norm="ssm_norm", delta_taps="ssm_conv1d.weight", delta_decay="ssm_a", delta_bias="ssm_dt.bias",
    has_log_decay=False,
    token_table="per_layer_token_embd", token_projection="per_layer_model_proj", token_norm="per_layer_proj_norm",
    token_gate="inp_gate", token_output="proj", after_token="post_norm",
)  # fmt: skip
