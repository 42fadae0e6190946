"""Which part of a tensor each rank of a sharded MindSpore checkpoint has.

Strategy files say it: devices are arranged in a matrix, whose last axis counts fastest; each axis of the tensor is cut
along one axis of that matrix, counted from its end, or not at all (-1); the optimizer may cut what is left of the first
axis once more. Without them, ranks must have whole tensors, or slices along one axis in their own order.

    message ParallelStrategyMap { repeated ParallelLayoutItem item = 3; }
    message ParallelLayoutItem  { string param_name = 1; ParallelLayouts layouts = 2; }
    message ParallelLayouts     { Numbers dev_matrix = 1; Numbers tensor_map = 2; int32 opt_step = 6, opt_size = 7; }
    message Numbers             { repeated int64 dim = 1; }
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.protobuf import Field, fields

_MAX_FILE_BYTES = 256 << 20
_MAX_DEVICES = 1 << 20
_STAGE = re.compile(r"^\d+-")  # in front of names, where strategies of pipeline stages are merged
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    devices: Shape
    axes: Shape  # of the matrix of devices, counted from its end; -1: not cut
    optimizer_step: int = 0
    optimizer_size: int = 0  # -1: all devices that have the same

    def place(self, rank: int) -> tuple[Shape, Shape]:
        """The index of a rank's slice along each axis of the tensor, and the number of slices there."""
        rank %= math.prod(self.devices)
        left, coordinates = rank, []
        for size in reversed(self.devices):
            left, index = divmod(left, size)
            coordinates.append(index)
        indices = [0 if axis < 0 else coordinates[axis] for axis in self.axes]
        counts = [1 if axis < 0 else self.devices[-1 - axis] for axis in self.axes]
        size = self.optimizer_size if self.optimizer_size >= 0 else math.prod(self.devices) // math.prod(counts)
        if self.optimizer_step > 0 and size > 1 and counts:
            indices[0] = indices[0] * size + rank // self.optimizer_step % size
            counts[0] *= size
        return tuple(indices), tuple(counts)


def read_layouts(paths: Iterable[Path]) -> dict[str, Layout]:
    """By name of the tensor; several files must agree."""
    layouts: dict[str, Layout] = {}
    for path in paths:
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                raise InvalidConfig(f"{path}: too large for a strategy file")
            data = memoryview(path.read_bytes())
            for field in fields(data):
                if field.number == 3:
                    name, layout = _item(field)
                    if layouts.setdefault(name, layout) != layout:
                        raise ValueError(f"{name!r} is laid out otherwise than in the files before")
        except OSError as error:
            raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise InvalidConfig(f"{path}: not a strategy file that can be used: {error}") from error
    return layouts


def _item(field: Field) -> tuple[str, Layout]:
    by_number = {part.number: part for part in field.fields()}
    if not {1, 2} <= by_number.keys():
        raise ValueError(f"the layout at byte {field.at} has no name or no matrix of devices")
    name = _STAGE.sub("", by_number[1].text)
    found: dict[int, list[Field]] = {}
    for part in by_number[2].fields():
        found.setdefault(part.number, []).append(part)
    if len(found.get(1, ())) != 1 or len(found.get(2, ())) != 1:
        raise ValueError(f"{name!r} is cut along several axes of devices at once, which is not supported")
    devices, axes = (_numbers(found[number][0]) for number in (1, 2))
    if not devices or min(devices) < 1 or math.prod(devices) > _MAX_DEVICES:
        raise ValueError(f"{name!r} has an impossible matrix of devices")
    if any(not -1 <= axis < len(devices) for axis in axes):
        raise ValueError(f"{name!r} is cut along an axis that its matrix of devices does not have")
    step, size = (found[number][0].signed if number in found else 0 for number in (6, 7))
    return name, Layout(devices, axes, step, size)


def _numbers(field: Field) -> Shape:
    return tuple(number for part in field.fields() if part.number == 1 for number in part.numbers())


def starts(shape: Shape, held: Mapping[int, Shape], layout: Layout | None) -> dict[int, Shape]:
    """Ranks whose slices make up the whole tensor, and where each begins in it. held: shapes by rank. Raises
    `ValueError` where that is not certain."""
    whole = next((rank for rank, found in sorted(held.items()) if found == shape), None)
    if whole is not None:
        return {whole: (0,) * len(shape)}
    first = next(iter(held.values()))
    if any(found != first for found in held.values()):
        raise ValueError("has slices of different shapes")
    placed = _in_order(shape, first, list(held)) if layout is None else {rank: layout.place(rank) for rank in held}
    found_at: dict[Shape, int] = {}
    for rank, (indices, counts) in sorted(placed.items()):
        if tuple(size * count for size, count in zip(first, counts, strict=False)) != shape:
            cut = " x ".join(map(str, counts))
            raise ValueError(f"has slices {list(first)}, cut {cut}; the configuration says {list(shape)}")
        found_at.setdefault(indices, rank)
    if len(found_at) != math.prod(counts):
        raise ValueError(f"lacks slices: {len(found_at)} of {math.prod(counts)} are here")
    return {
        rank: tuple(index * size for index, size in zip(indices, first, strict=True))
        for indices, rank in found_at.items()
    }


def _in_order(shape: Shape, part: Shape, ranks: list[int]) -> dict[int, tuple[Shape, Shape]]:
    """Without a layout: as many ranks as slices, which are cut along one axis. Where model and optimizer both cut, this
    order is wrong, but then every model has tensors that are cut along two axes and refused."""
    cut = [axis for axis, (size, whole) in enumerate(zip(part, shape, strict=False)) if size != whole]
    if len(part) != len(shape) or len(cut) != 1 or part[cut[0]] * len(ranks) != shape[cut[0]]:
        raise ValueError(
            f"has slices {list(part)} in {len(ranks)} ranks, of {list(shape)}: which is where is known from the "
            "strategy files alone; put them into strategy/ beside the ranks"
        )
    counts = tuple(len(ranks) if axis == cut[0] else 1 for axis in range(len(shape)))
    return {
        rank: (tuple(index if axis == cut[0] else 0 for axis in range(len(shape))), counts)
        for index, rank in enumerate(sorted(ranks))
    }
