"""Tensors rounded to 8 or 4 bits as the engine rounds them on loading: for its references."""

from collections.abc import Collection

import torch
from torch import Tensor

from chairlift.models.spec import Names
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.native.quantised import INT4, INT8
from chairlift.runner.weights.source import TensorSource


class RoundedTensors:
    def __init__(self, source: TensorSource, names: Names, quantize: str) -> None:
        self._source = source
        self._ends = (f"{names.embedding}.weight", f"{names.head}.weight")
        self._layers = INT8 if quantize == "int8" else INT4

    @property
    def names(self) -> Collection[str]:
        return self._source.names

    def file_of(self, name: str) -> str:
        return self._source.file_of(name)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._source.read(name, shape)
        if len(shape) != 2:
            return tensor
        kind = INT8 if name in self._ends else self._layers
        return NativeOps(torch.get_num_threads()).rounded_weight(kind, tensor.float()).rows(torch.arange(shape[0]))
