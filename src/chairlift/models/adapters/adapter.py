"""An adapter on disk: a folder that peft has saved, as low-rank parts of the declared matrices.

    adapter_config.json           ranks and factors
    adapter_model.safetensors     base_model.model.<module>.lora_A.weight [rank, in], lora_B.weight [out, rank]

Always: every tensor of the file belongs to a part of a matrix of the model and has its shape; anything else is refused
in one line. Knows the header of the file, not its numbers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.models.adapters.header import ITEMSIZES, Header, StoredTensor, adapter_header
from chairlift.models.adapters.peft import PeftConfig, read_peft
from chairlift.models.families.known import BY_ARCHITECTURE
from chairlift.models.families.wrapped import text_name
from chairlift.models.parts import Order
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import GGUF_NAMES, layer_tensors

TENSOR_FILE = "adapter_model.safetensors"
_METADATA_BYTES, _TENSOR_BYTES = 2**16, 512  # of the header: beside its tensors, and for each of them
_TENSOR = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_REFUSED = (
    ("lora_embedding_", "adapters of the embedding are not supported"),
    ("lora_magnitude_vector", "DoRA is not supported"),
    (".bias", "biases of an adapter are not supported"),
    ("modules_to_save", "whole matrices of an adapter are not supported"),
    (".base_layer", "adapters of parameters, such as experts, are not supported"),
)


class Place(NamedTuple):
    """A part of a matrix: its output rows among those of the whole."""

    layer: int
    role: str
    first: int  # row
    shape: tuple[int, ...]  # [out, in]
    order: Order | None = None  # of the rows of B, as of the stored matrix; None: they are in order
    columns: Order | None = None  # of the columns of A, the same


class LowRankPart(NamedTuple):
    """factor * B A, added to a part of a matrix."""

    place: Place
    module: str
    rank: int
    factor: float

    @property
    def tensors(self) -> tuple[str, str]:
        """Their names in the file: A and B."""
        return tuple(f"base_model.model.{self.module}.lora_{each}.weight" for each in "AB")  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    folder: Path
    parts: tuple[LowRankPart, ...]  # in the order of layers, matrices and rows
    header: Header  # of the file

    @property
    def file(self) -> Path:
        return self.folder / TENSOR_FILE


def read_adapter(folder: Path, config: ModelConfig, max_rank: int) -> AdapterSpec:
    """Raises `InvalidConfig` where it cannot be served with this model."""
    peft, path = read_peft(folder), folder / TENSOR_FILE
    if not path.is_file():
        is_pickled = any(folder.glob("*.bin"))
        why = "is a pickle, which can run code when opened; save it as safetensors" if is_pickled else "is missing"
        raise InvalidConfig(f"{folder}: {'adapter_model.bin' if is_pickled else TENSOR_FILE} {why}")
    places = _places(config)
    header = adapter_header(path, _METADATA_BYTES + 2 * _TENSOR_BYTES * len(places))
    stored = header.tensors
    modules = dict.fromkeys(_module(path, name, tensor, places, config) for name, tensor in stored.items())
    if not modules:
        raise InvalidConfig(f"{path}: holds no tensors")
    parts = [_part(path, stored, peft, module, places[text_name(module)], max_rank) for module in modules]
    order = {place: index for index, place in enumerate(places.values())}
    return AdapterSpec(folder, tuple(sorted(parts, key=lambda part: order[part.place])), header)


def as_hugging_face(config: ModelConfig) -> ModelConfig:
    """The model with the names, parts and order of rows that its Hugging Face files have, which adapters are made
    for."""
    if config.names.layer != GGUF_NAMES.layer:
        return config
    return replace(config, names=BY_ARCHITECTURE[config.architecture].names)


def _places(config: ModelConfig) -> dict[str, Place]:
    """Where each module of a layer belongs, by its name in a Hugging Face model."""
    config = as_hugging_face(config)
    places: dict[str, Place] = {}
    for index in range(config.num_layers):
        for role, matrix in layer_tensors(config, index).by_role.items():
            first = 0
            for part in matrix.parts:
                places[part.name.removesuffix(".weight")] = Place(
                    index, role, first, part.shape, part.order, part.columns
                )
                first += part.shape[0]
    return places


def _module(path: Path, name: str, tensor: StoredTensor, places: Mapping[str, Place], config: ModelConfig) -> str:
    """The module that a tensor belongs to, as the file names it."""
    for mark, why in _REFUSED:
        if mark in name:
            raise InvalidConfig(f"{path}: tensor {name}: {why}")
    match = _TENSOR.fullmatch(name)
    if match is None or text_name(match[1]) not in places:
        raise InvalidConfig(f"{path}: tensor {name} has no place in {config.architecture}; is it of another base?")
    if tensor.dtype not in ITEMSIZES:
        raise InvalidConfig(f"{path}: tensor {name} is stored as {tensor.dtype}, which is not supported")
    return match[1]


def _part(
    path: Path, stored: Mapping[str, StoredTensor], peft: PeftConfig, module: str, place: Place, max_rank: int
) -> LowRankPart:
    rank = peft.rank_of(module)
    if rank > max_rank:
        raise InvalidConfig(f"{path}: {module} has rank {rank}, the most is {max_rank}; --max-lora-rank sets it")
    part = LowRankPart(place, module, rank, peft.factor_of(module))
    height, width = place.shape
    for name, shape in zip(part.tensors, ((rank, width), (height, rank)), strict=True):
        if name not in stored:
            raise InvalidConfig(f"{path}: tensor {name} is missing")
        if stored[name].shape != shape:
            raise InvalidConfig(
                f"{path}: tensor {name} has shape {list(stored[name].shape)}, the model and rank {rank} say "
                f"{list(shape)}"
            )
    return part
