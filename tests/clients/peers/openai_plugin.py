"""Tests of openai's SDK against our server: a plugin of pytest (`-p peers.openai_plugin`)."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from peers.stand_in import free_port, launch, stop

_MODEL = re.compile(r'model="([^"]+)"')
_process: Any = None


def pytest_configure(config: pytest.Config) -> None:
    """The server has every name of a model that the files ask for."""
    global _process
    names = dict.fromkeys(
        name for path in config.args for name in _MODEL.findall(Path(path.partition("::")[0]).read_text())
    )
    port = free_port()
    _process = launch(list(names), [], port)
    os.environ["TEST_API_BASE_URL"] = f"http://127.0.0.1:{port}/v1"


def pytest_unconfigure() -> None:
    stop(_process)
