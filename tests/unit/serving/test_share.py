"""What a replica may use: threads and memory of a CPU, a GPU of its own or a part of one, in turn."""

import os
from pathlib import Path

import pytest

from chairlift.build import ResolvedModel, find_model
from chairlift.config.settings import Settings
from chairlift.runner.machine import hardware
from chairlift.runner.memory.gpu import SHARE
from chairlift.serving.process_setup import RunFolder
from chairlift.serving.share import share_of


def model(**more: object) -> ResolvedModel:
    return find_model(Settings()).under(Settings(**more))


def test_one_replica_has_everything(tmp_path: Path) -> None:
    alone = model()
    with share_of(alone, RunFolder(tmp_path), 0) as shared:
        assert shared is alone


@pytest.mark.parametrize(("threads", "each"), [(8, 4), (5, 2), (1, 1)])
def test_on_a_cpu_threads_are_divided(tmp_path: Path, threads: int, each: int) -> None:
    with share_of(model(device="cpu", replicas=2, threads=threads), RunFolder(tmp_path), 1) as shared:
        assert (shared.settings.threads, shared.settings.kv_memory) == (each, None)  # the embedded model's is fixed


def test_on_a_cpu_threads_are_those_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "num_cpus", lambda: 12)
    with share_of(model(device="cpu", replicas=3), RunFolder(tmp_path), 0) as shared:
        assert shared.settings.threads == 4


def test_with_gpus_enough_each_replica_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for replica, gpu in enumerate(["3", "5"]):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5,7")
        with share_of(model(replicas=2), RunFolder(tmp_path), replica) as shared:
            assert (os.environ["CUDA_VISIBLE_DEVICES"], shared.settings.memory) == (gpu, SHARE)


def test_replicas_on_one_gpu_may_use_what_those_before_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for replica in (2, 0, 1, 0):  # in any order; the last is started again
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        with share_of(model(replicas=3, memory=0.6), RunFolder(tmp_path), replica) as shared:
            found.append(shared.settings.memory)
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.6])


def test_one_that_could_not_load_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(MemoryError), share_of(model(replicas=2, memory=0.8), RunFolder(tmp_path), 0):
        raise MemoryError
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with share_of(model(replicas=2, memory=0.8), RunFolder(tmp_path), 0) as shared:
        assert shared.settings.memory == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("0,1,2,3", ["0,1", "2,3", "0,1"]),
        ("0,1,2", ["0,1", "0,1", "0,1"]),  # the third is left over
        ("4", ["4", "4", "4"]),  # which its ranks may refuse
    ],
)
def test_a_replica_has_a_gpu_for_each_of_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, found: list[str]
) -> None:
    for replica, gpus in enumerate(found):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with share_of(model(replicas=3, tensor_parallel=2), RunFolder(tmp_path), replica):
            assert os.environ["CUDA_VISIBLE_DEVICES"] == gpus


def test_threads_are_those_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "num_cpus", lambda: 12)
    with share_of(model(device="cpu", replicas=3, tensor_parallel=2), RunFolder(tmp_path), 0) as shared:
        assert shared.settings.threads == 2
