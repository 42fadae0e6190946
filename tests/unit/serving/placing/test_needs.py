"""What a replica needs of its machine."""

from chairlift.config.settings import Settings
from chairlift.serving.placing.needs import Machine, Needs, needs_of


def test_each_rank_has_a_gpu_where_there_are_some() -> None:
    machines = [Machine(8, 0), Machine(64, 8)]
    needs, settings = needs_of(Settings(tensor_parallel=2), machines, 4)
    assert needs == Needs(2, 2)
    assert needs.in_words() == "2 CPUs and 2 GPUs"
    assert settings.device == "cuda"


def test_cpus_are_dealt_so_that_all_find_room() -> None:
    machines = [Machine(16, 0), Machine(16, 0)]
    for count, threads in ((1, 16), (2, 16), (3, 8), (4, 8), (5, 5), (40, 1)):
        needs, settings = needs_of(Settings(), machines, count)
        assert (needs.num_cpus, settings.threads, settings.device) == (threads, threads, "cpu")
    assert needs.in_words() == "1 CPU"


def test_given_threads_are_those_of_a_rank() -> None:
    needs, settings = needs_of(Settings(device="cpu", threads=3, tensor_parallel=2), [Machine(4, 1)], 2)
    assert (needs, settings.threads) == (Needs(6, 0), 3)
