"""`--exact` for every family, with each of our kernels on a CPU: a request alone against the same one among others."""

import pytest
import torch

from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.drive import ScriptedRequest
from chairlift.models.families.known import FAMILIES
from fakes.family_configs import CONFIGS
from fakes.requests import make_samples
from fakes.worlds.exact import OPS, ExactModel, why_missing

DTYPES = {"torch": torch.float32, "native": torch.bfloat16}
NUM_TOKENS = 4
# Longer than the windows, one short, one with a sibling that shares its prompt.
GROUPS = [
    make_samples(10 * i, [(31 * i + 7 * place * place) % 301 for place in range(length)], 1 + i % 2, NUM_TOKENS)
    for i, length in enumerate((5, 61, 90))
]
WANTED = [request for group in GROUPS for request in group]


def test_every_family_is_among_them() -> None:
    missing = {family.architecture for family in FAMILIES} - {config.architecture for config in CONFIGS.values()}
    assert not missing, "add them to CONFIGS of tests/fakes/family_configs.py"


@pytest.mark.sampled(16)
@pytest.mark.parametrize("ops", OPS)
@pytest.mark.parametrize("config", CONFIGS)
def test_a_request_has_the_same_bits_alone_and_in_chunks_among_others(config: str, ops: str) -> None:
    if why_not := why_missing(ops):
        pytest.skip(why_not)
    world = ExactModel(CONFIGS[config], DTYPES[ops], OPS[ops]())
    script = [ScriptedRequest(group, arrives=2 * turn) for turn, group in enumerate(reversed(GROUPS))]
    result = world.among(script, WANTED, max_step_tokens=23, prefix_cache=False)
    assert result.happened["prompts cut"] > 0
    deviation = Deviation.of(world.alone(WANTED), result.outputs)
    assert deviation.num_rows == NUM_TOKENS * len(WANTED)
    assert (deviation.num_differing, deviation.num_other_texts) == (0, 0)
