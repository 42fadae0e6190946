"""Preloading a GPU's driver: its calls in order, and no error where there is none."""

import ctypes
from typing import Any

import pytest

from chairlift.runner.cuda.start import preload


class Driver:
    """Notes its calls; the named one fails."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[str] = []
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> int:
            self.calls.append(name)
            return 100 if name == self._failing else 0

        return call


def calls(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> list[str]:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    preload._preload()
    return driver.calls


def test_a_context_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls(monkeypatch, Driver()) == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]


def test_a_driver_without_a_gpu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls(monkeypatch, Driver(failing="cuInit")) == ["cuInit"]


def test_no_driver_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    preload._preload()
