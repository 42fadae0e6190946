"""How many processors there are for this process."""

import os
from pathlib import Path

import pytest

from chairlift.config import processors
from chairlift.config.processors import num_processors
from chairlift.lab.bench.run import num_clients


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The container's file, which is not there yet."""
    monkeypatch.setattr(processors, "_CPU_MAX", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


@pytest.mark.usefixtures("quota", "eight")
def test_the_affinity_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert num_processors() == 8


@pytest.mark.usefixtures("quota")
def test_a_system_without_affinities_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert num_processors() == 12
    assert num_clients(None, num_requests=100, concurrency=0) == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert num_processors() == 1


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("text", "expected"), [("50000 100000", 1), ("150000 100000", 2), ("6400000 100000", 8), ("max 100000", 8)]
)
def test_a_containers_share_counts(quota: Path, text: str, expected: int) -> None:
    quota.write_text(f"{text}\n")
    assert num_processors() == expected
