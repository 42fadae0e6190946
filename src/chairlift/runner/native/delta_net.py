"""Gated delta nets by a compiled kernel, which reads and writes states and rows where they lie in the cache.

Always: the same tiles as `runner.mixers.tiles`, so what it leaves in the cache another kernel could go on from.
"""

import torch
from torch import Tensor

from chairlift.runner.mixers.delta_net import DeltaNet
from chairlift.runner.mixers.mixer import State
from chairlift.runner.native.tape import Calls
from chairlift.runner.ops import Batch


def delta_net(calls: Calls, inputs: Tensor, rates: Tensor, mixer: DeltaNet, state: State, batch: Batch) -> Tensor:
    """As `DeltaNetOps.delta_net`."""
    spec, tables = mixer.spec, batch.tables.contiguous()
    num_chunks, _, num_pages = tables.shape
    taken = [
        *(tensor.data_ptr() for tensor in (mixer.taps, mixer.decay, mixer.bias, mixer.norm.gain)),
        spec.num_key_heads, spec.num_heads, spec.num_neighbours, spec.key_dim, spec.value_dim, spec.num_taps,
        state[0].shape[2], num_pages, batch.num_tile_pages, len(state),
    ]  # fmt: skip
    for memory in state:
        taken += memory.data_ptr(), memory.stride(0) * memory.itemsize
    written = [
        part
        for chunk, writes in batch.state_writes.items()
        for write in writes
        for part in (chunk, write.position, write.pages.data_ptr())
    ]
    net, writes = (calls.keep(torch.tensor(numbers, dtype=torch.int64)) for numbers in (taken, written))
    out = calls.empty((len(inputs), spec.num_outputs), inputs.dtype)
    calls.delta_net(
        net.data_ptr(), inputs.data_ptr(), rates.data_ptr(), out.data_ptr(), batch.starts.data_ptr(),
        batch.contexts.data_ptr(), tables.data_ptr(), writes.data_ptr(), len(written) // 3, num_chunks,
        mixer.norm.eps, inputs.dtype is torch.bfloat16,
    )  # fmt: skip
    return out
