"""Where a progress bar shows."""

import io
import sys
from types import ModuleType
from typing import Any

import pytest

from chairlift.local.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_in_a_terminal_and_in_a_notebook_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert progress_bar(None, 3).disable
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert not progress_bar(None, 3).disable
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert not progress_bar(None, 3).disable


def test_a_bar_that_is_asked_for_or_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with progress_bar(True, 2) as bar:
        bar.update(2)
    assert "2/2" in shown.getvalue()
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert progress_bar(False, 2).disable


def test_a_function_makes_another_bar() -> None:
    made: list[dict[str, Any]] = []
    progress_bar(lambda **how: made.append(how), 5)
    assert made == [{"total": 5, "unit": "answer", "disable": False}]
