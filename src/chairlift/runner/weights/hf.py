"""Weights from a Hugging Face folder of safetensors, one file or several with an index, mapped into memory.

Pickled weights are refused: opening one runs the code it holds.
"""

import json
from collections import Counter
from collections.abc import Collection
from functools import cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.families.wrapped import text_name
from chairlift.models.shards import Cut
from chairlift.models.spec import PLAIN_QUANTISATION, Quantisation
from chairlift.models.tensors import MXFP4_GROUP
from chairlift.runner.weights import mxfp4
from chairlift.runner.weights.joined import Piece, joined_names, pieces
from chairlift.runner.weights.quantised import QuantisedMatrix, is_of_keys, modules
from chairlift.runner.weights.source import Stored, part_of

_INDEX = "model.safetensors.index.json"
_BLOCKS, _SCALES = "_blocks", "_scales"  # of a matrix in MXFP4
_PICKLES = ("*.bin", "*.pt", "*.pth")


class HfTensors:
    def __init__(self, folder: Path, said: Quantisation | None = None) -> None:
        """said: of quantised matrices, by the configuration."""
        self._folder, self._said = folder, said or PLAIN_QUANTISATION
        files = _tensor_files(folder)
        self._stored_names = {text_name(name): name for name in files}
        self._files = {name: files[stored] for name, stored in self._stored_names.items()}
        self._open = cache(lambda file: _open(folder / file))
        self._pieces: dict[str, Piece] = {}
        for joined in joined_names(self._files):
            file, stored = self._files.pop(joined), self._stored_names.pop(joined)
            for name, piece in pieces(joined, self._open(file).get_slice(stored).get_shape()):
                self._pieces[name], self._files[name], self._stored_names[name] = piece, file, stored
        self._quantised = modules(self._files)
        self._widened: dict[str, str] = {}  # by matrix, its form

    @property
    def names(self) -> Collection[str]:
        """Of a quantised matrix, which is several tensors, its own."""
        packed = {name.removesuffix(_BLOCKS) for name in self._files if name.endswith(_BLOCKS)}
        parts = {name + each for name in packed for each in (_BLOCKS, _SCALES)}
        parts |= {name for roles in self._quantised.values() for name in roles.values()}
        return packed | self._quantised.keys() | {name for name in self._files.keys() - parts if not is_of_keys(name)}

    def file_of(self, name: str) -> str:
        return str(self._folder / self._files[name]) if name in self._files else str(self._folder)

    def read(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Tensor:
        if name in self._quantised:
            matrix = self._matrix(name, shape if cut is None else cut.shape)
            self._widened[name] = matrix.form
            return part_of(matrix.widened(), cut)
        if stored := self.stored(name, shape, cut):
            return mxfp4.widened(*mxfp4.apart(stored)[:2])
        tensor = self._read(name, shape, cut)
        return self._checked(name, tensor, tensor.dtype.is_floating_point and tensor.dtype.itemsize >= 2)

    @property
    def widened(self) -> str:
        """How many of the quantised matrices were read as numbers, for the log."""
        forms = ", ".join(f"{count} in {form}" for form, count in Counter(self._widened.values()).most_common())
        return (
            f"{len(self._widened)} of {len(self._quantised)} quantised matrices are widened: {forms}" if forms else ""
        )

    def _matrix(self, name: str, shape: tuple[int, ...]) -> QuantisedMatrix:
        roles, module = self._quantised[name], name.removesuffix(".weight")
        where = f"{self.file_of(next(iter(roles.values())))}: matrix {module}"
        read = cache(lambda role: self._read(roles.get(role, f"{module}.{role}")))
        return QuantisedMatrix(where, shape, roles.keys(), read, self._said)

    def stored(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Stored | None:
        if name in self._quantised:
            return self._matrix(name, shape if cut is None else cut.shape).stored(cut)
        if name + _BLOCKS not in self._files:
            return None
        groups = (*shape[:-1], shape[-1] // MXFP4_GROUP)
        both = ((name + _BLOCKS, (*groups, MXFP4_GROUP // 2)), (name + _SCALES, groups))
        read = {each: self._read(each, own) for each, own in both}
        tensors = tuple(self._checked(each, own, own.dtype is torch.uint8) for each, own in read.items())
        whole = Stored(
            f"{self.file_of(name + _SCALES)}: tensor {name}{_SCALES}", mxfp4.MXFP4, tensors, shape, MXFP4_GROUP
        )
        return whole if cut is None else whole.cut(cut)

    def _checked(self, name: str, tensor: Tensor, is_supported: bool) -> Tensor:
        if not is_supported:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InvalidConfig(f"{self.file_of(name)}: tensor {name} is stored as {kind}, which is not supported")
        return tensor

    def _read(self, name: str, shape: tuple[int, ...] | None = None, cut: Cut | None = None) -> Tensor:
        """shape: None: any."""
        if name not in self._files:
            raise InvalidConfig(f"{self._folder}: tensor {name} is missing from the weights")
        file, piece = self._files[name], self._pieces.get(name)
        opened, name = self._open(file), self._stored_names[name]
        try:
            if piece is not None:
                tensor = opened.get_slice(name)[piece.expert, piece.rows]
                found = list(tensor.shape)
            else:
                found = opened.get_slice(name).get_shape()
                has_cut = cut is not None and tuple(found) == shape
                tensor = _read_cut(opened, name, cut) if cut and has_cut else opened.get_tensor(name)
        except SafetensorError as error:
            raise InvalidConfig(f"{self._folder / file}: tensor {name} cannot be read: {error}") from None
        if shape is not None and tuple(found) != shape:
            raise InvalidConfig(
                f"{self._folder / file}: tensor {name} has shape {list(found)}, the configuration says {list(shape)}"
            )
        return tensor


def _read_cut(opened: safe_open, name: str, cut: Cut) -> Tensor:
    """Nothing else of the tensor is read."""
    stored = opened.get_slice(name)
    spans = [slice(low, high) for low, high in cut.spans]
    parts = [stored[span] if cut.dim == 0 else stored[:, span] for span in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, cut.dim)


def _tensor_files(folder: Path) -> dict[str, str]:
    """The file of each tensor."""
    if (folder / _INDEX).is_file():
        try:
            placed = json.loads((folder / _INDEX).read_text())["weight_map"]
            files = {str(name): str(file) for name, file in placed.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidConfig(f"{folder / _INDEX}: not a weight index: {error}") from None
        for file in sorted(set(files.values())):
            if not (folder / file).is_file():
                raise InvalidConfig(f"{folder / file}: named in {_INDEX} but missing")
        return files
    if found := sorted(folder.glob("*.safetensors")):
        return {name: path.name for path in found for name in list(_open(path).keys())}
    if any(file for pattern in _PICKLES for file in folder.glob(pattern)):
        raise InvalidConfig(
            f"{folder}: the weights are pickles, which can run code when opened; convert them to safetensors"
        )
    raise InvalidConfig(f"{folder}: no *.safetensors file in this folder")


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise InvalidConfig(f"{path}: not a readable safetensors file: {error}") from None
