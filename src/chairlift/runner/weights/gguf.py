"""Weights from a GGUF file: mapped into memory, each tensor dequantised when it is asked for, or handed out as blocks.

Three things differ from Hugging Face's layout and are undone here: names, dimensions in reverse order, and, in files of
the llama architecture, the rows of Q and K, which are stored pairwise for interleaved rotation.
"""

import math
import mmap
import re
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from chairlift.config.gguf_header import TENSOR_TYPES, GgufHeader, TensorInfo
from chairlift.config.model import ModelConfig
from chairlift.core.errors import InvalidConfig
from chairlift.runner.weights.blocks import Blocks

_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_TOP = re.compile(r"(\w+)\.(weight|bias)")
# The library dequantises 16 rows at a time; its rows are ours only in number of bytes, so they are cut to this many
# blocks: long enough to keep numpy out of Python, short enough to stay in the cache.
_BLOCKS_PER_ROW = 256


class GgufTensors:
    """Weights of one GGUF file under their Hugging Face names."""

    def __init__(self, header: GgufHeader, config: ModelConfig, num_threads: int = 1) -> None:
        self._path = header.path
        self._stored = {_hf_name(name): (name, info) for name, info in header.tensors.items()}
        self._paired_heads: dict[str, int] = {}
        if header.metadata.get("general.architecture") == "llama":
            self._paired_heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
        with header.path.open("rb") as file:
            self._bytes = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        self._threads = ThreadPoolExecutor(num_threads, "dequantise")

    @property
    def names(self) -> Collection[str]:
        return self._stored.keys()

    def file_of(self, name: str) -> str:
        return str(self._path)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        own_name, info = self._find(name, shape)
        if not _can_dequantise(info.type):
            raise InvalidConfig(
                f"{self._path}: tensor {own_name} is {info.type_name}, which cannot be read; "
                f"supported: {', '.join(supported_types())}"
            )
        tensor = self._dequantised(info).view(shape)
        if not all(map(math.isfinite, torch.aminmax(tensor))):
            raise InvalidConfig(f"{self._path}: tensor {own_name} holds values that are not finite numbers (damaged?)")
        heads = self._heads_of(name)
        if not heads:
            return tensor
        # stored rows of a head: 0, d/2, 1, d/2 + 1, ...  ->  0, 1, ..., d/2, d/2 + 1, ...
        return tensor.view(heads, -1, 2, *shape[1:]).transpose(1, 2).reshape(shape)

    def blocks(self, name: str, shape: tuple[int, int]) -> Blocks | None:
        own_name, info = self._find(name, shape)
        if info.num_bytes is None:
            return None
        rows = np.arange(shape[0])
        if heads := self._heads_of(name):
            rows = rows.reshape(heads, -1, 2).swapaxes(1, 2).ravel()  # as in `read`
        first = self._bytes.ctypes.data + info.offset
        addresses = first + rows * (info.num_bytes // shape[0])
        return Blocks(f"{self._path}: tensor {own_name}", info.type, shape, addresses, self._bytes)

    def _find(self, name: str, shape: tuple[int, ...]) -> tuple[str, TensorInfo]:
        if name not in self._stored:
            raise InvalidConfig(f"{self._path}: tensor {name} is missing from the weights")
        own_name, info = self._stored[name]
        if info.shape[::-1] != shape:
            found = list(info.shape[::-1])
            raise InvalidConfig(
                f"{self._path}: tensor {own_name} has shape {found}, the configuration says {list(shape)}"
            )
        return own_name, info

    def _heads_of(self, name: str) -> int:
        """Of a matrix whose rows are stored in pairs; else 0."""
        return self._paired_heads.get(name.split(".")[-2], 0)

    def _dequantised(self, info: TensorInfo) -> Tensor:
        assert info.num_bytes is not None
        stored = self._bytes[info.offset : info.offset + info.num_bytes]
        if info.type_name in ("F32", "F16", "BF16"):
            dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[info.type_name]
            return torch.from_numpy(stored.copy()).view(dtype)
        kind = GGMLQuantizationType(info.type)
        row_bytes = _BLOCKS_PER_ROW * TENSOR_TYPES[info.type][2]
        whole = len(stored) // row_bytes * row_bytes

        def piece(rows: NDArray[np.uint8]) -> Tensor:
            with np.errstate(all="ignore"):  # what is not finite is refused as a whole
                return torch.from_numpy(dequantize(rows, kind)).flatten()

        pieces = [rows for rows in np.array_split(stored[:whole].reshape(-1, row_bytes), 8) if len(rows)]
        if whole < len(stored):
            pieces.append(stored[whole:].reshape(1, -1))
        return torch.cat(list(self._threads.map(piece, pieces)))


def supported_types() -> list[str]:
    return [name for kind, (name, _, _) in TENSOR_TYPES.items() if _can_dequantise(kind)]


@lru_cache
def _can_dequantise(kind: int) -> bool:
    """Whether the library can, which has more types with every release."""
    if kind not in TENSOR_TYPES:
        return False
    try:
        dequantize(np.zeros((1, TENSOR_TYPES[kind][2]), np.uint8), GGMLQuantizationType(kind))
    except (NotImplementedError, ValueError):
        return False
    return True


def _hf_name(name: str) -> str:
    if (layer := _LAYER.fullmatch(name)) and layer[2] in _LAYER_NAMES:
        return f"model.layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}.{layer[3]}"
    if (top := _TOP.fullmatch(name)) and top[1] in _NAMES:
        return f"{_NAMES[top[1]]}.{top[2]}"
    return name
