"""Files of adapters in memory: all numbers, of the file whose header was read."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.models.adapters.adapter import TENSOR_FILE, AdapterSpec, read_adapter
from chairlift.models.files.hf import load_hf
from chairlift.models.spec import ModelConfig
from chairlift.runner.adapters import store
from chairlift.runner.adapters.store import StoredAdapter
from fakes.adapters import adapter_tensors, write_adapter
from fakes.tiny_model import write_tiny_model

RANK = 3


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    return load_hf(write_tiny_model(tmp_path_factory.mktemp("model")))


def spec_of(folder: Path, config: ModelConfig) -> AdapterSpec:
    return read_adapter(write_adapter(folder, rank=RANK), config, 64)


@pytest.mark.parametrize("piece", [100, 4096, 4 << 20])  # bytes: by several threads, or by one
def test_every_number_is_read(tmp_path: Path, config: ModelConfig, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_PIECE", piece)
    monkeypatch.setattr(store.hardware, "num_cpus", lambda: 3)
    spec, expected = spec_of(tmp_path, config), adapter_tensors(1, RANK)
    adapter = StoredAdapter(spec)
    for part in spec.parts:
        for name, found in zip(part.tensors, adapter.part(part), strict=True):
            assert np.array_equal(found.numpy(), expected[name])


def test_tensors_may_have_different_types(tmp_path: Path, config: ModelConfig) -> None:
    spec, tensors = spec_of(tmp_path, config), adapter_tensors(1, RANK)
    kinds = {0: ("F16", np.float16), 1: ("F32", np.float32), 2: ("F64", np.float64)}
    header, parts, first = {}, [], 0
    for index, (name, numbers) in enumerate(tensors.items()):
        dtype, kind = kinds[index % 3]
        parts.append(numbers.astype(kind).tobytes())
        header[name] = {"dtype": dtype, "shape": numbers.shape, "data_offsets": [first, first + len(parts[-1])]}
        first += len(parts[-1])
    text = json.dumps(header).encode()
    (tmp_path / TENSOR_FILE).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))
    spec = read_adapter(tmp_path, config, 64)
    adapter = StoredAdapter(spec)
    for part in spec.parts:
        for name, found in zip(part.tensors, adapter.part(part), strict=True):
            torch.testing.assert_close(found.float().numpy(), tensors[name], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("way", ["in place", "cut", "another"])
def test_a_file_that_changes_after_its_header_was_read_is_refused(
    tmp_path: Path, config: ModelConfig, way: str
) -> None:
    spec = spec_of(tmp_path, config)
    content = spec.file.read_bytes()
    if way == "in place":
        spec.file.write_bytes(content[:-1] + b"\x01")
        os.utime(spec.file, ns=(1, 1))  # the clock of a file may be coarse
    elif way == "cut":
        os.truncate(spec.file, len(content) // 2)
    else:
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(spec.file)
    with pytest.raises(InvalidConfig, match="was changed while it was read; ask again"):
        StoredAdapter(spec)
