"""The contest's files once more, as Python objects: the first release of its comparison reads no others.

    file_npy_objects/1000000007_1.020355.0915.0278.0_100.npy      an object array of 1 x 1

That release calls `asnumpy()` of all elements of `array[0]`, or of `array[0][0]` where the other side's array has three
axes: tensors of its framework, one for each number. Here one object stands for the row, which numpy compares with such
a list all the same; it holds its like, for the case of three axes. Only the standard library and numpy are needed to
open it, of any version.
"""

import pickle
from collections import UserList
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib import format as npy

from chairlift.core.errors import InvalidConfig
from chairlift.telemetry import logit_files
from chairlift.telemetry.logit_files import Logits

FOLDER = "file_npy_objects"


def add_objects(folder: Path) -> None:
    """Writes the rows of a stored run once more."""
    try:
        (folder / FOLDER).mkdir()
        for path in sorted((folder / logit_files.FOLDER).glob("*.npy")):
            _write(folder / FOLDER / path.name, logit_files.read(path))
    except OSError as error:
        raise InvalidConfig(f"{folder / FOLDER}: cannot be written: {error.strerror or error}") from error


def _write(path: Path, row: Logits) -> None:
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (1, 1)})
        pickle.dump(_ObjectArray(_tensor(row)), file, protocol=4)


def _tensor(row: Logits) -> UserList[Any]:
    # Made of bytes: numpy's own pickles name modules that its older versions do not have.
    asnumpy = partial(np.frombuffer, row.astype("<f4").tobytes(), "<f4")
    tensor: UserList[Any] = UserList([SimpleNamespace(asnumpy=asnumpy)])
    tensor.asnumpy = asnumpy  # type: ignore[attr-defined]
    return tensor


class _ObjectArray:
    """Pickles as an array of 1 x 1 that holds the value."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, tuple[Any, ...], None, None, Iterator[tuple[tuple[int, int], object]]]:
        return np.empty, ((1, 1), "O"), None, None, iter([((0, 0), self._value)])
