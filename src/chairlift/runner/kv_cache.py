"""The KV cache: the memory of what layers keep of tokens, in blocks.

    state[layer]: a tensor for each of its mixer's `rows`, [num_blocks, heads, block_size, width]: keys and values, say;
                  of int8 width + 4: bytes, then a scale
    tokens: [num_blocks, block_size], the ids computed there; written by runners that read them

Where layers form groups (`models/kv_groups.py`), those with the same place in their groups have the same memory.

Always: every value is finite until the model itself writes something else. Knows nothing of requests.

The host memory that blocks are swapped to, as bytes: for what travels between engines.

a piece of n blocks: n rows of the first tensor, n of the second, ...
"""

from collections.abc import Sequence
from itertools import chain
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import BlockId
from chairlift.core.memory.pages import Kind, pages_of
from chairlift.core.plan import BlockCopy
from chairlift.models.kv_groups import WHOLE, Fit, KvGroups, Sizes, kv_groups
from chairlift.models.mixers.mixer import Rows
from chairlift.models.spec import ModelConfig
from chairlift.runner.machine.to_device import to_device
from chairlift.runner.mixers.mixer import State


class HostBlocks:
    """A `HostMemory`."""

    def __init__(self, tensors: Sequence[NDArray[np.uint8]], layout: str) -> None:
        """tensors: [num_host_blocks, bytes] each."""
        self._tensors = tensors
        self.layout = layout
        self.block_bytes = sum(tensor.shape[1] for tensor in tensors)

    def read(self, blocks: Sequence[BlockId], target: memoryview) -> None:
        places = np.array(blocks, np.int64)
        for tensor, rows in self._cut(np.frombuffer(target, np.uint8), len(blocks)):
            np.take(tensor, places, axis=0, out=rows, mode="clip")  # without the copy that other modes make

    def write(self, blocks: Sequence[BlockId], source: memoryview) -> None:
        places = np.array(blocks, np.int64)
        for tensor, rows in self._cut(np.frombuffer(source, np.uint8), len(blocks)):
            tensor[places] = rows

    def _cut(self, piece: NDArray[np.uint8], count: int) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
        """Each tensor with its rows of the piece."""
        ends = np.cumsum([count * tensor.shape[1] for tensor in self._tensors])
        parts = np.split(piece, ends)[:-1]
        return [(tensor, part.reshape(count, -1)) for tensor, part in zip(self._tensors, parts, strict=True)]


Moves = Sequence[BlockCopy] | NDArray[np.int32]  # (source, target) each
_SCALE_BYTES = 4  # of a head of int8: a float behind its bytes


class Cache(Protocol):
    """What a runner needs of a cache; the rest is between it and its model."""

    block_size: int
    kinds: Sequence[Kind]  # of layers that do not keep all tokens, with tables of their own
    num_groups: Sequence[int]  # of layers of each kind
    fit: Fit  # of these layers' rows to pages

    def move_blocks(self, swap_outs: Moves = (), swap_ins: Moves = (), copies: Moves = ()) -> None:
        """To host memory, back from it and on the device, in this order: a block may be vacated and filled in one step.
        Copies happen as if all at once."""


def kv_bytes_per_block(config: ModelConfig, block_size: int, dtype: torch.dtype, groups: KvGroups | None = None) -> int:
    """groups: None: one group."""
    others = [mixer.name for mixer in config.mixers if mixer.rows and mixer not in config.attentions]
    if dtype.itemsize == 1 and others:
        raise InvalidConfig(f"kv_dtype: layers of {others[0]} keep numbers of the model's type; use --kv-dtype auto")
    places = _rows(config, groups or kv_groups(config, can_group=False))
    return (
        block_size * dtype.itemsize * sum(row.num_heads * _width(row.width, dtype) for rows in places for row in rows)
    )


def num_kv_tensors(config: ModelConfig, groups: KvGroups) -> int:
    return sum(map(len, _rows(config, groups)))


def sizes_of(block_size: int, dtype: torch.dtype, kv_dtype: torch.dtype) -> Sizes:
    wide = torch.promote_types(dtype, torch.float32)
    return Sizes(block_size, kv_dtype.itemsize, _beside(kv_dtype) * kv_dtype.itemsize, dtype.itemsize, wide.itemsize)


def _rows(config: ModelConfig, groups: KvGroups) -> list[tuple[Rows, ...]]:
    """Of each place: of the layer there that keeps all tokens, or where there is one group."""
    layers = zip(groups.groups, groups.places, config.layers, strict=True)
    found = {place: layer.mixer.rows for group, place, layer in layers if group == 0}
    return [found[place] for place in range(groups.num_places)]


def _width(head_dim: int, dtype: torch.dtype) -> int:
    return head_dim + _beside(dtype)


def _beside(dtype: torch.dtype) -> int:
    """Numbers of a head beside its own."""
    return _SCALE_BYTES if dtype is torch.int8 else 0


class KvCache:
    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_host_blocks: int = 0,
        groups: KvGroups | None = None,
    ) -> None:
        """groups: None: one group."""
        groups = groups or kv_groups(config, can_group=False)
        self.block_size = block_size
        self.groups, self.fit = groups.groups, groups.fit  # groups: of each layer
        self.kinds = pages_of(block_size, 1, groups.declared).kinds
        self.num_groups: Sequence[int] = groups.counts
        places = [
            tuple(
                _zeros((num_blocks, row.num_heads, block_size, _width(row.width, dtype)), dtype, device) for row in rows
            )
            for rows in _rows(config, groups)
        ]
        made: dict[tuple[tuple[Rows, ...], Fit, int, int], State] = {}
        self.state: list[State] = []
        parts = groups.parts or (0,) * config.num_layers
        for layer, group, place, part in zip(config.layers, groups.groups, groups.places, parts, strict=True):
            rows, fit = layer.mixer.rows, groups.fit if group else WHOLE
            if layer.mixer.fixed:
                self.state.append(places[place])
                continue
            key = rows, fit, place, part
            if key not in made:
                made[key] = tuple(_as_layer(*pair, fit, part) for pair in zip(places[place], rows, strict=True))
            self.state.append(made[key])
        self.tokens = _zeros((num_blocks, block_size), torch.int32, device)
        self._memory = (*chain(*places), self.tokens)
        self._host_memory = [_host_zeros((num_host_blocks, *m.shape[1:]), m.dtype, device) for m in self._memory]
        layout = " ".join(f"{m.dtype}{list(m.shape[1:])}" for m in self._memory)
        layout += "".join(f" {group.kind} {group.reach} of {group.num_pages} groups" for group in groups.declared)
        self.host = HostBlocks([_blocks(memory) for memory in self._host_memory], layout)

    def move_blocks(self, swap_outs: Moves = (), swap_ins: Moves = (), copies: Moves = ()) -> None:
        self._move(swap_outs, self._memory, self._host_memory)
        self._move(swap_ins, self._host_memory, self._memory)
        self._move(copies, self._memory, self._memory)

    def _move(self, moves: Moves, origins: Sequence[Tensor], copies: Sequence[Tensor]) -> None:
        if not len(moves):
            return
        sources, targets = np.array(moves, dtype=np.int64).T.copy()
        if origins[0].device.type == copies[0].device.type == "cpu":
            for origin, copy in zip(origins, copies, strict=True):
                _blocks(copy)[targets] = _blocks(origin)[sources]
            return
        read, write = to_device(sources, origins[0].device), to_device(targets, copies[0].device)
        for origin, copy in zip(origins, copies, strict=True):
            # As bytes: torch does not index every type that a cache may have.
            copy.view(torch.uint8)[write] = origin.view(torch.uint8)[read].to(copy.device)


def _as_layer(memory: Tensor, rows: Rows, fit: Fit, part: int) -> Tensor:
    """The tensor of a place as a layer has it whose block tables name pieces of pages: the first of them begins where
    its part of the first page does."""
    num_blocks, _, block_size, _ = memory.shape
    shape = rows.num_heads, block_size // fit.pages_a_block, _width(rows.width, memory.dtype)
    size = prod(shape)
    if size * fit.layers_a_place != memory[:1].numel():
        name = str(memory.dtype).removeprefix("torch.")
        raise InvalidConfig(
            f"kv_dtype {name}: layers whose heads differ in width take pages that differ in size; use --kv-dtype auto"
        )
    count = num_blocks * fit.layers_a_place - part
    return memory.view(-1)[part * size : (part + count) * size].view(count, *shape)


def store(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Writes k and v [T, kv_heads, head_dim] of tokens to their slots of a layer."""
    blocks, offsets = slots // keys.shape[2], slots % keys.shape[2]
    keys[blocks, :, offsets] = k
    values[blocks, :, offsets] = v


def _blocks(memory: Tensor) -> NDArray[np.uint8]:
    """[num_blocks, bytes]: numpy copies rows ten times as fast as torch."""
    return memory.view(torch.uint8).flatten(1).numpy()


def _host_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Pinned where the device is a GPU."""
    if device.type == "cuda" and shape[0]:
        return torch.zeros(shape, dtype=dtype, pin_memory=True)
    return _zeros(shape, dtype, torch.device("cpu"))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu" or not shape[0]:
        return torch.zeros(shape, dtype=dtype, device=device)
    # The system hands out the pages of numpy's zeros on first touch: unused blocks cost no memory.
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
