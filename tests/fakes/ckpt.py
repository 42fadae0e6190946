"""MindSpore checkpoints byte by byte, right and wrong ones."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fakes.protobuf import bytes_field, number_field

_TYPES = {torch.float16: "Float16", torch.bfloat16: "BFloat16", torch.float32: "Float32", torch.int32: "Int32"}
_MINDFORMERS = {
    "embed_tokens.weight": "tok_embeddings.embedding_weight",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.norm.": "model.norm_out.",
}


def value(name: str, shape: Iterable[int], type_name: str, data: bytes) -> bytes:
    tensor = (
        b"".join(number_field(1, size) for size in shape) + bytes_field(2, type_name.encode()) + bytes_field(3, data)
    )
    return bytes_field(1, bytes_field(1, name.encode()) + bytes_field(2, tensor))


def value_of(name: str, tensor: Tensor) -> bytes:
    data = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return value(name, tensor.shape, _TYPES[tensor.dtype], data)


def write_ckpt(path: Path, tensors: dict[str, Tensor]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(value_of(name, tensor) for name, tensor in tensors.items()))
    return path


def mindformers_name(name: str) -> str:
    for own, theirs in _MINDFORMERS.items():
        name = name.replace(own, theirs)
    return name


def strategy(layouts: dict[str, tuple[Sequence[int], Sequence[int], int, int]]) -> bytes:
    """Devices, axes, and the optimizer's step and size by name."""

    def numbers(values: Sequence[int]) -> bytes:
        return b"".join(number_field(1, each) for each in values)

    def layout(devices: Sequence[int], axes: Sequence[int], step: int, size: int) -> bytes:
        cut = bytes_field(1, numbers(devices)) + bytes_field(2, numbers(axes))
        return cut + number_field(5, 0) + number_field(6, step) + number_field(7, size)

    each = (bytes_field(1, name.encode()) + bytes_field(2, layout(*layouts[name])) for name in layouts)
    return number_field(1, 0) + b"".join(bytes_field(3, one) for one in each)
