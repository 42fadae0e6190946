"""Headers of safetensors files: what the library refuses is refused, and nothing else reaches a caller."""

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from chairlift.core.errors import InvalidConfig
from chairlift.models.adapters import header
from chairlift.models.adapters.header import adapter_header

GOOD = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


def write(path: Path, content: Any, num_bytes: int = 24) -> Path:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(num_bytes))
    return path


def changed(**fields: Any) -> dict[str, Any]:
    return {"a": GOOD["a"] | fields}


def test_tensors_have_their_places(tmp_path: Path) -> None:
    tensors = {"b": np.ones((3, 2), np.float32), "a": np.ones((5, 1), np.float16)}
    save_file(tensors, str(tmp_path / "file"), {"format": "pt"})
    found = adapter_header(tmp_path / "file")
    assert found.num_bytes == 24 + 10 and found.start + found.num_bytes == (tmp_path / "file").stat().st_size
    assert {name: (each.dtype, each.shape) for name, each in found.tensors.items()} == {
        "a": ("F16", (5, 1)), "b": ("F32", (3, 2)),
    }  # fmt: skip
    assert sorted((each.first, each.end) for each in found.tensors.values()) == [(0, 24), (24, 34)]


BROKEN: dict[str, Any] = {
    "a gap before": changed(data_offsets=[4, 28]),
    "no end": changed(data_offsets=[0]),
    "an end before its first": changed(data_offsets=[24, 0]),
    "not a list": changed(data_offsets="44"),
    "another length": changed(shape=[2, 2]),
    "a negative number": changed(shape=[-2, -3]),
    "a fraction": changed(shape=[2.0, 3.0]),
    "infinite": b'{"a":{"dtype":"F32","shape":[1e999,3],"data_offsets":[0,Infinity]}}',
    "a truth": changed(shape=[True, 6]),
    "words": changed(shape=["2", "3"]),
    "endless": changed(shape=[10**300] * 8000),
    "no type": changed(dtype=None),
    "no shape": {"a": {"dtype": "F32", "data_offsets": [0, 24]}},
    "a list": [1, 2],
    "a number": 7,
    "an overlap": {**GOOD, "b": {"dtype": "F32", "shape": [1, 6], "data_offsets": [0, 24]}},
    "not JSON": b"{",
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_the_library_refuses_is_refused_in_one_line(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short_product(numbers: list[int]) -> int:
        assert len(numbers) <= 8 and max(numbers, default=0) <= 24, "a product that may take for ever"
        return prod(numbers)

    monkeypatch.setattr(header, "prod", short_product)
    path = write(tmp_path / "file", BROKEN[what])
    with pytest.raises((SafetensorError, OSError, TypeError, OverflowError)), safe_open(path, "np") as file:
        file.get_tensor("a")
    with pytest.raises(InvalidConfig, match="not a readable safetensors file") as raised:
        adapter_header(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("num_bytes", [0, 20, 25, 400 << 10])
def test_a_file_that_was_cut_or_has_more_is_refused(tmp_path: Path, num_bytes: int) -> None:
    with pytest.raises(InvalidConfig, match="outside of the file|do not fill it"):
        adapter_header(write(tmp_path / "file", GOOD, num_bytes))


@pytest.mark.parametrize("length", [0, 1 << 40, 200])
def test_a_header_of_another_length_than_the_files_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "file").write_bytes(length.to_bytes(8, "little") + b"{}" + bytes(100))
    with pytest.raises(InvalidConfig, match="cut or damaged"):
        adapter_header(tmp_path / "file")


def test_a_header_is_not_read_beyond_what_the_model_has_places_for(tmp_path: Path) -> None:
    path = write(tmp_path / "file", GOOD)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    assert adapter_header(path, length).tensors
    with pytest.raises(
        InvalidConfig, match=f"its header has {length} bytes, the tensors of this model take 40 at most"
    ):
        adapter_header(path, 40)
