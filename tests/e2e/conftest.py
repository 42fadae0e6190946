"""One tiny model and one real server for all tests that only ask it things."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.served import Served, serve
from fakes.tiny_model import write_tiny_model

LIMITS = ("--kv-memory", "64MiB", "--max-running", "8", "--max-body-bytes", "1MiB", "--kernels", "torch")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("server") / "log"
    with serve(log, "--model", tiny_model, *LIMITS) as served:
        yield served
