"""Gated delta nets by kernels: a step's tokens on paged states.

    products -> convolve, tiles (all at once) -> walk (tile after tile) -> finish -> rows for the output's matrix
                                                 or stream, on Hopper, where no request has tokens of two tiles

Always: a row's bits depend on the tokens of its request alone: a tile is computed in one form, whole, cut or a token at
a time. Nothing waits for the device.
"""

from math import gcd
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs

from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.runner.cuda.dependent_launch import FEW, dependent
from chairlift.runner.cuda.recurrent.convolve_kernel import convolve_kernel
from chairlift.runner.cuda.recurrent.finish_kernel import finish_kernel
from chairlift.runner.cuda.recurrent.tiles_kernel import tiles_kernel
from chairlift.runner.cuda.recurrent.walk_kernel import walk_kernel
from chairlift.runner.cuda.step.states import States
from chairlift.runner.cuda.target import arch
from chairlift.runner.mixers.delta_net import EPS, DeltaNet
from chairlift.runner.mixers.mixer import State

_SLICE = 64  # values of a head that a program of the walk has
_SLICE_OF_HALF = 32  # of float16, as Triton 3.6 does not compile more
_WARPS = 4
_SHARE, _ROWS = 256, 4  # channels and rows that a program of the convolution has
_PIECE = 64  # keys of a state that are multiplied at once where it is streamed
_STREAM_WARPS = 4
_STREAM_REGISTERS = 128  # so that four programs fit
_TILE_WARPS = 2
_HOPPER = 90
_RUN = 16  # numbers that are looked up at once, at most


def delta_net(inputs: Tensor, rates: Tensor, mixer: DeltaNet, state: State, tables: Tensor, states: States) -> Tensor:
    """inputs [T, channels + outputs], rates [T, 2 * heads] -> [T, outputs]. tables: of the layer's group."""
    spec, kind, device = mixer.spec, inputs.dtype, inputs.device
    first, second = state
    size = first.shape[2]
    spans, units, writes, first_page, num_tile_pages, num_state_pages, is_single = states
    num_units = len(units)
    squares = (num_units, spec.num_heads, size, size)
    heads = torch.empty(num_units * size, spec.num_channels, dtype=kind, device=device)
    factors, sums, inverses, scores = (
        torch.empty(shape, dtype=torch.float32, device=device)
        for shape in ((num_units, size, 2 * spec.num_key_heads), squares[:3], squares, squares)
    )
    out = torch.empty(len(inputs), spec.num_outputs, dtype=kind, device=device)
    page = first[0].numel() * first.element_size()  # bytes in each tensor
    shape: dict[str, Any] = {
        "KEY_HEADS": spec.num_key_heads, "HEADS": spec.num_heads, "KEY": spec.key_dim, "VALUE": spec.value_dim,
        "C": size, "TILE_PAGES": num_tile_pages, "HALF_PAGES": num_tile_pages + num_state_pages,
        "enable_fp_fusion": False, **dependent(len(spans) <= FEW),
    }  # fmt: skip
    size_of_page = page // kind.itemsize
    run = gcd(_RUN, size_of_page, spec.num_channels, spec.fixed.row)  # numbers that lie in one page
    narrow = {
        "TAPS": spec.num_taps, "SIZE": size_of_page, "NARROW": spec.fixed.wide * 4 // kind.itemsize, "RUN": run,
        "num_warps": 4,
    }  # fmt: skip
    share = triton.cdiv(spec.num_channels, spec.num_heads * run) * run  # channels that a head keeps
    memories = first.view(kind), second.view(kind)
    is_wide, width = kind is torch.float32, _SLICE_OF_HALF if kind is torch.float16 else _SLICE
    to_write = writes, writes.stride(0), 1 + first_page
    convolve_kernel[(num_units, triton.cdiv(spec.num_channels, _SHARE), size // _ROWS)](
        inputs, *memories, tables, spans, units, writes, mixer.taps, heads, inputs.stride(0), tables.stride(0),
        *to_write[1:], SHARE=_SHARE, ROWS=_ROWS, **shape, **narrow | {"num_warps": 1},
    )  # fmt: skip
    tiles_kernel[(num_units, spec.num_heads)](
        rates, *memories, tables, spans, units, mixer.decay, mixer.bias, heads, factors, sums, inverses, scores,
        tables.stride(0), EPS, spec.key_dim**-0.5, NEIGHBOURS=spec.num_neighbours, SIZE=size_of_page, IS_WIDE=is_wide,
        num_warps=4 if is_wide else _TILE_WARPS, **shape,
    )  # fmt: skip
    wide_memories = first.view(torch.float32), second.view(torch.float32)
    walked = heads, factors, sums, inverses, scores, *wide_memories, tables, spans, writes, out, tables.stride(0)
    if is_single and kind is torch.bfloat16 and _streams(spec):
        from chairlift.runner.cuda.recurrent.stream_kernel import stream_kernel

        of_program = 16 * _STREAM_WARPS  # values
        stream_kernel[(spec.value_dim // of_program, spec.num_heads, len(spans))](
            *walked, *to_write[1:], spec.num_key_heads, spec.num_heads, spec.num_neighbours, spec.key_dim,
            spec.value_dim, of_program, _PIECE, size, page // 4, num_tile_pages, shape["HALF_PAGES"], _STREAM_WARPS,
            num_warps=_STREAM_WARPS, maxnreg=_STREAM_REGISTERS, enable_fp_fusion=False, launch_pdl=len(spans) <= FEW,
        )  # fmt: skip
    else:
        walk_kernel[(triton.cdiv(spec.value_dim, width), spec.num_heads, len(spans))](
            *walked, *to_write[1:], SLICE=min(width, spec.value_dim), SIZE=page // 4, NEIGHBOURS=spec.num_neighbours,
            IS_WIDE=is_wide, num_warps=_WARPS, num_stages=2, **shape,
        )  # fmt: skip
    finish_kernel[(num_units, spec.num_heads)](
        out, inputs, rates, *memories, tables, spans, units, mixer.norm.gain, inputs.stride(0), tables.stride(0),
        mixer.norm.eps, SHARE=share, **shape, **narrow,
    )  # fmt: skip
    return out


def _streams(spec: DeltaNetSpec) -> bool:
    is_hopper = not knobs.runtime.interpret and arch() == _HOPPER
    return is_hopper and spec.value_dim % (16 * _STREAM_WARPS) == 0 and spec.key_dim % _PIECE == 0
