"""Tests of this folder are skipped where MindSpore is missing."""

from pathlib import Path

import pytest

from chairlift.runner.mindspore.installed import why_not_mindspore


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if why_not := why_not_mindspore():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(f"{why_not}: make test-mindspore"))
