"""One tiny model and real servers, of it and of the embedded one, for all tests that only ask them things."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.served import Served, serve
from fakes.tiny_model import write_tiny_model

# In float32 a batch does not change what the torch operations give; in bfloat16 it may, in the last bit.
NUMBERS = ("--kernels", "torch", "--dtype", "float32")
IN_PYTHON: dict[str, Any] = {"kernels": "torch", "dtype": "float32", "threads": 1, "num_blocks": 600}  # of an LLM
LIMITS = ("--kv-memory", "64MiB", "--max-running", "8", "--max-body-bytes", "1MiB")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("server") / "log"
    with serve(log, "--model", tiny_model, *LIMITS, *NUMBERS) as served:
        yield served


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("embedded") / "log") as served:
        yield served
