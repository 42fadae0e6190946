"""FlashInfer's part in a step: the plans it makes on the host beforehand, and the attention of all rows by them.

    decodes of a captured step   a wrapper for each rung of the ladder; its lists stay where they were captured
    decodes of another step      one wrapper
    prompt chunks                one wrapper

Always: nothing that is still to travel from the host is written over. Padding is a request of one token in the first
page of row 0 of the tables: FlashInfer plans no request without pages.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.runner.cuda.attention.flashinfer import FlashKernels
from chairlift.runner.cuda.attention.pages import list_pages_kernel
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.machine.to_device import on_host

_ALIGNED = 64  # entries, so that every list begins where any kernel may read it
_INTS_BYTES = 2**20  # of a plan for a captured step
_LISTED = 64  # pages that a program lists in one go


@dataclass(frozen=True, slots=True)
class FlashPlan:
    """A step, planned; until the next one is."""

    parts: tuple[tuple[int, int, Any], ...]  # rows, and the wrapper that computes them

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
        """q [T, heads, head_dim] -> out [T, heads * head_dim]"""
        for low, high, wrapper in self.parts:
            wrapper.run(q[low:high], (keys, values), out=out[low:high].view_as(q[low:high]))


class FlashPlanner:
    def __init__(self, kernels: FlashKernels, tables: Tensor, max_tokens: int, max_padded: int) -> None:
        self._kernels = kernels
        self._tables = tables
        # Four lists of at most max_tokens + 1 entries each.
        size = 4 * _aligned(max_tokens + 1)
        self._pinned = on_host((size,), torch.int32, tables.device)
        self._lists = torch.zeros(size, dtype=torch.int32, device=tables.device)
        self._pages = torch.zeros(tables.numel() + max_padded, dtype=torch.int32, device=tables.device)
        self._sent = torch.cuda.Event()
        self._wrappers = _Wrappers(kernels, self._pages, max_padded)

    @staticmethod
    def can_capture(step: StepInput) -> bool:
        """A step of decodes alone."""
        return len(step.counts) == step.num_tokens

    def plan(self, step: StepInput, num_padded: int | None) -> FlashPlan:
        """After the step's block tables are sent."""
        lists = page_lists(step, self._kernels.block_size, num_padded)
        host, device = self._send(lists)
        counts = np.diff(lists[3])
        num_decodes = len(counts) if counts.max() == 1 else int((counts > 1).argmax())  # in front
        num_rows = int(counts.sum())
        parts: list[tuple[int, int, Any]] = []
        if num_decodes:
            decodes = self._wrappers.plan_decodes(host[:, : num_decodes + 1], device, num_padded)
            parts.append((0, num_decodes, decodes))
        if num_decodes < num_rows:
            parts.append((num_decodes, num_rows, self._wrappers.plan_prompts(host[:, num_decodes:])))
        self._sent.record()
        return FlashPlan(tuple(parts))

    def _send(self, lists: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        """Sends the lists and lists their pages. -> (on the host, on the device)"""
        length = lists.shape[1]
        size = _aligned(length)
        self._sent.synchronize()  # the lists and plans of the step before have travelled then
        host, device = (memory[: 4 * size].view(4, size) for memory in (self._pinned, self._lists))
        host.numpy()[:, :length] = lists
        device.copy_(host, non_blocking=True)
        list_pages_kernel[(length - 1,)](
            self._tables, device[0], device[1], self._pages, self._tables.shape[1], BLOCK=_LISTED
        )
        return host[:, :length], device[:, :length]


class _Wrappers:
    def __init__(self, kernels: FlashKernels, pages: Tensor, max_padded: int) -> None:
        import flashinfer

        self._library = flashinfer
        self._kernels = kernels
        self._pages = pages
        num_processors = torch.cuda.get_device_properties(pages.device).multi_processor_count
        num_bytes = _space_bytes(kernels, num_processors, max_padded)
        self._space = torch.zeros(num_bytes, dtype=torch.uint8, device=pages.device)
        self._ints = torch.zeros(_INTS_BYTES, dtype=torch.uint8, device=pages.device)
        self._prompts = flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._space, "HND")
        self._decodes = self._make_decodes()
        self._captured: dict[int, Any] = {}

    def _make_decodes(self, **buffers: Any) -> Any:
        make = self._library.BatchDecodeWithPagedKVCacheWrapper
        return make(self._space, "HND", use_tensor_cores=self._kernels.decodes_by_tensor_cores, **buffers)

    def plan_decodes(self, host: Tensor, device: Tensor, num_padded: int | None) -> Any:
        _, starts, lasts, _ = host
        num_rows = len(starts) - 1
        if num_padded is None:
            wrapper = self._decodes
            plan = wrapper.plan
        elif num_padded in self._captured:
            wrapper = self._captured[num_padded]
            # The lists are in place already: this copies none of them, nor looks at their entries one by one.
            plan = partial(self._library.fast_decode_plan, wrapper)
        else:
            wrapper = self._captured[num_padded] = self._make_decodes(
                use_cuda_graph=True,
                paged_kv_indptr_buffer=device[1],
                paged_kv_indices_buffer=self._pages,
                paged_kv_last_page_len_buffer=device[2, :num_rows],
            )
            wrapper.reset_workspace_buffer(self._space, self._ints)  # which all captured steps share
            plan = wrapper.plan
        plan(starts, self._pages, lasts[:num_rows], *self._heads(), **self._rest())
        return wrapper

    def plan_prompts(self, host: Tensor) -> Any:
        _, starts, lasts, firsts = host
        firsts = firsts - firsts[0]
        longest = int(firsts.diff().max())
        self._prompts.plan(
            firsts, starts, self._pages, lasts[: len(starts) - 1], *self._heads(),
            causal=True, max_token_per_sequence=longest, **self._rest(),
        )  # fmt: skip
        return self._prompts

    def _heads(self) -> tuple[int, int, int, int]:
        spec = self._kernels.spec
        return spec.num_heads, spec.num_kv_heads, spec.head_dim, self._kernels.block_size

    def _rest(self) -> dict[str, Any]:
        spec, dtype = self._kernels.spec, self._kernels.dtype
        left = spec.window - 1  # keys before its own that a query sees; -1: all
        return {"window_left": left, "sm_scale": spec.scale, "q_data_type": dtype, "kv_data_type": dtype}


def page_lists(step: StepInput, block_size: int, num_padded: int | None) -> NDArray[np.int32]:
    """What FlashInfer has to know of n requests: [4, n + 1]; the last entry of a row of n has no meaning.

    the row of its block table
    where its pages begin among all that are listed
    tokens in its last page
    where its queries begin
    """
    counts = step.counts
    ends = np.cumsum(counts) - 1
    contexts, table_rows = step.columns.positions[ends] + 1, step.columns.table_rows[ends]
    if num_padded is not None:
        padding = np.zeros(num_padded - len(counts), np.int32)
        counts, contexts = np.append(counts, padding + 1), np.append(contexts, padding + 1)
        table_rows = np.append(table_rows, padding)
    lists = np.zeros((4, len(counts) + 1), np.int32)
    lists[0, :-1] = table_rows
    np.cumsum(-(-contexts // block_size), out=lists[1, 1:])
    lists[2, :-1] = (contexts - 1) % block_size + 1
    np.cumsum(counts, out=lists[3, 1:])
    return lists


def _space_bytes(kernels: FlashKernels, num_processors: int, max_padded: int) -> int:
    """Room for queries with split keys, which FlashInfer keeps until it joins them: by its own rules.

    In a step that is not captured it splits until the device is full twice, with tiles of up to 128 queries. In a
    captured one of decodes on tensor cores it keeps room for all tiles there may ever be.
    """
    heads, group = kernels.spec.num_heads, kernels.spec.num_heads // kernels.spec.num_kv_heads
    num_rows = 2 * num_processors * group * 128
    if kernels.decodes_by_tensor_cores:
        tile = 16 if group <= 16 else 64 if group <= 64 else 128
        num_rows = max(num_rows, heads * (max_padded * (group + tile) + tile))
    return num_rows * (kernels.spec.head_dim + 1) * 4 + 2**20


def _aligned(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED
