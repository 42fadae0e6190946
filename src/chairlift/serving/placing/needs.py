"""What a replica needs of the machine it is placed on, from the settings and the machines there are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chairlift.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Machine:
    num_cpus: int
    num_gpus: int


@dataclass(frozen=True, slots=True)
class Needs:
    num_cpus: int
    num_gpus: int

    def in_words(self) -> str:
        parts = [(self.num_cpus, "CPU"), (self.num_gpus, "GPU")]
        return " and ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in parts if count)


def needs_of(settings: Settings, machines: Sequence[Machine], count: int) -> tuple[Needs, Settings]:
    """With the settings for such a replica: its device, and on CPUs its threads. `count`: of replicas, at most."""
    ranks = settings.tensor_parallel
    has_gpus = any(machine.num_gpus for machine in machines)
    if settings.device == "cuda" or (settings.device == "auto" and has_gpus):
        return Needs(ranks, ranks), replace(settings, device="cuda")
    threads = settings.threads or _threads([machine.num_cpus // ranks for machine in machines], count)
    device = "cpu" if settings.device == "auto" else settings.device
    return Needs(threads * ranks, 0), replace(settings, device=device, threads=threads)


def _threads(cpus: Sequence[int], count: int) -> int:
    """The most that each of `count` replicas can have; 1 where there is no room for all."""
    for threads in range(max(cpus, default=1), 1, -1):
        if sum(each // threads for each in cpus) >= count:
            return threads
    return 1
