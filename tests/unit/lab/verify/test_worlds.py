"""Every world reaches what it is for, and changes nothing on a runner whose memory is a list of token ids."""

import random

import pytest

from chairlift.build import make_engine
from chairlift.config.scheduler import Rules
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.lab.verify.cases import mixed, random_prompts
from chairlift.lab.verify.drive import OtherDepth, WorldResult, drive
from chairlift.lab.verify.worlds import World, again, limits_in, script_of, worlds
from fakes.ledger import LedgerRunner

VOCAB, NUM_HOST = 500, 256
CASES = mixed(random_prompts(VOCAB, 6, 0), 12, 0)


def run(world: World, limits: Limits) -> WorldResult:
    script, wanted = script_of(world, CASES, limits, random.Random(5))
    runner = LedgerRunner(limits.num_blocks, limits.block_size, VOCAB, 1, NUM_HOST)
    runner.on_logits = None  # type: ignore[attr-defined]
    rules = Rules(
        policy=world.policy, prefill=world.prefill, prefix_cache=world.has_prefix_cache,
        preemption=Preemption(mode=world.preemption, num_host_blocks=NUM_HOST),
    )  # fmt: skip
    engine = make_engine(OtherDepth(runner, world.depth) if world.depth else runner, limits_in(world, limits), rules)
    if world.is_warm:
        drive(engine, runner, again(script), {})  # type: ignore[arg-type]
    return drive(engine, runner, script, wanted)  # type: ignore[arg-type]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("max_batch", [2, 5, 16, 300])
def test_every_world_reaches_what_it_is_for_and_changes_no_token(max_batch: int) -> None:
    limits = Limits(
        vocab_size=VOCAB, max_model_len=1000, block_size=16, num_blocks=4000, max_running=max_batch, max_step_tokens=512
    )
    texts = None
    for world in worlds(max_batch, depth=1, has_graphs=True, rng=random.Random(max_batch)):
        result = run(world, limits)
        assert not world.proof or result.happened[world.proof] > 0, world
        found = {key: output.tokens for key, output in result.outputs.items()}
        assert all(len(tokens) == 12 for tokens in found.values())
        texts = texts or found
        assert found == texts, world.name


def test_the_widest_batch_comes_first_and_graphs_only_where_there_are_any() -> None:
    names = [world.name for world in worlds(300, depth=2, has_graphs=False, rng=random.Random(0))]
    assert names[:4] == ["batch of 300", "batch of 64", "batch of 7", "batch of 2"]
    assert "1 step in flight" in names
    assert "graphs off" not in names
