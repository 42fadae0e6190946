"""A stand-in for the parts of FlashInfer that are used, in plain torch: known answers, no GPU, no compiler.

As the real one, a wrapper in graph mode reads the buffers it was given, whatever its plan was told; a planned wrapper
answers by its last plan; and a request without pages is none it was made for.
"""

from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


class Wrapper:
    def __init__(self, space: Tensor, layout: str, **options: Any) -> None:
        assert layout == "HND"
        self.options = options
        self.is_captured = options.get("use_cuda_graph", False)
        self.num_plans = 0

    def reset_workspace_buffer(self, space: Tensor, ints: Tensor) -> None: ...

    def keep(self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, copies: bool) -> None:
        assert len(indptr) == len(last_page_len) + 1
        assert bool((indptr.diff() > 0).all())
        assert bool((last_page_len > 0).all())
        self.num_plans += 1
        if not self.is_captured:
            self.indptr, self.indices, self.last_page_len = indptr.clone(), indices, last_page_len.clone()
            return
        self.indptr = self.options["paged_kv_indptr_buffer"]
        self.indices = self.options["paged_kv_indices_buffer"]
        self.last_page_len = self.options["paged_kv_last_page_len_buffer"]
        assert len(last_page_len) == len(self.last_page_len)
        if copies:
            self.indptr.copy_(indptr)
            self.last_page_len.copy_(last_page_len)
            self.indices[: len(indices)].copy_(indices)

    def answer(self, q: Tensor, cache: tuple[Tensor, Tensor], out: Tensor, firsts: list[int]) -> None:
        assert out.shape == q.shape
        assert len(q) == firsts[-1]
        for r, (first, end) in enumerate(pairwise(firsts)):
            pages = self.indices[self.indptr[r] : self.indptr[r + 1]].long()
            size = cache[0].shape[2]
            context = (len(pages) - 1) * size + int(self.last_page_len[r])
            k, v = (memory[pages].transpose(1, 2).flatten(0, 1)[:context] for memory in cache)  # [L, kv_heads, dim]
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
            scores = torch.einsum("qhd,lhd->hql", q[first:end], k) * self.scale
            own = torch.arange(context - (end - first), context)[:, None]
            at = torch.arange(context)
            is_seen = at <= own
            if self.window_left >= 0:
                is_seen &= at >= own - self.window_left
            scores = scores.masked_fill(~is_seen, float("-inf")).softmax(-1)
            out[first:end] = torch.einsum("hql,lhd->qhd", scores, v)


class BatchPrefillWithPagedKVCacheWrapper(Wrapper):
    def plan(
        self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor,
        num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int, *, causal: bool, window_left: int,
        sm_scale: float, q_data_type: torch.dtype, kv_data_type: torch.dtype, max_token_per_sequence: int,
    ) -> None:  # fmt: skip
        assert causal
        assert max_token_per_sequence == int(qo_indptr.diff().max())
        self.keep(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, copies=True)
        self.firsts, self.window_left, self.scale = qo_indptr.tolist(), window_left, sm_scale

    def run(self, q: Tensor, cache: tuple[Tensor, Tensor], *, out: Tensor) -> None:
        self.answer(q, cache, out, self.firsts)


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    def plan(
        self, indptr: Tensor, indices: Tensor, last_page_len: Tensor, num_qo_heads: int, num_kv_heads: int,
        head_dim: int, page_size: int, *, window_left: int, sm_scale: float, q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:  # fmt: skip
        self.keep(indptr, indices, last_page_len, copies=True)
        self.window_left, self.scale = window_left, sm_scale

    def run(self, q: Tensor, cache: tuple[Tensor, Tensor], *, out: Tensor) -> None:
        self.answer(q, cache, out, list(range(len(self.last_page_len) + 1)))


def fast_decode_plan(
    wrapper: BatchDecodeWithPagedKVCacheWrapper, indptr: Tensor, indices: Tensor, last_page_len: Tensor, *rest: int,
    **more: Any,
) -> None:  # fmt: skip
    assert wrapper.num_plans > 0
    assert wrapper.is_captured
    wrapper.keep(indptr, indices, last_page_len, copies=False)


class Spec:
    """A kernel to compile, by the arguments that make it what it is."""

    def __init__(self, *kind: Any) -> None:
        self.kind = kind
        self.is_compiled = False


def gen_batch_prefill_module(*kind: Any) -> Spec:
    return Spec("prefill", *kind)


def gen_batch_decode_module(*kind: Any) -> Spec:
    return Spec("decode", *kind)


def make_library(built: list[Spec], failure: Exception | None = None) -> dict[str, ModuleType]:
    """Modules by name; what is compiled goes into `built`, unless compiling fails."""

    def build_jit_specs(specs: list[Spec], verbose: bool) -> None:
        if failure is not None:
            raise failure
        built.extend(specs)

    names = ("flashinfer", "flashinfer.jit", "flashinfer.utils")
    top, jit, utils = modules = [ModuleType(name) for name in names]
    top.__spec__ = ModuleSpec("flashinfer", None)
    vars(jit).update(
        gen_batch_prefill_module=gen_batch_prefill_module,
        gen_batch_decode_module=gen_batch_decode_module,
        build_jit_specs=build_jit_specs,
    )
    vars(utils).update(determine_attention_backend=lambda *_: "fa3")
    vars(top).update(
        jit=jit,
        utils=utils,
        fast_decode_plan=fast_decode_plan,
        BatchPrefillWithPagedKVCacheWrapper=BatchPrefillWithPagedKVCacheWrapper,
        BatchDecodeWithPagedKVCacheWrapper=BatchDecodeWithPagedKVCacheWrapper,
    )
    return dict(zip(names, modules, strict=True))
