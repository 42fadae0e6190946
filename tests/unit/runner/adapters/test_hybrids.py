"""Adapters of delta nets, gates and what every token takes beside experts, against peft, in float64 and bit for bit."""

import pytest
import torch

from chairlift.core.plan import AdapterSlot, Chunk
from chairlift.models.adapters.adapter import read_adapter
from chairlift.runner.adapters.low_rank import make_host_adapter
from chairlift.runner.adapters.model import AdaptedModel, adapted
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.native.adapters import NativeSlots
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from fakes.worlds.exact import why_missing
from unit.runner.adapters.test_twins import ADAPTERS, FOUND, PeftTwin
from unit.runner.adapters.test_twins import adapted as asked
from unit.runner.hybrids import States
from unit.runner.twins import CPU, HYBRIDS, chunk, random_tokens, shuffled_tables

pytestmark = pytest.mark.filterwarnings("ignore:The following .*_pattern keys did not match")  # of peft: of some models
NAMES = (None, *ADAPTERS, "all")
LENGTHS = (23, 40, 9, 30, 17)
COUNTS = ((8, 1, 5, 30, 2), (14, 30, 1, 0, 14), (1, 9, 3, 0, 1))


@pytest.fixture(scope="module", params=HYBRIDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PeftTwin:
    folder = tmp_path_factory.mktemp("twin")
    if request.param == "qwen3-next":  # of whose feed-forward peft makes adapters of experts
        mixers = ["in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj"]
        return PeftTwin(folder, request.param, target_modules=mixers)
    return PeftTwin(folder, request.param)


def steps(states: States, adapters: tuple[AdapterSlot, ...], only: int | None = None) -> list[list[torch.Tensor]]:
    """The logits of each text, which has an adapter, or of one alone."""
    prompts = [random_tokens(length, seed=length) for length in LENGTHS]
    tables, found, done = shuffled_tables(list(LENGTHS), 8, 40), [[] for _ in NAMES], [0] * len(NAMES)
    for counts in COUNTS:
        chunks: list[Chunk] = []
        for i, count in enumerate(counts):
            if count and only in (None, i):
                chunks.append(chunk(prompts[i], done[i], count, tables[i], asked(NAMES[i], prompts[i], i)))
                done[i] += count
        if chunks:
            for row, each in zip(states.run(chunks, adapters=adapters), chunks, strict=True):
                found[each.request.id].append(row)
    return found


def test_rows_of_several_adapters_and_of_none_get_the_logits_of_peft(world: PeftTwin) -> None:
    states = States(world.twin.decoder(torch.float64), 8, max_requests=5)
    states.decoder = world.model
    found = steps(states, tuple(world.slots))
    for name, length, rows in zip(NAMES, LENGTHS, found, strict=True):
        expected = world.expected(name, random_tokens(length, seed=length))
        torch.testing.assert_close(rows[-1], expected[length - 1], atol=1e-9, rtol=1e-9)


@pytest.mark.skipif(bool(why_missing("native")), reason=why_missing("native"))
def test_native_kernels_give_a_text_the_same_bits_alone_and_among_others(world: PeftTwin) -> None:
    config, ops = world.twin.config, NativeOps(1)
    decoder = build_model(config, ops, HfTensors(world.twin.folder), torch.bfloat16, CPU, 128)
    store = AdapterStore(lambda path: make_host_adapter(read_adapter(path, config, 64), ops, torch.bfloat16), 1 << 30)
    for name, number in FOUND.items():
        store.read(number, str(world.twin.folder.parent / "adapters" / name))
    slots = NativeSlots(store, len(ADAPTERS), config, sum(LENGTHS), ops.calls)
    slots.load(world.slots)
    states = States(decoder, 8, max_requests=5)
    states.decoder = AdaptedModel(decoder, adapted(decoder, slots), slots)
    together = steps(states, tuple(world.slots))
    for index in range(len(NAMES)):
        alone = steps(states, tuple(world.slots), only=index)[index]
        assert all(torch.equal(*pair) for pair in zip(alone, together[index], strict=True))
