"""Weights from MindSpore checkpoints, mapped into memory, under Hugging Face's names.

MindFormers names of Llama and its kin are translated, Hugging Face names stay. What training leaves in a checkpoint
(moments, counters, caches) is not shown. Slices of several ranks are joined when a tensor is read.
"""

import math
import mmap
import re
from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.ckpt.files import ckpt_files, strategy_files
from chairlift.models.files.ckpt.header import StoredTensor, read_ckpt
from chairlift.models.files.ckpt.slices import read_layouts, starts
from chairlift.models.shards import Cut
from chairlift.runner.weights.source import part_of

_DTYPES = {
    "Float16": torch.float16,
    "BFloat16": torch.bfloat16,
    "Float32": torch.float32,
    "Float64": torch.float64,
}
_HF_NAMES = {
    "tok_embeddings.embedding_weight": "embed_tokens.weight",
    "attention.wq.": "self_attn.q_proj.",
    "attention.wk.": "self_attn.k_proj.",
    "attention.wv.": "self_attn.v_proj.",
    "attention.wo.": "self_attn.o_proj.",
    "feed_forward.w1.": "mlp.gate_proj.",
    "feed_forward.w2.": "mlp.down_proj.",
    "feed_forward.w3.": "mlp.up_proj.",
    "attention_norm.": "input_layernorm.",
    "ffn_norm.": "post_attention_layernorm.",
    "norm_out.": "norm.",
}
_TRANSLATED = re.compile("(?<![^.])(" + "|".join(map(re.escape, _HF_NAMES)) + ")")
_OF_TRAINING = re.compile(r"^(adam_[mv]|moments?\d?|accu_grads|fp32_master)\.|\.(key|value)_(cache|past)$|\bfreqs\b")
_FUSED = re.compile(r"\.(w_qkv|w_gate_hidden)\.")


class CkptTensors:
    def __init__(self, path: Path) -> None:
        """A file, or a folder with one or with those of several ranks."""
        self._paths = ckpt_files(path)
        self._layouts = read_layouts(strategy_files(path)) if len(self._paths) > 1 else {}
        self._held: dict[str, dict[int, StoredTensor]] = {}  # by Hugging Face name and rank
        self._stored_names: dict[str, str] = {}
        for rank, file in enumerate(self._paths):
            for name, stored in read_ckpt(file).items():
                if not _is_of_training(name, stored):
                    self._add(rank, name, stored)
        self._bytes = [_mapped(file) for file in self._paths]

    def _add(self, rank: int, name: str, stored: StoredTensor) -> None:
        if _FUSED.search(name):
            raise InvalidConfig(
                f"{self._paths[rank]}: tensor {name} is several matrices in one, whose rows releases of MindFormers "
                "order differently; store them apart (qkv_concat: False)"
            )
        own = _TRANSLATED.sub(lambda found: _HF_NAMES[found[1]], name)
        if self._stored_names.setdefault(own, name) != name:
            raise InvalidConfig(f"{self._paths[rank]}: {name} and {self._stored_names[own]} are the same tensor")
        self._held.setdefault(own, {})[rank] = stored

    @property
    def names(self) -> Collection[str]:
        return self._held.keys()

    def file_of(self, name: str) -> str:
        return str(self._paths[next(iter(self._held[name])) if name in self._held else 0])

    def item_bytes(self, name: str) -> int:
        """Of each number of a tensor."""
        return self._dtype(name, *next(iter(self._find(name).items()))).itemsize

    def read(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Tensor:
        held = self._find(name)
        if len(self._paths) == 1 and held[0].shape != shape:
            found = f"has shape {list(held[0].shape)}, the configuration says {list(shape)}"
            raise InvalidConfig(f"{self._paths[0]}: tensor {name} {found}")
        shapes = {rank: stored.shape for rank, stored in held.items()}
        try:
            places = starts(shape, shapes, self._layouts.get(self._stored_names[name]))
        except ValueError as error:
            raise InvalidConfig(f"{self.file_of(name)}: tensor {name} {error}") from error
        parts = {rank: self._part(name, rank, held[rank]) for rank in places}
        if len(parts) == 1:
            return part_of(next(iter(parts.values())), cut)
        whole = torch.empty(shape, dtype=next(iter(parts.values())).dtype)
        for rank, part in parts.items():
            place = tuple(slice(low, low + size) for low, size in zip(places[rank], part.shape, strict=True))
            whole[place] = part
        return part_of(whole, cut)

    def _find(self, name: str) -> dict[int, StoredTensor]:
        if name not in self._held:
            raise InvalidConfig(f"{self._paths[0]}: tensor {name} is missing from the weights")
        return self._held[name]

    def _dtype(self, name: str, rank: int, stored: StoredTensor) -> torch.dtype:
        if stored.type_name not in _DTYPES:
            kind = stored.type_name[:40]
            raise InvalidConfig(f"{self._paths[rank]}: tensor {name} is stored as {kind}, which is not supported")
        return _DTYPES[stored.type_name]

    def _part(self, name: str, rank: int, stored: StoredTensor) -> Tensor:
        dtype = self._dtype(name, rank, stored)
        content = np.empty(stored.num_bytes, np.uint8)  # a copy, since nothing is aligned in the file
        at = 0
        for start, count in stored.pieces:
            content[at : at + count] = self._bytes[rank][start : start + count]
            at += count
        return torch.from_numpy(content).view(dtype).view(stored.shape)


def _is_of_training(name: str, stored: StoredTensor) -> bool:
    """No weight has a single number, as counters and rates have."""
    return math.prod(stored.shape) <= 1 or stored.type_name == "str" or bool(_OF_TRAINING.search(name))


def _mapped(path: Path) -> NDArray[np.uint8]:
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
