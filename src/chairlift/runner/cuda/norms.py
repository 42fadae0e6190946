"""Launches norms: of a row, of a sum with the residual, of what is added before it is."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from chairlift.runner.cuda.dependent_launch import FEW, dependent
from chairlift.runner.cuda.kernels import add_norm_kernel, whole_row
from chairlift.runner.ops import PLAIN, Adding, Norm, Ops, ends_normed


def norm_rows(x: Tensor, norm: Norm) -> Tensor:
    return _launch(x, None, norm, torch.empty_like(x))


def norm_twice(x: Tensor, norms: Sequence[Norm]) -> Sequence[Tensor]:
    """By two norms that see the same."""
    if len(norms) != 2 or not all(map(_is_plain, norms)) or norms[0].eps != norms[1].eps:
        return [norm_rows(x, norm) for norm in norms]
    first, second = torch.empty_like(x), torch.empty_like(x)
    _launch(x, None, norms[0], first, other=(norms[1].gain, second))
    return first, second


def add_norm(ops: Ops, x: Tensor, residual: Tensor, norm: Norm | None, adding: Adding) -> tuple[Tensor, Tensor]:
    """As `Ops.add_norm`."""
    ends = [each for each in (adding.after, adding.base) if each is not None]
    if not all(map(_is_plain, ends)) or len({each.eps for each in ends}) > 1:
        x, residual = ends_normed(ops, x, residual, adding)
        adding = replace(adding, after=None, base=None)
    out = residual if norm is None else torch.empty_like(x)
    return _launch(x, residual, norm, out, adding), residual


def _is_plain(norm: Norm) -> bool:
    return norm.bias is None and not norm.is_centred


def _launch(
    x: Tensor, residual: Tensor | None, norm: Norm | None, out: Tensor, adding: Adding = PLAIN,
    other: tuple[Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """other: the gain of a second norm, and where it goes."""
    width = x.shape[-1]
    gain, bias, eps = (None, None, 0.0) if norm is None else (norm.gain, norm.bias, norm.eps)
    ends = adding.after, adding.base
    end_eps = next((each.eps for each in ends if each is not None), 0.0)
    after, base = (None if each is None else each.gain for each in ends)
    other_gain, other_out = other or (None, None)
    add_norm_kernel[(len(x),)](
        x, residual, gain, bias, after, base, other_gain, out, other_out, width, eps, end_eps, adding.factor,
        adding.scale,
        HAS_RESIDUAL=residual is not None, HAS_GAIN=gain is not None, HAS_BIAS=bias is not None,
        IS_CENTRED=norm is not None and norm.is_centred, HAS_AFTER=after is not None, HAS_BASE=base is not None,
        HAS_OTHER=other is not None, **whole_row(width), **dependent(len(x) <= FEW),
    )  # fmt: skip
    return out
