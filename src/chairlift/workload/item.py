"""One request of a workload: how long it is, when it comes and who sends it; no text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    prompt_tokens: int
    output_tokens: int  # exactly as many are generated
    arrival_s: float = 0.0  # after the workload's start
    hash_ids: tuple[int, ...] = ()  # one per `hash_block` prompt tokens: equal ids are equal tokens; (): all its own
    hash_block: float = 512.0  # smaller than in the file where lengths are divided, and perhaps no whole number
    priority: int = 0
    user: str = ""
    deadline_s: float | None = None  # after its arrival
