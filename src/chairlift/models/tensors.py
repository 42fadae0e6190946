"""The tensors of a declared model: names, shapes, and which of them are stacked into one matrix.

Always: what is listed here is what is read; sizes and expected names are sums over the same lists. Knows nothing of
files or numbers.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from chairlift.models.spec import AttentionSpec, BlockWeights, ExpertsSpec, LayerSpec, ModelConfig, Names

MXFP4_GROUP = 32  # columns that share a scale


class HeadOrder(NamedTuple):
    """Heads whose rows are stored for another rotation than ours, which turns pairs half a head apart.

    A product of a query and a key does not change if both are put into another order.
    """

    num_heads: int  # from the tensor's first row on
    head_dim: int
    num_turned: int  # rows of a head that turn, its first
    is_paired: bool  # pairs are neighbours; otherwise they are half of what turns apart

    @property
    def rows(self) -> list[int]:
        """Where each row of a head is stored: its rows that stand still fill both halves."""
        turned, still = range(self.num_turned), range(self.num_turned, self.head_dim)
        half, middle = self.num_turned // 2, len(still) // 2
        first, second = (turned[::2], turned[1::2]) if self.is_paired else (turned[:half], turned[half:])
        return [*first, *still[:middle], *second, *still[middle:]]


class Part(NamedTuple):
    """A tensor of a file."""

    name: str
    shape: tuple[int, ...]
    order: HeadOrder | None = None  # None: rows are in order
    offset: float = 0.0  # what the stored numbers lack; 0 except for norms
    # Of experts that are in one tensor:
    is_transposed: bool = False  # each expert's columns are stored as rows
    is_alternating: bool = False  # a row of the gate, then one of the up projection, and so on

    @property
    def num_weights(self) -> int:
        return prod(self.shape)


class Matrix(NamedTuple):
    """A matrix [rows, columns] of parts that are stacked, and its bias, if it has one."""

    parts: tuple[Part, ...]
    bias: tuple[Part, ...] = ()


class ExpertTensors(NamedTuple):
    """A part is one expert's, all of an expert before those of the next, or it has the same part of every expert,
    [experts, ...]."""

    router: Matrix  # [experts, hidden]
    correction: Part | None
    gate_up: Matrix
    down: Matrix


class LayerTensors(NamedTuple):
    qkv: Matrix
    output: Matrix
    gate_up: Matrix | None  # None: every token takes nothing but experts
    down: Matrix | None
    norms: dict[str, Part]  # by their names in `Names`; those that the layer has
    norm_biases: dict[str, Part]  # the same
    experts: ExpertTensors | None = None
    sinks: Part | None = None  # [heads]

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        experts = () if self.experts is None else (self.experts.router, self.experts.gate_up, self.experts.down)
        found = (self.qkv, self.output, self.gate_up, self.down, *experts)
        return tuple(matrix for matrix in found if matrix is not None)


class EndTensors(NamedTuple):
    embedding: Matrix
    norm: Part
    head: Matrix | None  # None: it is the embedding
    norm_bias: Part | None = None


def end_tensors(config: ModelConfig) -> EndTensors:
    names, shape = config.names, (config.vocab_size, config.hidden_size)
    head_shape = (config.vocab_size if config.num_head_rows is None else config.num_head_rows, config.hidden_size)
    head = None if config.is_tied else Matrix((Part(f"{names.head}.weight", head_shape),))
    norm = Part(f"{names.norm}.weight", (config.hidden_size,), offset=names.norm_offset)
    bias = Part(f"{names.norm}.bias", (config.hidden_size,)) if config.has_norm_biases else None
    return EndTensors(Matrix((Part(f"{names.embedding}.weight", shape),)), norm, head, bias)


def layer_tensors(config: ModelConfig, index: int) -> LayerTensors:
    layer, names, hidden = config.layers[index], config.names, config.hidden_size
    heads, inner, mixture = layer.attention, layer.feed_forward.dense_width, layer.feed_forward.experts
    gate_up, down = (names.shared_gate_up, names.shared_down) if mixture else (names.gate_up, names.down)
    has_bias = layer.feed_forward.has_bias
    prefix = names.layer.format(index)
    q_rows, kv_rows = heads.num_heads * heads.head_dim, heads.num_kv_heads * heads.head_dim
    order, inner_rows = _order(heads, names), (inner, inner) if layer.feed_forward.has_gate else (inner,)
    return LayerTensors(
        qkv=_stacked(prefix, names.qkv, (q_rows, kv_rows, kv_rows), hidden, heads.has_bias, order),
        output=_stacked(prefix, (names.output,), (hidden,), q_rows, heads.has_output_bias),
        gate_up=_stacked(prefix, gate_up[-len(inner_rows) :], inner_rows, hidden, has_bias) if inner else None,
        down=_stacked(prefix, (down,), (hidden,), inner, has_bias) if inner else None,
        norms=_norms(layer, names, prefix, hidden) | _qk_norms(heads, names, prefix, order),
        norm_biases={
            role: Part(f"{prefix}{getattr(names, role)}.bias", part.shape)
            for role, part in _norms(layer, names, prefix, hidden).items()
            if config.has_norm_biases
        },
        sinks=Part(f"{prefix}{names.sinks}", (heads.num_heads,)) if heads.has_sinks else None,
        experts=_experts(prefix, names, mixture, layer.feed_forward.width, hidden) if mixture else None,
    )


def _experts(prefix: str, names: Names, mixture: ExpertsSpec, width: int, hidden: int) -> ExpertTensors:
    make = {"rows": _of_each, "columns": _in_columns, "mxfp4": _in_mxfp4}[names.expert_form]
    correction = Part(f"{prefix}{names.correction}", (mixture.count,)) if mixture.has_correction else None
    return ExpertTensors(
        router=_stacked(prefix, (names.router,), (mixture.count,), hidden, mixture.has_router_bias),
        correction=correction,
        gate_up=make(prefix, names.expert_gate_up, mixture, 2 * width, hidden),
        down=make(prefix, (names.expert_down,), mixture, hidden, width),
    )


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


def _order(heads: AttentionSpec, names: Names) -> HeadOrder | None:
    """Of one head of queries or keys."""
    num_turned = heads.rotation.num_turned if heads.rotation else 0
    if not names.has_paired_rows and not num_turned:
        return None
    return HeadOrder(1, heads.head_dim, num_turned or heads.head_dim, names.has_paired_rows)


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


def _norms(layer: LayerSpec, names: Names, prefix: str, hidden: int) -> dict[str, Part]:
    """By role, of the branches."""
    roles = ["before_attention", *([] if layer.is_parallel else ["before_feed_forward"])] * layer.has_norm_before
    roles += ["after_attention", "after_feed_forward"] * layer.has_norm_after
    return {role: Part(f"{prefix}{getattr(names, role)}.weight", (hidden,), offset=names.norm_offset) for role in roles}


def _qk_norms(heads: AttentionSpec, names: Names, prefix: str, order: HeadOrder | None) -> dict[str, Part]:
    """By role, of queries and keys."""
    if not heads.has_qk_norm and not heads.has_wide_qk_norm:
        return {}
    offset = names.norm_offset if names.qk_norm_offset is None else names.qk_norm_offset
    counts = (heads.num_heads, heads.num_kv_heads) if heads.has_wide_qk_norm else (1, 1)
    return {
        role: Part(
            f"{prefix}{name}.weight", (count * heads.head_dim,), order and order._replace(num_heads=count), offset
        )
        for role, name, count in zip(("q_norm", "k_norm"), (names.q_norm, names.k_norm), counts, strict=True)
    }


def _stacked(
    prefix: str, names: tuple[str, ...], rows: tuple[int, ...], columns: int, has_bias: bool = False,
    order: HeadOrder | None = None,
) -> Matrix:  # fmt: skip
    """A file that keeps all rows in one tensor has one name for it. order: of a head, in all rows but the last."""
    ordered = (*rows[:-1], 0)
    if len(names) < len(rows):
        rows, ordered = (sum(rows),), (sum(ordered),)
    orders = [order._replace(num_heads=n // order.head_dim) if order and n else None for n in ordered]
    stored = list(zip(names, rows, orders, strict=True))
    return Matrix(
        tuple(Part(f"{prefix}{name}.weight", (count, columns), order) for name, count, order in stored),
        tuple(Part(f"{prefix}{name}.bias", (count,), order) for name, count, order in stored) if has_bias else (),
    )


def expected_parts(config: ModelConfig) -> Iterator[Part]:
    """Every tensor that the model reads."""
    embedding, norm, head, bias = end_tensors(config)
    yield from (*embedding.parts, norm, *(head.parts if head else ()), *([bias] if bias else ()))
    for index in range(config.num_layers):
        layer = layer_tensors(config, index)
        for matrix in layer.matrices:
            yield from (*matrix.parts, *matrix.bias)
        if layer.experts is not None and layer.experts.correction is not None:
            yield layer.experts.correction
        if layer.sinks is not None:
            yield layer.sinks
        yield from (*layer.norms.values(), *layer.norm_biases.values())


def norm_parts(config: ModelConfig) -> Iterator[Part]:
    """The weights of every norm."""
    yield end_tensors(config).norm
    for index in range(config.num_layers):
        yield from layer_tensors(config, index).norms.values()


def layers_size(config: ModelConfig) -> int:
    """Numbers in the matrices of layers."""
    layers = (layer_tensors(config, index) for index in range(config.num_layers))
    return sum(part.num_weights for layer in layers for matrix in layer.matrices for part in matrix.parts)


def ends_size(config: ModelConfig) -> int:
    """Numbers in the embedding and the head."""
    embedding, _, head, _ = end_tensors(config)
    return sum(prod(part.shape) for matrix in (embedding, head) if matrix for part in matrix.parts)


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
    before_attention="attn_norm", after_attention="post_attention_norm",
    before_feed_forward="ffn_norm", after_feed_forward="post_ffw_norm",
)  # fmt: skip
