"""The servers that tests share: started once in a run, each in the worker that gets all the tests which ask it.

A test may kill a process of theirs, which comes back; what it adds to a server it takes away. A test that needs flags
of its own, or a server that ends, starts one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.adapters import write_adapter
from fakes.encoders import write_encoder
from fakes.served import Served, serve
from fakes.tiny_model import write_tiny_model

# In float32 a batch does not change what the torch operations give; in bfloat16 it may, in the last bit.
NUMBERS = ("--kernels", "torch", "--dtype", "float32")
IN_PYTHON: dict[str, Any] = {"kernels": "torch", "dtype": "float32", "threads": 1, "num_blocks": 600}  # of an LLM
LIMITS = ("--kv-memory", "64MiB", "--max-running", "8", "--max-body-bytes", "1MiB")
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"  # as pages name it
SHARED = ("server", "embedded", "embedder", "adapters", "exact", "one_running")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that ask the same server are a group."""
    for item in items:
        if asked := [name for name in SHARED if _is_ours(item, name)]:
            item.add_marker(pytest.mark.xdist_group(asked[0]))


def _is_ours(item: pytest.Item, name: str) -> bool:
    """A test asks this folder's server, not one of its file's that has the same name."""
    definitions = item._fixtureinfo.name2fixturedefs.get(name, ())  # type: ignore[attr-defined]
    return bool(definitions) and definitions[-1].baseid == "tests/e2e"


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


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("models") / "encoder", has_head=False)


@pytest.fixture(scope="session")
def embedder(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log, names = tmp_path_factory.mktemp("embedder") / "log", ("--served-model-name", "encoder", ENCODER)
    with serve(log, "--model", encoder, *NUMBERS, "--exact", *names) as served:
        yield served


@pytest.fixture(scope="session")
def adapters_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("found", "sql", "sql-v2"), start=1):
        write_adapter(folder / name, seed)
    return folder


@pytest.fixture(scope="session")
def adapters(tiny_model: Path, adapters_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two replicas, adapters and an admin port."""
    named = write_adapter(tmp_path_factory.mktemp("elsewhere") / "named", seed=9)
    limits = tmp_path_factory.mktemp("limits") / "limits.yaml"
    limits.write_text("- {name: limited, requests_per_minute: 2}")
    options = ("--lora-limits", limits, "--lora", f"named={named}", "--lora-dir", adapters_folder, "--max-loras", "2")
    processes = ("--frontends", "2", "--replicas", "2", "--admin-port", "0")
    log = tmp_path_factory.mktemp("server") / "log"
    with serve(log, "--model", tiny_model, *LIMITS, *NUMBERS, *options, *processes) as served:
        yield served


@pytest.fixture(scope="session")
def exact(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("exact") / "log"
    options = ("--exact", "--dtype", "bfloat16", "--kv-memory", "64MiB", "--frontends", "2", "--max-running", "16")
    with serve(log, "--model", tiny_model, *options) as served:
        yield served


@pytest.fixture(scope="session")
def one_running(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It runs one request at a time, which others wait for by priority."""
    log = tmp_path_factory.mktemp("one-running") / "log"
    options = ("--kv-memory", "64MiB", "--max-running", "1", "--frontends", "2", "--kernels", "torch")
    with serve(log, "--model", tiny_model, *options, "--policy", "priority") as served:
        yield served
