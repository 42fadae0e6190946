"""One world with all at once: eight texts in odd chunks, prefix hits, preemption, two steps in flight."""

import random

import pytest
import torch

from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.drive import ScriptedRequest
from chairlift.runner.mixers.tiles import Tiles
from fakes.family_configs import CONFIGS
from fakes.requests import make_samples
from fakes.worlds.exact import OPS, ExactModel, other_ids, why_missing

NUM_TOKENS = 12


def script() -> list[ScriptedRequest]:
    rng = random.Random(7)
    shared = [rng.randrange(301) for _ in range(50)]
    prompts = [shared[: 10 * (i % 6)] + [rng.randrange(301) for _ in range(rng.randint(1, 60))] for i in range(8)]
    return [
        ScriptedRequest(make_samples(10 * i, prompt, 1, NUM_TOKENS), arrives=2 * i) for i, prompt in enumerate(prompts)
    ]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_eight_texts_have_the_bits_that_they_have_alone(preemption: str) -> None:
    ops = "torch" if why_missing("native") else "native"
    world = ExactModel(CONFIGS["qwen3.5"], torch.bfloat16 if ops == "native" else torch.float32, OPS[ops]())
    wanted = [request for entry in script() for request in entry.samples]
    result = world.among(
        script(),
        wanted,
        depth=2,
        first=other_ids(script()),
        max_step_tokens=23,
        max_running=3,
        policy="mlfq:quantum=4",
        preemption=preemption,
    )
    happened = result.happened
    proof = "swapped" if preemption == "swap" else "computed again"
    assert min(happened[what] for what in ("prompts cut", "prefixes found", proof)) > 0, happened
    deviation = Deviation.of(world.alone(wanted), result.outputs)
    assert (deviation.num_rows, deviation.num_differing, deviation.num_other_texts) == (8 * NUM_TOKENS, 0, 0)


def test_a_state_of_another_tile_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ExactModel(CONFIGS["qwen3.5"], torch.float32, OPS["torch"]())
    wanted = [request for entry in script() for request in entry.samples]
    alone, through = world.alone(wanted), Tiles._chunk

    def stale(self, rows, end, halves, *others):  # type: ignore[no-untyped-def]
        return through(self, rows, end, halves.flip(0) if end == 50 else halves, *others)

    monkeypatch.setattr(Tiles, "_chunk", stale)
    deviation = Deviation.of(alone, world.among(script(), wanted, max_step_tokens=23).outputs)
    assert deviation.num_differing > 0
