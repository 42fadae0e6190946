from itertools import chain

import pytest
import torch

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import BlockCopy, Chunk, StepPlan, StepResult
from chairlift.core.ports import RunnerFailed, RunnerFull
from chairlift.core.request import Request
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block
from chairlift.runner.model import Decoder
from chairlift.runner.start.warm_up import warm_up
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner, failure
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, step

GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return make_twin(tmp_path_factory.mktemp("twin"), "llama-gqa-tied")


@pytest.fixture
def runner(twin: Twin) -> TorchRunner:
    return TorchRunner(twin.decoder(), KvCache(twin.config, 32, 4, torch.float32, CPU), CPU)


def carry_out(runner: TorchRunner, plan: StepPlan) -> StepResult:
    runner.submit(plan)
    return runner.collect()


def best(twin: Twin, tokens: list[int]) -> int:
    return int(twin.reference_logits(tokens)[-1].argmax())


def test_each_layer_of_a_long_step_is_told_of(runner: TorchRunner, twin: Twin) -> None:
    told: list[None] = []
    runner.on_beat = lambda: told.append(None)
    tokens = random_tokens(6)
    carry_out(runner, step([chunk(tokens, 0, 6, [5, 9], request(tokens))]))
    assert len(told) == twin.config.num_layers


def test_unfinished_prompts_sample_nothing_and_finished_ones_do(runner: TorchRunner, twin: Twin) -> None:
    first, second = random_tokens(10), random_tokens(7, seed=1)
    result = carry_out(
        runner,
        step(
            [
                chunk(first, 0, 6, [5, 9], request(first, id=0), is_sampled=False),
                chunk(second, 0, 7, [1, 30], request(second, id=1)),
            ]
        ),
    )
    assert list(result.tokens) == [best(twin, second)]


def test_a_plan_without_samples_gives_an_empty_result(runner: TorchRunner) -> None:
    tokens = random_tokens(10)
    result = carry_out(runner, step([chunk(tokens, 0, 6, [5, 9], request(tokens), is_sampled=False)], number=7))
    assert (result.step, list(result.tokens)) == (7, [])


def test_a_token_that_was_not_known_is_the_one_sampled_before(runner: TorchRunner, twin: Twin) -> None:
    tokens = random_tokens(6)
    own = request(tokens)
    (first,) = carry_out(runner, step([chunk(tokens, 0, 6, [3, 8], own)])).tokens
    # Planned before `first` was known: the list ends with the prompt.
    unknown = Chunk(own, 6, 1, tokens, 6, ([BlockId(3), BlockId(8)],), 2, (own,))
    (second,) = carry_out(runner, StepPlan(1, (unknown,), (), 1, 1)).tokens
    assert [first, second] == [best(twin, tokens), best(twin, [*tokens, best(twin, tokens)])]


def test_penalties_see_the_token_that_was_not_known(runner: TorchRunner, twin: Twin) -> None:
    tokens = random_tokens(6)
    own = request(tokens, SamplingParams(temperature=0.0, presence_penalty=2.0, frequency_penalty=2.0))
    (first,) = carry_out(runner, step([chunk(tokens, 0, 6, [3, 8], own)])).tokens
    unknown = Chunk(own, 6, 1, tokens, 6, ([BlockId(3), BlockId(8)],), 2, (own,))
    (second,) = carry_out(runner, StepPlan(1, (unknown,), (), 1, 1)).tokens
    logits = twin.reference_logits([*tokens, first])[-1]
    logits[first] -= 4.0
    assert second == int(logits.argmax())


def test_tokens_appended_after_planning_are_not_looked_at(runner: TorchRunner, twin: Twin) -> None:
    tokens = random_tokens(6)
    own = request(tokens)
    carry_out(runner, step([chunk(tokens, 0, 6, [3, 8], own)]))
    view = [*tokens, 11, 12]
    plan = StepPlan(1, (Chunk(own, 6, 1, view, 7, ([BlockId(3), BlockId(8), BlockId(0)],), 2, (own,)),), (), 1, 1)
    assert list(carry_out(runner, plan).tokens) == [best(twin, [*tokens, 11])]


def test_samples_of_one_prompt_start_from_the_same_logits(runner: TorchRunner, twin: Twin) -> None:
    tokens = random_tokens(6)
    samples = tuple(
        request(tokens, p, id=i, sample_index=i, seed=3)
        for i, p in enumerate([GREEDY, SamplingParams(temperature=0.0, logit_bias={5: 100.0}), GREEDY])
    )
    own = Chunk(samples[0], 0, 6, tokens, 6, ([BlockId(1), BlockId(2)],), 2, samples)
    result = carry_out(runner, StepPlan(0, (own,), (), 6, 0))
    assert list(result.tokens) == [best(twin, tokens), 5, best(twin, tokens)]


def test_copies_come_before_anything_is_written(runner: TorchRunner, twin: Twin) -> None:
    tokens = random_tokens(6)
    one, other = request(tokens, id=0), request(tokens, id=1)
    carry_out(runner, step([chunk(tokens, 0, 6, [3, 8], one)]))
    first, second = [*tokens, 20], [*tokens, 21]
    chunks = (chunk(first, 6, 1, [3, 8], one), chunk(second, 6, 1, [3, 9], other))
    result = carry_out(runner, StepPlan(1, chunks, (BlockCopy(BlockId(8), BlockId(9)),), 2, 2))
    assert list(result.tokens) == [best(twin, first), best(twin, second)]


def test_scores_are_given_where_they_are_asked_for(runner: TorchRunner, twin: Twin) -> None:
    plain, asking = random_tokens(6), random_tokens(9, seed=4)
    # The bias changes the token, not its score.
    params = SamplingParams(temperature=0.0, logprobs=3, logit_bias={8: 100.0})
    chunks = [
        chunk(plain, 0, 6, [0, 1], request(plain, id=0)),
        chunk(asking, 0, 9, [2, 3, 4], request(asking, params, 1)),
    ]
    result = carry_out(runner, step(chunks))
    assert result.scores.keys() == {RequestId(1)}
    score = result.scores[RequestId(1)]
    logits = twin.reference_logits(asking)[-1]
    logprobs = logits.log_softmax(-1)
    assert score.token == 8 == result.tokens[1]
    assert score.logprob == pytest.approx(logprobs[8].item(), abs=1e-4)
    assert score.logit == pytest.approx(logits[8].item(), abs=1e-4)
    assert [token for token, _ in score.top] == logprobs.topk(3).indices.tolist()


@pytest.mark.parametrize("rows", [3, 64])
def test_prompt_scores_cover_a_prompt_computed_in_chunks(
    runner: TorchRunner, twin: Twin, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("chairlift.runner.torch.step_result._MAX_SCORED_ROWS", rows)
    tokens = random_tokens(13)
    own = request(tokens, SamplingParams(temperature=0.0, prompt_logprobs=2))
    scores = []
    for start, count in ((0, 5), (5, 4), (9, 4)):
        plan = step([chunk(tokens, start, count, [4, 3, 2, 1], own, is_sampled=start == 9)])
        scores += carry_out(runner, plan).prompt_scores[own.id]
    logprobs = twin.reference_logits(tokens).log_softmax(-1)
    assert [score.token for score in scores] == tokens[1:]
    for position, score in enumerate(scores):
        assert score.logprob == pytest.approx(logprobs[position, score.token].item(), abs=1e-4)
        assert [token for token, _ in score.top] == logprobs[position].topk(2).indices.tolist()


def test_output_tokens_have_no_prompt_scores(runner: TorchRunner) -> None:
    tokens = random_tokens(5)
    own = request(tokens, SamplingParams(temperature=0.0, prompt_logprobs=0), num_prompt=4)
    carry_out(runner, step([chunk(tokens[:4], 0, 4, [1, 2], own)]))
    assert carry_out(runner, step([chunk(tokens, 4, 1, [1, 2], own)])).prompt_scores == {}


def test_a_request_whose_logits_are_not_numbers_fails_alone(runner: TorchRunner, twin: Twin) -> None:
    good, bad = random_tokens(6), random_tokens(6, seed=1)
    owners = [request(good, id=0), request(bad, SamplingParams(temperature=0.0, logprobs=1), id=1)]
    carry_out(runner, step([chunk(good, 0, 5, [0, 1], owners[0]), chunk(bad, 0, 5, [2, 3], owners[1])]))
    runner._kv.state[0][0][2] = torch.nan
    result = carry_out(runner, step([chunk(good, 5, 1, [0, 1], owners[0]), chunk(bad, 5, 1, [2, 3], owners[1])]))
    assert result.failed.keys() == {RequestId(1)}
    assert result.tokens[0] == best(twin, good)


def drafted(own: Request, tokens: list[int], drafts: list[int], number: int = 1) -> StepPlan:
    """The last known token and these drafts."""
    start, count = len(tokens) - 1, 1 + len(drafts)
    blocks = [BlockId(block) for block in range(-(-(start + count) // 4))]
    decoding = Chunk(own, start, count, tokens, len(tokens), (blocks,), len(blocks), (own,), tuple(drafts))
    return StepPlan(number, (decoding,), (), count, 0, num_drafting=1)


@pytest.mark.parametrize("num_right", [0, 1, 3])
def test_drafts_bring_the_tokens_that_would_have_come_one_by_one(
    runner: TorchRunner, twin: Twin, num_right: int
) -> None:
    tokens = random_tokens(6)
    # Penalties and bias apply at each position, to the text up to it.
    params = SamplingParams(temperature=0.9, frequency_penalty=1.5, logit_bias={3: 2.0}, logprobs=2)
    own = request(tokens, params, seed=11)
    carry_out(runner, step([chunk(tokens[:5], 0, 5, [0, 1], own, is_sampled=False)]))
    alone, text = [], list(tokens)
    for number in range(5):
        result = carry_out(runner, drafted(own, text, [], number)._replace(num_decodes=1, num_drafting=0))
        alone.append((result.tokens[0], result.scores[own.id]))
        text.append(result.tokens[0])
    right = text[6:]
    drafts = [*right[:num_right], *((token + 1) % 97 for token in right[num_right:4])]
    result = carry_out(runner, drafted(own, tokens, drafts))
    found = [(result.tokens[0], result.scores[own.id]), *result.more.get(own.id, ())]
    assert [token for token, _ in found] == [token for token, _ in alone[: num_right + 1]]
    for (_, score), (_, want) in zip(found, alone, strict=False):
        assert score is not None
        assert score.token == want.token
        assert score.logprob == pytest.approx(want.logprob, abs=1e-4)


def test_logits_after_wrong_drafts_are_not_shown(runner: TorchRunner, twin: Twin) -> None:
    tokens = random_tokens(6)
    own = request(tokens)
    carry_out(runner, step([chunk(tokens[:5], 0, 5, [0, 1], own, is_sampled=False)]))
    first = best(twin, tokens)
    shown: list[tuple[int, torch.Tensor]] = []
    runner.on_logits = lambda _, positions, logits: shown.extend(zip(positions, logits.clone(), strict=True))
    carry_out(runner, drafted(own, tokens, [first, (best(twin, [*tokens, first]) + 1) % 97, 5]))
    assert [position for position, _ in shown] == [5, 6]
    torch.testing.assert_close(shown[1][1], twin.reference_logits([*tokens, first])[-1], atol=1e-4, rtol=1e-4)


def test_a_position_whose_logits_are_not_numbers_is_left_to_the_next_step(
    runner: TorchRunner, twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = random_tokens(6)
    own = request(tokens)
    carry_out(runner, step([chunk(tokens[:5], 0, 5, [0, 1], own, is_sampled=False)]))
    first = best(twin, tokens)
    logits = Decoder.logits

    def broken(model: Decoder, hidden: torch.Tensor) -> torch.Tensor:
        found = logits(model, hidden)
        found[1:] = torch.nan
        return found

    monkeypatch.setattr(Decoder, "logits", broken)
    result = carry_out(runner, drafted(own, tokens, [first, 5]))
    assert (list(result.tokens), result.more, result.failed) == ([first], {}, {})


def test_an_error_of_the_device_fails_the_step_and_the_next_one_works(
    runner: TorchRunner, twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = random_tokens(6)
    plan = step([chunk(tokens, 0, 6, [0, 1], request(tokens))])

    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory: tried to allocate 2 GiB\nmore about it")

    with monkeypatch.context() as patch:
        patch.setattr("chairlift.runner.torch.runner.batch_of", out_of_memory)
        with pytest.raises(RunnerFull, match=r"^out of memory: tried to allocate 2 GiB$"):
            runner.submit(plan)
    assert list(carry_out(runner, plan).tokens) == [best(twin, tokens)]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), RunnerFull),
        (MemoryError(), RunnerFull),
        (RuntimeError("CUDA error: out of memory\nmore about it"), RunnerFull),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), RunnerFull),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), RunnerFull),
        (RuntimeError("Memory isn't enough and alloc failed, kernel name: MatMul"), RunnerFull),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), RunnerFailed),
    ],
)
def test_errors_that_a_smaller_step_may_avoid_are_told_apart(error: RuntimeError, kind: type[RunnerFailed]) -> None:
    assert type(failure(error)) is kind
    assert "\n" not in str(failure(error))


@pytest.mark.parametrize("num_blocks", [1, 32])
def test_warming_up_fits_any_pool(twin: Twin, num_blocks: int) -> None:
    runner = TorchRunner(twin.decoder(), KvCache(twin.config, num_blocks, 4, torch.float32, CPU), CPU)
    limits = Limits(
        vocab_size=97, max_model_len=128, block_size=4, num_blocks=num_blocks, max_running=3, max_step_tokens=64
    )
    warm_up(runner, limits)
    tokens = random_tokens(3)
    assert list(carry_out(runner, step([chunk(tokens, 0, 3, [0], request(tokens))])).tokens) == [best(twin, tokens)]


def test_kv_blocks_hold_the_bytes_they_are_said_to(twin: Twin) -> None:
    kv = KvCache(twin.config, 5, 4, torch.bfloat16, CPU)
    total = sum(memory.numel() * memory.itemsize for memory in chain(*kv.state))
    assert total == 5 * kv_bytes_per_block(twin.config, 4, torch.bfloat16)


def test_dummy_weights_are_a_model_of_the_right_shape(twin: Twin) -> None:
    matrix = DummyTensors(twin.config).read("model.embed_tokens.weight", (500, 128))
    assert abs(matrix.std().item() - 0.02) < 0.001 and abs(matrix.mean().item()) < 0.001
    assert torch.equal(matrix, DummyTensors(twin.config).read("model.embed_tokens.weight", (500, 128)))
    assert not torch.equal(matrix, DummyTensors(twin.config).read("lm_head.weight", (500, 128)))
    rounded = DummyTensors(twin.config, torch.bfloat16).read("model.embed_tokens.weight", (500, 128))
    assert torch.equal(rounded, matrix.to(torch.bfloat16))
    tensors = DummyTensors(twin.config)
    tensors.read("lm_head.weight", (900, 128))
    assert torch.equal(matrix, tensors.read("model.embed_tokens.weight", (500, 128)))  # whatever was read before it
    decoder = build_model(twin.config, TorchOps(), DummyTensors(twin.config), torch.float32, CPU, 16)
    runner = TorchRunner(decoder, KvCache(twin.config, 32, 4, torch.float32, CPU), CPU)
    tokens = random_tokens(6)
    assert not carry_out(runner, step([chunk(tokens, 0, 6, [0, 1], request(tokens))])).failed
