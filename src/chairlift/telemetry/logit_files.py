"""Logits in files under the names of the contest's accuracy check: plain float32 arrays of 1 x vocabulary.

    file_npy/{time}_{start}_{position}.npy      1000000007_1.020355.0915.0278.0_100.npy
    rows.jsonl                                  {"file": "1000000007_...npy", "prefix": "8c1f..."}, of a server alone

`time` counts up with the requests from a fixed number, so that two runs have files of the same names; `start` is the
first 20 characters of the text's concatenated token ids, written as whole numbers where the row follows a prompt's
token and as 1.0, 20355.0 where it follows an output token; `position` is that of the token before the row, a multiple
of 100. `prefix` is a digest of all tokens up to it: texts that begin alike share a name, not a prefix. Files with
Python objects are refused: loading them can run any code.
"""

import io
import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from chairlift.core.errors import InvalidConfig

Logits = NDArray[np.floating[Any]]

FOLDER, INDEX = "file_npy", "rows.jsonl"
EVERY = 100
_START = 20
_FIRST_TIME = 1_000_000_000
_CONVERT = (
    "import sys, numpy as np; "
    "[np.save(path, np.load(path, allow_pickle=True).astype('float32')) for path in sys.argv[1:]]"
)


class Name(NamedTuple):
    """Pairs two files; several of one name pair in the order of their times."""

    start: str
    position: int


def name_of(prompt: Sequence[int], output: Sequence[int], position: int) -> Name:
    is_prompt = position < len(prompt)
    text = (str(token) if is_prompt else f"{token}.0" for token in (*prompt, *output)[: position + 1][:_START])
    return Name("".join(text)[:_START], position)


def path_of(folder: Path, index: int, name: Name) -> Path:
    """`index`: of the request."""
    return folder / FOLDER / f"{_FIRST_TIME + index}_{name.start}_{name.position}.npy"


def parse(path: Path) -> tuple[float, Name] | None:
    """Time and name, or None for a file of another kind."""
    time, _, rest = path.stem.partition("_")
    start, _, position = rest.rpartition("_")
    try:
        return float(time), Name(start, int(position))
    except ValueError:
        return None


def request_of(name: str) -> int:
    """The index of the request that a file is of."""
    found = parse(Path(name))
    return 0 if found is None else int(found[0]) - _FIRST_TIME


def make_folder(folder: Path) -> None:
    """For its user alone, also where it was there: names hold the beginnings of prompts."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    (folder / FOLDER).mkdir(exist_ok=True)


def write(path: Path, row: Logits) -> None:
    """Raises `OSError`, and then leaves nothing."""
    content = io.BytesIO()
    np.save(content, row.astype(np.float32)[None], allow_pickle=False)
    part = path.with_suffix(".part")
    try:
        part.write_bytes(content.getbuffer())
        part.rename(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def prefix_digest(tokens: Sequence[int]) -> str:
    return blake2b(np.asarray(tokens, "<i4").tobytes(), digest_size=16).hexdigest()


def add_to_index(folder: Path, name: str, prefix: str) -> None:
    """On a line of its own, also behind one that a dying engine has not finished."""
    with (folder / INDEX).open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"file": name, "prefix": prefix}) + "\n")


def read_index(folder: Path) -> dict[str, str]:
    """Prefixes by file; empty where there is no index. An unfinished line does not count."""
    path, found = folder / INDEX, {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            entry = json.loads(line)
            name, prefix = entry["file"], entry["prefix"]
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(name, str) and isinstance(prefix, str) and Path(name).name == name:
            found[name] = prefix
    return found


def read(path: Path) -> Logits:
    try:
        with path.open("rb") as file:
            _refuse_objects(path, file)
            file.seek(0)
            values = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidConfig(f"{path}: not a readable .npy file: {' '.join(str(error).split())}") from error
    if values.dtype != np.float32 or values.shape[-1:] != (values.size,):
        shape = " x ".join(map(str, values.shape))
        raise InvalidConfig(f"{path}: must hold one row of float32, has {values.dtype} of {shape}")
    return np.asarray(values.reshape(-1))


def _refuse_objects(path: Path, file: object) -> None:
    version = npy.read_magic(file)  # type: ignore[arg-type]
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    if header(file)[2].hasobject:  # type: ignore[arg-type]
        raise InvalidConfig(
            f"{path}: holds Python objects, which can run code when they are opened; compare with the {FOLDER} that "
            "lies beside it, or convert it where it was made, with the framework that made it: "
            f'python -c "{_CONVERT}" {quote(str(path.parent))}/*.npy'
        )
