"""Launches mixtures of experts: few rows read the experts that they chose, many are sorted by expert first."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
import triton
from torch import Tensor

from chairlift.models.spec import ExpertsSpec
from chairlift.runner.cuda.dependent_launch import FEW, dependent
from chairlift.runner.cuda.experts.few_rows_kernels import few_down_kernel, few_gated_kernel
from chairlift.runner.cuda.experts.grouped_kernel import grouped_kernel
from chairlift.runner.cuda.experts.matrices import CudaExperts
from chairlift.runner.cuda.experts.packed import widened
from chairlift.runner.cuda.experts.routing_kernels import combine_kernel, place_kernel, route_kernel
from chairlift.runner.cuda.target import stages_ahead
from chairlift.runner.ops import Experts
from chairlift.runner.torch import experts as torch_experts

if TYPE_CHECKING:
    from chairlift.runner.cuda.experts.hopper import HopperExperts

_MAX_FEW = 4  # rows that seldom share an expert
_MAX_FEW_MXFP4 = 2
_GATED_OUTPUTS, _DOWN_OUTPUTS = 2, 4  # of a program, of few rows
_DOWN_STRETCH = 256  # of the inputs of one expert
_MXFP4_STRETCH = 1024  # of either matrix: short ones are slow to compile
_PAIRS = 1024  # that a program sorts at a time
_COMBINED = 1024  # columns of a program


class ProductTile(Protocol):
    """Of a grouped product."""

    @property
    def rows(self) -> int: ...

    def multiply(
        self, x: Tensor, weight: CudaExperts, order: "Order", pairs_of_row: int, activation: str = ""
    ) -> Tensor:  # fmt: skip
        """As `grouped`."""


class Tile(NamedTuple):
    """Of the plain kernel."""

    outputs: int
    rows: int
    stretch: int  # of the sum that is read at a time
    warps: int
    stages: int  # that are read ahead, where there is memory for them

    def num_stages(self, itemsize: int) -> int:
        return stages_ahead(self.stages, (self.outputs + self.rows) * self.stretch * itemsize)

    def multiply(
        self, x: Tensor, weight: CudaExperts, order: "Order", pairs_of_row: int, activation: str = ""
    ) -> Tensor:  # fmt: skip
        return grouped(x, weight, order, self, pairs_of_row, activation)


# By the rows that an expert has on average: the first that has as many.
_TILES = (
    (8, Tile(64, 16, 128, 4, 4)),
    (24, Tile(64, 32, 128, 4, 4)),
    (64, Tile(128, 64, 64, 4, 4)),
    (1 << 62, Tile(128, 128, 64, 8, 4)),
)
_FEW_TILES = ((2, 8), (16, 16))  # likewise the rows of a tile of the kernel for Hopper
EXACT_TILE = Tile(64, 32, 128, 4, 3)  # of any number of rows: another may take numbers to the tensor cores otherwise
_UNCUT = Tile(64, 16, 32, 4, 2)  # for float32, which the tensor cores do not take as it is


def tile_of(num_rows: int, spec: ExpertsSpec, dtype: torch.dtype, exact: bool = False) -> Tile:
    if dtype is torch.float32:
        return _UNCUT
    each = num_rows * spec.num_chosen / spec.count
    return EXACT_TILE if exact else next(tile for most, tile in _TILES if each <= most)


def few_tile_of(num_rows: int, spec: ExpertsSpec) -> int | None:
    """Rows of a tile where an expert has so few that the kernel for Hopper is faster."""
    each = num_rows * spec.num_chosen / spec.count
    return next((rows for most, rows in _FEW_TILES if each <= most), None)


def kernel_kinds(num_rows: int, specs: Iterable[ExpertsSpec]) -> tuple[object, ...]:
    """The same for numbers of rows that launch the same kernels for these mixtures."""
    few = num_rows <= _MAX_FEW, num_rows <= _MAX_FEW_MXFP4
    return tuple((few, tile_of(num_rows, spec, torch.bfloat16), few_tile_of(num_rows, spec)) for spec in specs)


def add_experts(
    x: Tensor, experts: Experts, shared: Tensor | None, seen: Tensor | None, exact: bool,
    hopper: "HopperExperts | None",
) -> Tensor:  # fmt: skip
    """As `Ops.experts`. hopper: its kernel, where there is one."""
    logits = experts.router.logits(x if seen is None else seen)
    ids, weights = choose(logits, experts.rule, experts.correction, experts.factors)
    experts = widened(experts, ids)
    if not exact and len(x) <= (_MAX_FEW if _matrices(experts).scales is None else _MAX_FEW_MXFP4):
        return by_row(x, experts, ids, weights, shared)
    return by_expert(x, experts, ids, weights, shared, best_tile(x, experts, exact, hopper))


def best_tile(x: Tensor, experts: Experts, exact: bool, hopper: "HopperExperts | None") -> ProductTile:
    """Of many rows."""
    rows = few_tile_of(len(x), experts.rule)
    if hopper is not None and rows is not None and not exact and hopper.takes(x, _matrices(experts)):
        return hopper.tile(rows)
    return tile_of(len(x), experts.rule, x.dtype, exact)


def choose(
    logits: Tensor, spec: ExpertsSpec, correction: Tensor | None, factors: Tensor | None = None
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """logits [T, X] -> experts int32 [T, chosen], best first, and their weights, float32"""
    if spec.num_groups > 1:
        ids, weights = torch_experts.route(logits, spec, correction, factors)
        return ids.int(), weights
    num_rows, chosen = len(logits), spec.num_chosen
    ids = torch.empty(num_rows, chosen, dtype=torch.int32, device=logits.device)
    weights = torch.empty(num_rows, chosen, dtype=torch.float32, device=logits.device)
    route_kernel[(num_rows,)](
        logits, correction, factors, ids, weights, spec.count, spec.factor,
        BLOCK=triton.next_power_of_2(spec.count), CHOSEN=chosen, CHOICES=triton.next_power_of_2(chosen),
        SCORES=spec.scores, IS_NORMALISED=spec.is_normalised, HAS_CORRECTION=correction is not None,
        HAS_FACTORS=factors is not None, num_warps=1, **dependent(num_rows <= FEW),
    )  # fmt: skip
    return ids, weights


def by_row(x: Tensor, experts: Experts, ids: Tensor, weights: Tensor, shared: Tensor | None) -> Tensor:
    """Reads an expert once for each row that chose it."""
    gate_up, down, chosen = _matrices(experts), experts.down, ids.shape[1]
    assert isinstance(down, CudaExperts)
    num_rows, hidden = x.shape
    inner = gate_up.num_outputs // 2
    active = torch.empty(num_rows * chosen, inner, dtype=x.dtype, device=x.device)
    few_gated_kernel[(num_rows * chosen, triton.cdiv(inner, _GATED_OUTPUTS))](
        x, gate_up.matrix, gate_up.scales, gate_up.bias, ids, active, inner,
        WIDTH=hidden, OUTPUTS=_GATED_OUTPUTS, STRETCH=_stretch(hidden), CHOSEN=chosen,
        ACTIVATION=experts.spec.activation, HAS_BIAS=gate_up.bias is not None, IS_MXFP4=gate_up.scales is not None,
        num_warps=4, **dependent(True),
    )  # fmt: skip
    out = torch.empty_like(x)
    few_down_kernel[(num_rows, triton.cdiv(hidden, _DOWN_OUTPUTS))](
        active, down.matrix, down.scales, down.bias, ids, weights, shared, out, hidden,
        WIDTH=inner, OUTPUTS=_DOWN_OUTPUTS, STRETCH=_DOWN_STRETCH if down.scales is None else _MXFP4_STRETCH,
        CHOSEN=chosen, HAS_BIAS=down.bias is not None, HAS_SHARED=shared is not None,
        IS_MXFP4=down.scales is not None, num_warps=4, **dependent(True),
    )  # fmt: skip
    return out


def _stretch(width: int) -> int:
    return 2048 if width % 2048 == 0 else _MXFP4_STRETCH


def _matrices(experts: Experts) -> CudaExperts:
    assert isinstance(experts.gate_up, CudaExperts)
    return experts.gate_up


class Order(NamedTuple):
    """Pairs of rows and choices by expert, as `routing_kernels.py` has them."""

    pairs: Tensor  # int32 [P]
    tiles: Tensor  # int32 [most tiles, 3]
    num_tiles: Tensor  # int32 [1]


def sort(ids: Tensor, num_experts: int, rows: int) -> Order:
    """rows: of a tile."""
    num_pairs = ids.numel()
    most = min(num_pairs, (num_pairs + num_experts * (rows - 1)) // rows)
    pairs, num_tiles = (torch.empty(n, dtype=torch.int32, device=ids.device) for n in (num_pairs, 1))
    tiles = torch.empty(most, 3, dtype=torch.int32, device=ids.device)
    place_kernel[(num_experts,)](
        ids, pairs, tiles, num_tiles, num_pairs, num_experts, EXPERTS=triton.next_power_of_2(num_experts + 1),
        ROWS=rows, BLOCK=_PAIRS, num_warps=4,
    )  # fmt: skip
    return Order(pairs, tiles, num_tiles)


def by_expert(
    x: Tensor, experts: Experts, ids: Tensor, weights: Tensor, shared: Tensor | None, tile: ProductTile
) -> Tensor:  # fmt: skip
    """Reads an expert once for each tile of the rows that chose it."""
    gate_up, down, chosen = _matrices(experts), experts.down, ids.shape[1]
    assert isinstance(down, CudaExperts)
    order = sort(ids, experts.rule.count, tile.rows)
    active = tile.multiply(x, gate_up, order, chosen, experts.spec.activation)
    parts = tile.multiply(active, down, order, 1)
    out = torch.empty_like(x)
    combine_kernel[(len(x), triton.cdiv(x.shape[1], _COMBINED))](
        parts, weights, shared, out, x.shape[1],
        CHOSEN=chosen, BLOCK=_COMBINED, HAS_SHARED=shared is not None, num_warps=4, **dependent(False),
    )  # fmt: skip
    return out


def grouped(
    x: Tensor, weight: CudaExperts, order: Order, tile: Tile, pairs_of_row: int, activation: str = ""
) -> Tensor:  # fmt: skip
    """The product of each pair's row with the matrix of its expert, in the order of pairs. -> [P, out]"""
    width, num_outputs = x.shape[1], weight.num_outputs // (2 if activation else 1)
    each = tile.outputs // 2 if activation else tile.outputs
    out = torch.empty(len(order.pairs), num_outputs, dtype=x.dtype, device=x.device)
    grouped_kernel[(len(order.tiles) * triton.cdiv(num_outputs, each),)](
        x, weight.matrix, weight.scales, weight.bias, order.pairs, order.tiles, order.num_tiles, out, num_outputs,
        width,
        PAIRS=pairs_of_row, OUTPUTS=tile.outputs, ROWS=tile.rows, STRETCH=tile.stretch,
        IS_EVEN=width % tile.stretch == 0 and num_outputs % each == 0, ACTIVATION=activation,
        HAS_BIAS=weight.bias is not None, IS_MXFP4=weight.scales is not None, num_warps=tile.warps,
        num_stages=tile.num_stages(x.element_size()),
    )  # fmt: skip
    return out
