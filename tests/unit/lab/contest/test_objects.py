"""Files that each of the contest's own comparisons can read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.contest import objects
from chairlift.telemetry import logit_files
from chairlift.telemetry.logit_files import Name
from fakes import contest_gates

Gate = Callable[[Path, Path], int]
NAMES = [Name("1.020355.0915.0278.0", 100), Name("1.020355.0915.0278.0", 200), Name("1", 0), Name("1", 0)]
GATES = [
    (contest_gates.first, objects.FOLDER),
    (contest_gates.second, logit_files.FOLDER),
    (contest_gates.third, logit_files.FOLDER),
]


def stored(folder: Path, off: float = 0.0) -> Path:
    """Four rows, the last of them off."""
    (folder / logit_files.FOLDER).mkdir(parents=True)
    for index, name in enumerate(NAMES):
        row = np.linspace(index, 9, 50, dtype=np.float32)
        row[-1] += off * (index == 3)
        logit_files.write(logit_files.path_of(folder, index, name), row)
    objects.add_objects(folder)
    return folder


@pytest.mark.parametrize(("gate", "inside"), GATES)
@pytest.mark.parametrize(("off", "num_close"), [(0.004, 4), (0.1, 3)])
def test_each_release_judges_two_stored_runs(
    tmp_path: Path, gate: Gate, inside: str, off: float, num_close: int
) -> None:
    before, after = stored(tmp_path / "before"), stored(tmp_path / "after", off)
    assert gate(before / inside, after / inside) == num_close


class Tensor:
    def __init__(self, value: float) -> None:
        self._value = value

    def asnumpy(self) -> float:
        return self._value

    def __float__(self) -> float:
        return self._value


@pytest.mark.parametrize(("gate", "inside"), GATES)
@pytest.mark.parametrize("shape", [(1, 50), (1, 1, 50)])
@pytest.mark.parametrize(("off", "num_close"), [(0.0, 4), (0.1, 3)])
def test_each_release_judges_a_run_by_tensors_of_the_contest(
    tmp_path: Path, gate: Gate, inside: str, shape: tuple[int, ...], off: float, num_close: int
) -> None:
    base, new = tmp_path / "base", stored(tmp_path / "new", off)
    base.mkdir()
    for path in sorted((stored(tmp_path / "same") / logit_files.FOLDER).iterdir()):
        tensors = np.array([Tensor(float(value)) for value in logit_files.read(path)], object)
        np.save(base / path.name, tensors.reshape(shape), allow_pickle=True)
    assert gate(base, new / inside) == num_close


def test_objects_name_nothing_but_the_standard_library_and_the_front_of_numpy(tmp_path: Path) -> None:
    path = next((stored(tmp_path / "run") / objects.FOLDER).iterdir())
    assert b"_core" not in path.read_bytes() and b"chairlift" not in path.read_bytes()
    with pytest.raises(InvalidConfig, match="compare with the file_npy that lies beside it"):
        logit_files.read(path)
