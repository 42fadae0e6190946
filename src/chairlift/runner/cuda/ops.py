"""`CudaOps`: the model's operations by Triton kernels and cuBLAS, for steps laid out as a `CudaBatch`."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
import triton
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.cuda.attention import exact as exact_attention
from chairlift.runner.cuda.attention.exact_trial import can_fuse
from chairlift.runner.cuda.attention.one_row import attend_grouped_row, attend_one_row, is_plain, takes_grouped
from chairlift.runner.cuda.attention.paged import (
    combine_kernel,
    fitting,
    group,
    grouped_options,
    partial_kernel,
    single_kernel,
)
from chairlift.runner.cuda.attention.prefill import prefill_kernel, prompt_options
from chairlift.runner.cuda.dependent_launch import FEW, dependent
from chairlift.runner.cuda.experts.experts import add_experts
from chairlift.runner.cuda.experts.matrices import CudaExperts
from chairlift.runner.cuda.experts.packed import packed_experts
from chairlift.runner.cuda.hopper import Hopper
from chairlift.runner.cuda.kernels import (
    activate_kernel,
    cap_kernel,
    gate_kernel,
    prepare_kernel,
    rotate_store_kernel,
    store_kernel,
    whole_row,
)
from chairlift.runner.cuda.norms import add_norm, norm_rows, norm_twice
from chairlift.runner.cuda.products.exact import ExactWeight, ProductTrials
from chairlift.runner.cuda.products.fp8 import StoredFp8Weight
from chairlift.runner.cuda.products.int4 import int4
from chairlift.runner.cuda.products.int4_weight import Int4Weight
from chairlift.runner.cuda.products.one_row import gated, is_one_row, one_row
from chairlift.runner.cuda.products.packed import PACKED_KINDS, Packed, PackedWeight, Scratch, pack_all
from chairlift.runner.cuda.recurrent.delta_net import delta_net
from chairlift.runner.cuda.step.batch import CudaBatch, parts
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.mixers.delta_net import DeltaNet
from chairlift.runner.mixers.mixer import State
from chairlift.runner.ops import (
    PLAIN,
    Adding,
    Attention,
    Batch,
    Experts,
    ExpertWeight,
    Keeps,
    KeepsExperts,
    Norm,
    Weight,
)
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.mxfp4 import MXFP4
from chairlift.runner.weights.quantised import FP8
from chairlift.runner.weights.source import Stored

_STRETCH = 1024  # of a row: one program's share of an activation


def kernel_rows(num_rows: int) -> int:
    """The same for numbers of rows that launch the same kernels; 0: many."""
    return next((rows for rows in (1, 8, 16, 32, FEW) if num_rows <= rows), 0)


@runtime_checkable
class FusesGate(Protocol):
    def gated(self, x: Tensor, activation: str) -> Tensor | None:
        """activation(first half of the product) * second half; None: no kernel does both."""


class CudaWeight:
    """A matrix of 16 bits. Which kernels take few rows is known once `choose_kernels` has tried them."""

    def __init__(self, matrix: Tensor, bias: Tensor | None, hopper: Hopper) -> None:
        self.matrix = matrix.contiguous()
        self.bias = bias
        self._hopper = hopper

    def linear(self, x: Tensor) -> Tensor:
        if is_one_row(x):
            return one_row(x, self.matrix, self.bias, x.dtype)
        if (few_rows := self._hopper.few_rows) and few_rows.takes(x, self.matrix):
            return few_rows.multiply(x, self.matrix, self.bias, x.dtype)
        return torch.nn.functional.linear(x, self.matrix, self.bias)

    def gated(self, x: Tensor, activation: str) -> Tensor | None:
        if self.bias is not None:
            return None
        if is_one_row(x):
            return gated(x, self.matrix, activation)
        if (few_rows := self._hopper.few_rows) and few_rows.takes(x, self.matrix):
            return few_rows.multiply(x, self.matrix, None, x.dtype, activation)
        return None

    def logits(self, x: Tensor) -> Tensor:
        # Not rounded to 16 bits: close logits would become equal and the wrong one win.
        if is_one_row(x):
            return one_row(x, self.matrix, self.bias, torch.float32)
        if (few_rows := self._hopper.few_rows) and few_rows.takes(x, self.matrix):
            return few_rows.multiply(x, self.matrix, self.bias, torch.float32)
        if not x.is_cuda or x.dtype is torch.float32:
            return self.linear(x).float()
        out = torch.mm(x, self.matrix.t(), out_dtype=torch.float32)
        return out if self.bias is None else out + self.bias

    def rows(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.embedding(ids, self.matrix)


class CudaOps:
    """exact: a row's bits do not depend on what shares its step. fp8: the GPU multiplies it."""

    def __init__(self, exact: bool = False, fp8: bool = False) -> None:
        self._exact = self.is_exact = exact
        self._fp8 = fp8
        self._scratch = Scratch()
        self._hopper = Hopper()
        self._trials = ProductTrials(hopper=self._hopper)
        self._fused: dict[AttentionSpec, bool] = {}  # whether one kernel computes a single row
        self._has_mxfp4 = False  # experts of these weights
        self._has_int4 = False
        self._counters: Tensor | None = None  # int32 [K], of those kernels; all 0 between launches

    def choose_kernels(
        self, attentions: Sequence[Attention], dtype: torch.dtype, block_size: int, width: int, device: torch.device
    ) -> None:
        """For these layers, before any step; width: of block tables."""
        self._hopper.begin(device, self._has_mxfp4, self._has_int4)
        self._counters = torch.zeros(max(a.spec.num_kv_heads for a in attentions), dtype=torch.int32, device=device)
        for attention in {a.spec: a for a in attentions}.values():
            spec = attention.spec
            if spec.has_sinks or _grows_late(attention):
                self._fused[spec] = False
            elif not self._exact:
                self._fused[spec] = spec.has_groups or is_plain(attention)
            elif device.type == "cuda":
                self._fused[spec] = can_fuse(self.rotate_and_store, attention, dtype, block_size, width, device)
            else:  # without a device there is nothing to try
                self._fused[spec] = is_plain(attention) and not spec.has_qk_norm

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        return ExactWeight(matrix, bias, self._trials) if self._exact else CudaWeight(matrix, bias, self._hopper)

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        return norm_rows(x, norm)

    def norms(self, x: Tensor, norms: Sequence[Norm]) -> Sequence[Tensor]:
        return norm_twice(x, norms)

    def add_norm(self, x: Tensor, residual: Tensor, norm: Norm | None, adding: Adding = PLAIN) -> tuple[Tensor, Tensor]:
        return add_norm(self, x, residual, norm, adding)

    def attend(self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        assert isinstance(batch, CudaBatch)
        factors = attention.query_factors
        is_late = _grows_late(attention)
        if attention.spec.has_wide_qk_norm or (factors is not None and not is_late):
            self.prepare(qkv, attention, batch)
        if len(qkv) == 1 and self._counters is not None and self._fused[attention.spec]:
            if self._exact and batch.tiles is None:
                return exact_attention.attend_one_row(qkv, attention, keys, values, batch, self._counters)
            if not self._exact and is_one_row(qkv) and batch.planned is None:
                if not attention.spec.has_groups:
                    return attend_one_row(qkv, attention, keys, values, batch, self._counters)
                if takes_grouped(attention.spec, batch, keys):
                    return attend_grouped_row(qkv, attention, keys, values, batch, self._counters)
        q = self.rotate_and_store(qkv, attention, keys, values, batch)
        if factors is not None and is_late:
            q *= factors[batch.positions.clamp(min=0)].view(-1, 1, 1)
        return self.attention(q, attention.spec, keys, values, batch, attention.sinks)

    @staticmethod
    def prepare(qkv: Tensor, attention: Attention, batch: Batch) -> None:
        """What comes before rotation and is no part of its kernels, in place."""
        spec, factors = attention.spec, attention.query_factors
        q_width, k_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        gains = (attention.q_norm, attention.k_norm) if spec.has_wide_qk_norm else (None, None)
        prepare_kernel[(len(qkv), 2 if spec.has_wide_qk_norm else 1)](
            qkv, batch.positions, *gains, factors, attention.eps, q_width, k_width, qkv.shape[1],
            HAS_NORM=spec.has_wide_qk_norm, HAS_FACTORS=factors is not None, **whole_row(q_width),
            **dependent(len(qkv) <= FEW),
        )  # fmt: skip

    def rotate_and_store(self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """Queries [T, heads, head_dim]; keys and values, where the layer has them, are in the cache then."""
        _, kv_heads, block_size, head_dim = keys.shape
        kv_heads *= attention.spec.has_own_rows
        heads, q_norm, v_norm = attention.spec.num_heads, attention.q_norm, attention.v_norm
        out = torch.empty(len(qkv), heads, head_dim, dtype=qkv.dtype, device=qkv.device)
        rotate_store_kernel[(len(qkv),)](
            qkv, out, attention.rotation, batch.positions, batch.slots, keys, values, q_norm,
            attention.k_norm if kv_heads else q_norm, v_norm and v_norm.gain, attention.eps,
            HEADS=heads, KV_HEADS=kv_heads, Q_ROWS=triton.next_power_of_2(heads),
            KV_ROWS=triton.next_power_of_2(max(1, kv_heads)), DIM=head_dim, SIZE=block_size,
            HAS_NORM=attention.spec.has_qk_norm, HAS_VALUE_NORM=v_norm is not None,
            HAS_VALUES=not attention.spec.has_keys_as_values,
            num_warps=8, enable_fp_fusion=not self._exact,  # as the kernel of a single row has it
            **dependent(len(qkv) <= FEW),
        )  # fmt: skip
        return out

    def store(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> None:
        """k and v may be views whose heads are rows: only their last side has to be dense."""
        _, kv_heads, block_size, head_dim = keys.shape
        store_kernel[(len(k),)](
            k, v, batch.slots, keys, values, k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            KV_HEADS=kv_heads, KV_ROWS=triton.next_power_of_2(kv_heads), DIM=head_dim, SIZE=block_size, num_warps=4,
        )  # fmt: skip

    def attention(
        self, q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: Batch, sinks: Tensor | None = None
    ) -> Tensor:
        """Causal attention of each row over its own context. -> [T, heads * head_dim]"""
        assert isinstance(batch, CudaBatch)
        num_rows, heads, head_dim = q.shape
        out = torch.empty(num_rows, heads * head_dim, dtype=q.dtype, device=q.device)
        if self._exact:
            exact_attention.attend_prompts(q, spec, keys, values, batch, out, sinks)
            exact_attention.attend_rows(q, spec, keys, values, batch, out, sinks)
            return out
        if batch.planned is not None:
            batch.planned.attend(q, keys, values, out)
            return out
        if batch.tiles is not None:
            self._attend_prompts(q, spec, keys, values, batch.tables, batch.tiles, out, sinks)
        if len(batch.short_positions):
            self._attend_by_row(q, spec, keys, values, batch, out, sinks)
        return out

    def _attend_prompts(
        self, q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, tables: Tensor, tiles: Tensor, out: Tensor,
        sinks: Tensor | None,
    ) -> None:  # fmt: skip
        if (prompts := self._hopper.prompts) and prompts.takes(q, spec, keys):
            prompts.attend(q, spec, keys, values, tables, tiles, out)
            return
        _, heads, head_dim = q.shape
        _, kv_heads, block_size, _ = keys.shape
        prefill_kernel[(heads, len(tiles))](
            q, keys, values, tables, tiles, sinks, out, spec.scale, spec.cap, spec.window, tables.shape[1],
            HEADS=heads, KV_HEADS=kv_heads, DIM=head_dim, SIZE=block_size, QUERIES=QUERIES,
            HAS_CAP=spec.cap > 0, HAS_SINKS=sinks is not None, **prompt_options(head_dim, keys.element_size()),
        )  # fmt: skip

    @staticmethod
    def _attend_by_row(
        q: Tensor, spec: AttentionSpec, keys: Tensor, values: Tensor, batch: CudaBatch, out: Tensor,
        sinks: Tensor | None,
    ) -> None:  # fmt: skip
        _, heads, head_dim = q.shape
        _, kv_heads, block_size, _ = keys.shape
        positions = batch.short_positions
        num_rows = len(positions)
        split, splits, tile, warps = batch.tiling
        tile = fitting(tile, head_dim, keys.element_size())
        is_dependent = len(q) <= FEW
        partials, stats = parts(num_rows, heads, splits, q) if splits > 1 else (out, out)
        inputs = (
            q, keys, values, batch.tables, batch.table_rows, positions, partials, stats, sinks, out, spec.scale,
            spec.cap, spec.window, batch.tables.shape[1], splits,
        )  # fmt: skip
        options = {
            "HEADS": heads, "DIM": head_dim, "SIZE": block_size, "SPLIT": split, "IS_SPLIT": splits > 1,
            "HAS_CAP": spec.cap > 0, "HAS_SINKS": sinks is not None, **dependent(is_dependent),
        }  # fmt: skip
        if heads == kv_heads:
            single_kernel[(num_rows, heads, splits)](*inputs, TILE=tile, num_warps=warps, **options)
        else:
            grouped = group(heads, kv_heads)
            partial_kernel[(num_rows, kv_heads, splits)](
                *inputs,
                KV_HEADS=kv_heads,
                GROUP=grouped,
                **grouped_options(tile, warps, head_dim, keys.element_size()),
                **options,
            )
        if splits > 1:
            combine_kernel[(num_rows, heads)](
                partials, stats, positions, sinks, out, spec.window, splits, HEADS=heads, DIM=head_dim, SPLIT=split,
                HAS_SINKS=sinks is not None, num_warps=2, **dependent(is_dependent),
            )  # fmt: skip

    def gate(self, x: Tensor, gates: Tensor) -> Tensor:
        num_rows, width = x.shape
        gate_kernel[(num_rows, triton.cdiv(width, _STRETCH))](
            x, gates, width, gates.stride(0), BLOCK=_STRETCH, IS_ONE=gates.shape[1] == 1, num_warps=4,
            **dependent(num_rows <= FEW),
        )  # fmt: skip
        return x

    def delta_net(self, inputs: Tensor, rates: Tensor, mixer: DeltaNet, state: State, batch: Batch) -> Tensor:
        assert isinstance(batch, CudaBatch)
        assert batch.states is not None
        return delta_net(inputs, rates, mixer, state, batch.tables, batch.states)

    def gated(self, weight: Weight, x: Tensor, activation: str) -> Tensor:
        if isinstance(weight, ExactWeight):
            return weight.gated(x, activation, self.activate)
        if isinstance(weight, FusesGate) and (out := weight.gated(x, activation)) is not None:
            return out
        return self.activate(weight.linear(x), activation)

    @property
    def keeps(self) -> Keeps:
        return dict.fromkeys(PACKED_KINDS, self.stored_weight)

    def stored_weight(self, parts: Sequence[Stored], bias: Tensor | None, dtype: torch.dtype) -> Weight:
        packed = pack_all(parts)
        is_paired = len(parts) == 2 and parts[0].shape == parts[1].shape
        if len(packed) == 1 and (matrix := int4(packed[0], is_paired)):
            self._has_int4 = True
            return Int4Weight(matrix, bias, dtype, self._scratch, self.weight, self._hopper, self._exact)
        weight = PackedWeight(packed, bias, dtype, self._scratch, self.weight)
        if not self._fp8 or self._exact or not _is_of_rows(parts, packed) or dtype is not torch.bfloat16:
            return weight
        (part,) = packed
        return StoredFp8Weight(part.codes.view(torch.float8_e4m3fn), part.scales.float(), bias, weight)

    def expert_weight(self, matrix: Tensor, bias: Tensor | None = None) -> ExpertWeight:
        return CudaExperts(matrix.contiguous(), bias)

    @property
    def keeps_experts(self) -> KeepsExperts:
        return dict.fromkeys(PACKED_KINDS, self.stored_experts) | {MXFP4: self.mxfp4_experts}

    def stored_experts(self, parts: Sequence[Stored], bias: Tensor | None, dtype: torch.dtype) -> ExpertWeight:
        """Of one value, [experts, out, in]."""
        (whole,) = parts
        return packed_experts(whole, bias, dtype, self._scratch)

    def mxfp4_experts(self, parts: Sequence[Stored], bias: Tensor | None, dtype: torch.dtype) -> ExpertWeight:
        """Of one value, its blocks as `mxfp4.in_halves` has them."""
        ((blocks, scales),) = (part.tensors for part in parts)
        self._has_mxfp4 = True
        return CudaExperts(blocks, bias, scales)

    def experts(self, x: Tensor, experts: Experts, shared: Tensor | None, seen: Tensor | None = None) -> Tensor:
        return add_experts(x, experts, shared, seen, self._exact, self._hopper.experts)

    def activated(self, weight: Weight, x: Tensor, activation: str, times: Tensor | None = None) -> Tensor:
        if type(weight) is CudaWeight and times is not None and is_one_row(x):
            return one_row(x, weight.matrix, weight.bias, x.dtype, activation=activation, times=times)
        return self.activate(weight.linear(x), activation, has_gate=False, times=times)

    def activate(
        self, gate_up: Tensor, activation: str, has_gate: bool = True, times: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """[T, 2 * F] -> activation(first half) * second half, [T, F]; without a gate [T, F] -> activation(all), times
        as many numbers where they are given."""
        width = gate_up.shape[-1] // (2 if has_gate else 1)
        out = torch.empty(len(gate_up), width, dtype=gate_up.dtype, device=gate_up.device)
        activate_kernel[(len(gate_up), triton.cdiv(width, _STRETCH))](
            gate_up, times, out, width, 0 if times is None else times.stride(0),
            BLOCK=_STRETCH, ACTIVATION=activation, HAS_GATE=has_gate, HAS_TIMES=times is not None, num_warps=4,
            **dependent(True),
        )  # fmt: skip
        return out

    def cap(self, logits: Tensor, cap: float) -> Tensor:
        logits = logits.contiguous()
        cap_kernel[(len(logits), triton.cdiv(logits.shape[1], _STRETCH))](
            logits, logits.shape[1], cap, BLOCK=_STRETCH, num_warps=4
        )
        return logits

    def argmax(self, logits: Tensor) -> Tensor:
        return TorchOps().argmax(logits)


def _is_of_rows(parts: Sequence[Stored], packed: Sequence[Packed]) -> bool:
    """In fp8, as tensor cores multiply it: a scale for each row, and sides that are multiples of 16."""
    (rows, columns), is_one = packed[0].codes.shape, len(packed) == 1
    return is_one and parts[0].kind == FP8 and parts[0].group == columns and not rows % 16 and not columns % 16


def _grows_late(attention: Attention) -> bool:
    """Queries grow with their position after norms of heads, which would undo what came before."""
    return attention.query_factors is not None and attention.spec.has_qk_norm
