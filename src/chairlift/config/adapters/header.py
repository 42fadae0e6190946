"""What a safetensors file says it holds: the names, types and shapes of its tensors, without reading any.

| length, 8 bytes | JSON of that length | numbers |
"""

import json
from pathlib import Path
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig

_MAX_BYTES = 100_000_000  # of the JSON, as the format has it


class StoredTensor(NamedTuple):
    dtype: str  # "F32", "BF16", ...
    shape: tuple[int, ...]


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(_MAX_BYTES, path.stat().st_size):
                raise ValueError("its header is cut or damaged")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        return {name: StoredTensor(str(of["dtype"]), tuple(map(int, of["shape"]))) for name, of in header.items()}
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not a readable safetensors file: {error}") from None
