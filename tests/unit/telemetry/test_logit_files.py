"""The contest's files of logits."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.telemetry import logit_files
from chairlift.telemetry.logit_files import Name


def test_a_row_that_follows_an_output_token_is_named_in_floats() -> None:
    assert logit_files.name_of([1, 20355, 915], [278, 5], 4) == Name("1.020355.0915.0278.0", 4)


def test_a_row_that_follows_a_prompts_token_is_named_in_whole_numbers() -> None:
    assert logit_files.name_of([1, 20355, 915, 278], [7], 3) == Name("120355915278", 3)


def test_a_name_has_at_most_20_characters_of_ids() -> None:
    assert logit_files.name_of([11111, 22222, 33333, 44444, 55555], [], 4).start == "11111222223333344444"


def test_a_written_row_reads_back_and_its_path_parses(tmp_path: Path) -> None:
    (tmp_path / logit_files.FOLDER).mkdir()
    path = logit_files.path_of(tmp_path, 7, Name("1.020355.0915.0278.0", 100))
    assert path.name == "1000000007_1.020355.0915.0278.0_100.npy"
    assert logit_files.parse(path) == (1000000007.0, Name("1.020355.0915.0278.0", 100))
    row = np.arange(5, dtype=np.float32)
    logit_files.write(path, row)
    np.testing.assert_array_equal(logit_files.read(path), row)


def test_a_torn_line_of_the_index_costs_no_other(tmp_path: Path) -> None:
    logit_files.add_to_index(tmp_path, "a.npy", "aa")
    with (tmp_path / logit_files.INDEX).open("a") as file:
        file.write('{"file": "torn.n')
    logit_files.add_to_index(tmp_path, "b.npy", "bb")
    assert logit_files.read_index(tmp_path) == {"a.npy": "aa", "b.npy": "bb"}


@pytest.mark.parametrize("is_there", [False, True])
def test_a_folder_is_for_its_user_alone_also_where_it_was_there(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "rows"
    if is_there:
        folder.mkdir(mode=0o755)
    logit_files.make_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 5)])
def test_a_row_may_be_wrapped_in_axes_of_one(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "a.npy", np.ones(shape, np.float32))
    assert logit_files.read(tmp_path / "a.npy").shape == (5,)


class Ran:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._mark,)


def test_objects_are_refused_unopened(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    np.save(tmp_path / "a.npy", np.array([Ran(mark)], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidConfig, match="holds Python objects"):
        logit_files.read(tmp_path / "a.npy")
    assert not mark.exists()


TENSOR = """
class Tensor:
    def __init__(self, value): self.value = value
    def __float__(self): return self.value
    def asnumpy(self): return self.value
"""


@pytest.mark.parametrize("shape", ["(1, 5)", "(1, 1, 5)"])
def test_the_advice_converts_the_files_that_the_contest_left(tmp_path: Path, shape: str) -> None:
    """Arrays of tensors, where the framework that made them is installed."""
    (tmp_path / "framework.py").write_text(TENSOR)
    folder = tmp_path / "file npy base"
    folder.mkdir()
    tensors = f"np.array([framework.Tensor(i / 4) for i in range(5)], object).reshape{shape}"
    make = f"import framework, numpy as np; [np.save(name, {tensors}) for name in ('a.npy', 'b.npy')]"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", make], cwd=folder, env=environment, check=True)
    with pytest.raises(InvalidConfig) as refusal:
        logit_files.read(folder / "a.npy")
    advice = str(refusal.value)
    command = advice[advice.index("python -c") :].replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, env=environment, check=True)
    for name in ("a.npy", "b.npy"):
        np.testing.assert_array_equal(logit_files.read(folder / name), np.arange(5, dtype=np.float32) / 4)


@pytest.mark.parametrize("content", [b"", b"nonsense", pickle.dumps([1.0])])
def test_what_is_no_array_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(InvalidConfig, match="not a readable"):
        logit_files.read(tmp_path / "a.npy")


@pytest.mark.parametrize(
    "values", [np.ones(3, np.float16), np.ones((2, 3), np.float32), np.ones(3, np.int32), np.float32(1)]
)
def test_other_types_and_other_than_one_row_are_refused(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(InvalidConfig, match="must hold one row of float32"):
        logit_files.read(tmp_path / "a.npy")
