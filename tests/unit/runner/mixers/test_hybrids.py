"""Gated delta nets among attention, against transformers in float64, and against themselves bit for bit."""

import random
from itertools import accumulate
from pathlib import Path

import pytest
import torch

from chairlift.core.ids import BlockId
from chairlift.core.plan import BlockCopy, Checkpoint
from chairlift.runner.mixers.delta_net import DeltaNetOps
from chairlift.runner.model import Decoder
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from fakes.worlds.exact import OPS, why_missing
from unit.runner.hybrids import States
from unit.runner.twins import CPU, HYBRIDS, Twin, chunk, make_twin, random_tokens, request, shuffled_tables

SIZE = 8  # of blocks, and so of tiles
LENGTHS = (61, 33, 8)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return make_twin(tmp_path_factory.mktemp("small"), "qwen3.5")


@pytest.fixture(scope="module", params=OPS)
def small(twin: Twin, request: pytest.FixtureRequest) -> Decoder:
    """With the operations of each kind that a CPU has."""
    if why_not := why_missing(request.param):
        pytest.skip(why_not)
    return decoder(twin, request.param, torch.float32)


def decoder(twin: Twin, ops: str, dtype: torch.dtype) -> Decoder:
    return build_model(twin.config, OPS[ops](), HfTensors(twin.folder), dtype, CPU, twin.config.max_model_len)


@pytest.mark.parametrize("family", HYBRIDS)
def test_prompts_cut_anywhere_and_decodes_give_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    rng, twin = random.Random(3), make_twin(tmp_path, family)
    states = States(twin.decoder(torch.float64), SIZE)
    texts = [random_tokens(length, seed) for seed, length in enumerate(LENGTHS)]
    wanted = [twin.reference_logits_in_float64(text) for text in texts]
    tables = shuffled_tables(list(LENGTHS), SIZE, 40)
    done, num_steps = [0] * len(texts), 0
    while left := [i for i, text in enumerate(texts) if done[i] < len(text)]:
        counts = {i: min(rng.choice((1, 1, 2, 5, 8, 11, 17)), len(texts[i]) - done[i]) for i in left}
        chunks = [chunk(texts[i], done[i], n, tables[i], request(texts[i], id=i)) for i, n in counts.items()]
        logits = states.run(chunks)
        for row, (i, n) in zip(logits, counts.items(), strict=True):
            done[i] += n
            torch.testing.assert_close(row, wanted[i][done[i] - 1], rtol=0, atol=1e-11)
        num_steps += 1
    assert num_steps > 10


class Text:
    """One text on a decoder, whose last logits have the same bits however it gets there."""

    def __init__(self, decoder: Decoder, length: int = 59) -> None:
        self.states = States(decoder, SIZE)
        self.tokens = random_tokens(length, 5)
        self.table = list(range(20))
        self.request = request(self.tokens, id=1)

    def compute(self, start: int, count: int, *checkpoints: Checkpoint) -> torch.Tensor:
        return self.states.run([chunk(self.tokens, start, count, self.table, self.request)], checkpoints)[-1]

    def draft(self, start: int, wrong: list[int]) -> None:
        """Computes the token there and wrong ones after it."""
        text = [*self.tokens[: start + 1], *wrong]
        drafting = chunk(text, start, 1 + len(wrong), self.table, self.request)
        self.states.run([drafting._replace(num_tokens=start + 1, drafts=tuple(wrong))])


@pytest.fixture(scope="module")
def whole(small: Decoder) -> torch.Tensor:
    return Text(small).compute(0, 59)


@pytest.mark.parametrize("seed", range(4))
def test_cuts_and_rejected_drafts_change_no_bit(small: Decoder, whole: torch.Tensor, seed: int) -> None:
    rng, text, at, logits = random.Random(seed), Text(small), 0, torch.empty(0)
    while at < 59:
        if seed % 2 and at:
            text.draft(at, [rng.randrange(97) for _ in range(rng.randint(1, SIZE - 1))])
        count = min(rng.choice((1, 1, 2, 3, 7, 8, 9, 20)), 59 - at)
        logits = text.compute(at, count)
        at += count
    assert torch.equal(logits, whole)


def test_a_text_goes_on_from_a_checkpoint_with_the_same_bits(small: Decoder, whole: torch.Tensor) -> None:
    text = Text(small)
    kept = tuple(text.states.pages(3)[: text.states.kind.num_pages])
    text.compute(0, 45, Checkpoint(text.request.id, 0, 40, kept))
    text.request = request(text.tokens, id=2)  # other pages, of which nothing was written
    own = text.states.kind.half(text.states.pages(2), 40 // SIZE)[1]
    text.states.kv.move_blocks(copies=[BlockCopy(BlockId(a), BlockId(b)) for a, b in zip(kept, own, strict=True)])
    assert torch.equal(text.compute(40, 19), whole)


def test_another_state_is_noticed(small: Decoder, whole: torch.Tensor) -> None:
    text = Text(small)
    text.compute(0, 45)
    text.tokens[3] += 1 if text.tokens[3] < 96 else -1
    other = Text(small)
    other.tokens, other.states = text.tokens, text.states
    other.compute(0, 40)
    text.tokens = random_tokens(59, 5)
    assert not torch.equal(text.compute(40, 19), whole)


@pytest.mark.skipif(bool(why_missing("native")), reason=why_missing("native"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_native_kernels_go_on_from_what_torch_leaves_and_it_from_theirs(twin: Twin, dtype: torch.dtype) -> None:
    """By either kind in turn on one cache: as near to float64 as torch alone."""
    kinds = [decoder(twin, ops, dtype) for ops in ("torch", "native")]
    assert isinstance(kinds[1].ops, DeltaNetOps) and not isinstance(kinds[0].ops, DeltaNetOps)
    exact, alone, mixed = (Text(each) for each in (twin.decoder(torch.float64), kinds[0], kinds[0]))
    counts = (5, 1, 1, 1, 17, 1, 13, 9, 1, 10)
    errors = []
    for turn, (end, count) in enumerate(zip(accumulate(counts), counts, strict=True)):
        mixed.states.decoder = kinds[turn % 2]
        wanted, *found = (text.compute(end - count, count) for text in (exact, alone, mixed))
        errors.append([float((logits - wanted).abs().max()) for logits in found])
    torch_alone, in_turn = (max(own) for own in zip(*errors, strict=True))
    assert 0 < in_turn < 3 * torch_alone
