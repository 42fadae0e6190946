"""The tensors of a declared model: names, shapes, and which of them are stacked into one matrix.

Always: what is listed here is what is read; sizes and expected names are sums over the same lists. Knows nothing of
files or numbers.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from chairlift.config.model import LayerSpec, ModelConfig, Names


class Part(NamedTuple):
    """A tensor of a file."""

    name: str
    shape: tuple[int, ...]
    paired_heads: int = 0  # whose rows are stored in pairs; 0: rows are in order
    offset: float = 0.0  # what the stored numbers lack; 0 except for norms


class Matrix(NamedTuple):
    """A matrix [rows, columns] of parts that are stacked, and its bias, if it has one."""

    parts: tuple[Part, ...]
    bias: tuple[Part, ...] = ()


class LayerTensors(NamedTuple):
    qkv: Matrix
    output: Matrix
    gate_up: Matrix
    down: Matrix
    norms: dict[str, Part]  # by their names in `Names`; those that the layer has

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return self.qkv, self.output, self.gate_up, self.down


class EndTensors(NamedTuple):
    embedding: Matrix
    norm: Part
    head: Matrix | None  # None: it is the embedding


def end_tensors(config: ModelConfig) -> EndTensors:
    names, shape = config.names, (config.vocab_size, config.hidden_size)
    head_shape = (config.vocab_size if config.num_head_rows is None else config.num_head_rows, config.hidden_size)
    head = None if config.is_tied else Matrix((Part(f"{names.head}.weight", head_shape),))
    norm = Part(f"{names.norm}.weight", (config.hidden_size,), offset=names.norm_offset)
    return EndTensors(Matrix((Part(f"{names.embedding}.weight", shape),)), norm, head)


def layer_tensors(config: ModelConfig, index: int) -> LayerTensors:
    layer, names, hidden = config.layers[index], config.names, config.hidden_size
    heads, inner = layer.attention, layer.feed_forward.width
    prefix = names.layer.format(index)
    q_rows, kv_rows = heads.num_heads * heads.head_dim, heads.num_kv_heads * heads.head_dim
    paired = (heads.num_heads, heads.num_kv_heads, 0) if names.has_paired_rows else (0, 0, 0)
    return LayerTensors(
        qkv=_stacked(prefix, names.qkv, (q_rows, kv_rows, kv_rows), hidden, heads.has_bias, paired),
        output=_stacked(prefix, (names.output,), (hidden,), q_rows),
        gate_up=_stacked(prefix, names.gate_up, (inner, inner), hidden),
        down=_stacked(prefix, (names.down,), (hidden,), inner),
        norms={
            role: Part(f"{prefix}{getattr(names, role)}.weight", (size,), offset=_offset(names, role))
            for role, size in _norms(layer, hidden).items()
        },
    )


def _norms(layer: LayerSpec, hidden: int) -> dict[str, int]:
    """Sizes by role."""
    branches = ("attention", "feed_forward")
    sizes = {f"before_{branch}": hidden for branch in branches if layer.has_norm_before}
    sizes |= {f"after_{branch}": hidden for branch in branches if layer.has_norm_after}
    return sizes | ({"q_norm": (dim := layer.attention.head_dim), "k_norm": dim} if layer.attention.has_qk_norm else {})


def _offset(names: Names, role: str) -> float:
    own = names.qk_norm_offset if role in ("q_norm", "k_norm") else None
    return names.norm_offset if own is None else own


def _stacked(
    prefix: str, names: tuple[str, ...], rows: tuple[int, ...], columns: int, has_bias: bool = False,
    paired: tuple[int, ...] = (0, 0),
) -> Matrix:  # fmt: skip
    """A file that keeps all rows in one tensor has one name for it."""
    counts = rows if len(names) == len(rows) else (sum(rows),)
    stored = list(zip(names, counts, paired, strict=False))
    return Matrix(
        tuple(Part(f"{prefix}{name}.weight", (count, columns), heads) for name, count, heads in stored),
        tuple(Part(f"{prefix}{name}.bias", (count,), heads) for name, count, heads in stored) if has_bias else (),
    )


def expected_parts(config: ModelConfig) -> Iterator[Part]:
    """Every tensor that the model reads."""
    embedding, norm, head = end_tensors(config)
    yield from (*embedding.parts, norm, *(head.parts if head else ()))
    for index in range(config.num_layers):
        layer = layer_tensors(config, index)
        for matrix in layer.matrices:
            yield from (*matrix.parts, *matrix.bias)
        yield from layer.norms.values()


def norm_parts(config: ModelConfig) -> Iterator[Part]:
    """The weights of every norm."""
    yield end_tensors(config).norm
    for index in range(config.num_layers):
        yield from layer_tensors(config, index).norms.values()


def layers_size(config: ModelConfig) -> int:
    """Numbers in the matrices of layers."""
    layers = (layer_tensors(config, index) for index in range(config.num_layers))
    return sum(prod(part.shape) for layer in layers for matrix in layer.matrices for part in matrix.parts)


def ends_size(config: ModelConfig) -> int:
    """Numbers in the embedding and the head."""
    embedding, _, head = end_tensors(config)
    return sum(prod(part.shape) for matrix in (embedding, head) if matrix for part in matrix.parts)


def num_parameters(config: ModelConfig) -> int:
    if config.fallback is not None:
        return config.fallback.num_parameters
    return sum(prod(part.shape) for part in expected_parts(config))


def weight_bytes(config: ModelConfig, itemsize: int, layer_itemsize: int) -> int:
    """`layer_itemsize`: of the matrices of layers, which may be kept in another type than all else."""
    layers = 0 if config.fallback is not None else layers_size(config)
    return layers * layer_itemsize + (num_parameters(config) - layers) * itemsize


GGUF_NAMES = Names(
    embedding="token_embd", norm="output_norm", head="output", layer="blk.{}.",
    qkv=("attn_q", "attn_k", "attn_v"), q_norm="attn_q_norm", k_norm="attn_k_norm", output="attn_output",
    gate_up=("ffn_gate", "ffn_up"), down="ffn_down",
    before_attention="attn_norm", after_attention="post_attention_norm",
    before_feed_forward="ffn_norm", after_feed_forward="post_ffw_norm",
)  # fmt: skip
