"""The Python interface on a real (tiny) model."""

import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from chairlift import LLM, BeamSearchParams, SamplingParams
from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.live.wire.shared_switchboard import Request
from chairlift.runner.native.ops import available as native_available
from chairlift.text.stream import TextStream

PROMPTS = ["Hello", "The quick brown fox jumps", "Paris", "Hello there, world"]
GREEDY = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> LLM:
    return LLM(str(tiny_model), kernels="torch", dtype="float32", threads=1, num_blocks=600, max_running=8)


@pytest.fixture(autouse=True)
def _gives_everything_back(llm: LLM) -> None:
    yield  # type: ignore[misc]
    scheduler = llm._switchboard.engine.scheduler
    assert not scheduler.live
    assert scheduler.pool.num_free == 600


def test_results_come_in_the_order_of_the_prompts_whatever_ends_first(llm: LLM) -> None:
    each = [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for count in (9, 1, 5, 3)]
    results = llm.generate(PROMPTS, each)
    assert [result.prompt for result in results] == PROMPTS
    assert [len(result.outputs[0].token_ids) for result in results] == [9, 1, 5, 3]


def test_a_prompt_gets_the_same_tokens_alone_and_among_others(llm: LLM) -> None:
    together = [result.outputs[0].token_ids for result in llm.generate(PROMPTS, GREEDY)]
    assert together == [llm.generate(prompt, GREEDY)[0].outputs[0].token_ids for prompt in PROMPTS]


def test_more_prompts_than_run_at_once_are_all_answered(llm: LLM) -> None:
    assert len(llm.generate([[i + 2, i + 3] for i in range(40)], GREEDY)) == 40


@pytest.mark.parametrize(
    "rules",
    [
        {"policy": "mlfq:quantum=2,starve=0.01", "preemption": "swap", "host_memory": "1MiB"},
        {"policy": "longest-first:by=prompt", "prefill": "static", "preemption": "auto", "host_memory": "1MiB"},
        {"policy": "examples.my_policy:SmallTalkFirst:words=3", "prefill": "prefill-first:after_preempt=wait"},
        {"policy": "fair-share", "prefill": "batched-prefill:size=2", "admission": "reserve"},
    ],
)
def test_the_rules_change_when_tokens_come_but_not_which(llm: LLM, tiny_model: Path, rules: dict[str, str]) -> None:
    prompts = [[i + 2, i + 3] * (i % 3 + 1) for i in range(12)]
    small = {"max_model_len": 32, "num_blocks": 10, "block_size": 4, "max_running": 4, "threads": 1}
    other = LLM(str(tiny_model), kernels="torch", dtype="float32", **small, **rules)
    got = [result.outputs[0].token_ids for result in other.generate(prompts, GREEDY)]
    assert got == [result.outputs[0].token_ids for result in llm.generate(prompts, GREEDY)]


def test_no_prompts_are_no_work(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_text_and_its_tokens_are_the_same_prompt(llm: LLM) -> None:
    (text,) = llm.generate("Hello world", GREEDY)
    (tokens,) = llm.generate([llm.tokenizer.encode("Hello world")], GREEDY)
    assert text.text == tokens.text


def test_samples_differ_and_a_seed_repeats_them_in_any_company(llm: LLM) -> None:
    def params(seed: int) -> SamplingParams:
        return SamplingParams(max_tokens=12, n=3, seed=seed, temperature=1.5)

    for seed in range(5):
        (alone,) = llm.generate("Hello", params(seed))
        texts = [sample.text for sample in alone.outputs]
        assert len(set(texts)) == 3
        among = llm.generate(["Paris is", "Hello", "Hello"], [params(9), params(seed), params(seed + 1)])
        assert [sample.text for sample in among[1].outputs] == texts
        assert [sample.text for sample in among[2].outputs] != texts


def test_a_stop_string_cuts_the_text_and_is_named(llm: LLM) -> None:
    whole = llm.generate("Hello", GREEDY)[0].text
    stop = whole[3:5]
    (result,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, stop=(stop,)))
    assert result.text == whole[: whole.index(stop)]
    assert (result.outputs[0].finish_reason, result.outputs[0].stop_reason) == ("stop", stop)


def test_without_text_there_are_the_same_tokens_and_no_stop_strings(llm: LLM) -> None:
    bare = llm.generate(PROMPTS, replace(GREEDY, detokenize=False))
    full = llm.generate(PROMPTS, GREEDY)
    assert [r.outputs[0].token_ids for r in bare] == [r.outputs[0].token_ids for r in full]
    assert all(r.text == "" and r.outputs[0].finish_reason == "length" for r in bare)
    with pytest.raises(InvalidRequest, match="stop"):
        SamplingParams(stop=("x",), detokenize=False)


def test_scores_of_prompt_and_output_are_given_when_asked(llm: LLM) -> None:
    (result,) = llm.generate("Hello world", SamplingParams(temperature=0, max_tokens=3, logprobs=1, prompt_logprobs=0))
    sample = result.outputs[0]
    assert sample.logprobs is not None and result.prompt_logprobs is not None
    assert [next(iter(told)) for told in sample.logprobs] == sample.token_ids
    assert all(told[token].rank == 1 for told, token in zip(sample.logprobs, sample.token_ids, strict=True))
    chosen = [told[token].logprob for told, token in zip(sample.logprobs, sample.token_ids, strict=True)]
    assert sample.cumulative_logprob == pytest.approx(sum(chosen)) and sample.cumulative_logprob < 0
    assert sample.logprobs[0][sample.token_ids[0]].decoded_token == llm.tokenizer.piece(sample.token_ids[0])
    assert result.prompt_logprobs[0] is None
    assert [next(iter(told or ())) for told in result.prompt_logprobs[1:]] == result.prompt_token_ids[1:]
    (plain,) = llm.generate("Hello", GREEDY)
    assert (plain.prompt_logprobs, plain.outputs[0].logprobs, plain.outputs[0].cumulative_logprob) == (None,) * 3


def test_of_the_most_likely_tokens_the_chosen_one_comes_first(llm: LLM) -> None:
    params = SamplingParams(max_tokens=30, logprobs=3, seed=2, temperature=3.0, ignore_eos=True)
    (result,) = llm.generate("Hello", params)
    sample = result.outputs[0]
    sizes = set()
    for token, told in zip(sample.token_ids, sample.logprobs or (), strict=True):
        (first, chosen), *_ = told.items()
        others = [each for other, each in told.items() if other != token]
        assert first == token
        assert sorted((each.rank for each in others), key=int) == [r for r in (1, 2, 3) if r != chosen.rank]
        assert all((each.logprob >= chosen.logprob) == (each.rank < chosen.rank) for each in others)
        sizes.add(len(told))
    assert sizes == {3, 4}


def test_a_stream_joined_is_the_answer(llm: LLM) -> None:
    assert "".join(llm.stream("Hello", GREEDY)) == llm.generate("Hello", GREEDY)[0].text


def test_a_conversation_goes_through_the_chat_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    tokens = llm.chat_prompt(messages)
    assert llm.tokenizer.decode(tokens, skip_special=False).startswith("<|im_start|>user\nHello<|im_end|>")
    assert llm.chat(messages, GREEDY)[0].text == llm.generate([tokens], GREEDY)[0].text


def test_closing_a_stream_frees_its_blocks(llm: LLM) -> None:
    stream = llm.stream("Hello", SamplingParams(temperature=0, max_tokens=5000, ignore_eos=True))
    next(stream)
    pool = llm._switchboard.engine.scheduler.pool
    assert pool.num_free < 600
    stream.close()
    assert pool.num_free == 600


def test_streams_may_be_read_in_turn_and_beside_other_work(llm: LLM) -> None:
    alone = ["".join(llm.stream(prompt, GREEDY)) for prompt in PROMPTS[:2]]
    one, two = (llm.stream(prompt, GREEDY) for prompt in PROMPTS[:2])
    texts = [next(one), next(two)]
    (between,) = llm.generate("Paris", GREEDY)
    texts[1] += "".join(two)
    texts[0] += "".join(one)
    assert texts == alone
    assert between.text == llm.generate("Paris", GREEDY)[0].text


def test_a_bad_prompt_is_refused_before_any_is_served(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="prompt: must not be empty"):
        llm.generate(["Hello", ""])
    with pytest.raises(InvalidRequest, match="vocabulary"):
        llm.generate([[1_000_000]])
    with pytest.raises(InvalidRequest, match="2 sets of parameters for 1"):
        llm.generate(["Hello"], [GREEDY, GREEDY])
    with pytest.raises(InvalidRequest, match="context length is 9600 tokens; at most 9599 fit"):
        llm.generate(["Hello"], SamplingParams(max_tokens=50_000))
    with pytest.raises(InvalidRequest, match="n: "):
        llm.stream("Hello", SamplingParams(n=2))


def test_vllms_dictionaries_are_prompts(llm: LLM) -> None:
    (text,) = llm.generate("Hello", GREEDY)
    tokens = text.prompt_token_ids
    for prompts in ({"prompt": "Hello"}, [{"prompt": "Hello"}], {"prompt_token_ids": tokens}):
        assert llm.generate(prompts, GREEDY)[0].text == text.text
    assert "".join(llm.stream({"prompt": "Hello"}, GREEDY)) == text.text


def test_another_shape_is_refused_by_name(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match=r"prompts\[1\]: must be a text"):
        llm.generate(["Hello", None])  # type: ignore[list-item]
    with pytest.raises(InvalidRequest, match="sampling_params: must be SamplingParams or a list of them"):
        llm.generate(["Hello"], {"max_tokens": 3})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="prompt: must be a text"):
        llm.stream(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="messages: must be a list such as"):
        llm.chat_prompt("Hello")  # type: ignore[arg-type]


def test_a_plain_string_stops_and_nothing_is_left_of_a_call_that_fails(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = llm.generate("Hello", GREEDY)[0].text
    more = {"temperature": 0, "max_tokens": 10, "ignore_eos": True}
    (result,) = llm.generate("Hello", SamplingParams(stop=whole[3:5], **more))
    assert result.text == whole[: whole.index(whole[3:5])]
    made = llm._text_stream
    calls = iter(range(3))

    def third_fails(request: Request) -> TextStream:
        if next(calls) == 2:
            raise MemoryError
        return made(request)

    monkeypatch.setattr(llm, "_text_stream", third_fails)
    with pytest.raises(MemoryError):
        llm.generate(PROMPTS, GREEDY)
    assert llm.stats().num_waiting == 0


def test_a_bad_option_is_refused_by_name(tiny_model: Path) -> None:
    with pytest.raises(InvalidConfig, match="max_runing.*max_running"):
        LLM(str(tiny_model), max_runing=3)
    with pytest.raises(InvalidConfig, match="dtype"):
        LLM(str(tiny_model), dtype="float31")


def test_a_beam_search_gives_its_best_answers_first_and_finds_likelier_ones_than_greed(llm: LLM) -> None:
    def logprob(prompt: list[int], tokens: list[int]) -> float:
        scored = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        (result,) = llm.generate([prompt + tokens], scored)
        told = (result.prompt_logprobs or [])[len(prompt) :]
        return sum(each[token].logprob for each, token in zip(told, tokens, strict=True) if each is not None)

    search = SamplingParams(beam_width=6, n=3, max_tokens=10, ignore_eos=True)
    found = llm.generate(PROMPTS, search)
    greedy = llm.generate(PROMPTS, GREEDY)
    gains = []
    for result, plain in zip(found, greedy, strict=True):
        values = [logprob(result.prompt_token_ids, sample.token_ids) for sample in result.outputs]
        assert len({tuple(sample.token_ids) for sample in result.outputs}) == 3
        assert values == sorted(values, reverse=True)
        assert all(sample.finish_reason == "length" for sample in result.outputs)
        gains.append(values[0] - logprob(plain.prompt_token_ids, plain.outputs[0].token_ids))
    assert sum(gains) > 0


def test_a_search_of_width_one_is_greedy(llm: LLM) -> None:
    params = SamplingParams(beam_width=1, max_tokens=10, ignore_eos=True)
    assert [r.text for r in llm.generate(PROMPTS, params)] == [r.text for r in llm.generate(PROMPTS, GREEDY)]


def test_a_search_in_company_gives_what_it_gives_alone(llm: LLM) -> None:
    search = SamplingParams(beam_width=3, n=3, max_tokens=12)
    sampled = SamplingParams(max_tokens=30, seed=4, n=4, temperature=1.3)
    together = llm.generate(PROMPTS * 2, [search, sampled] * 4)
    for place in (0, 2):
        (alone,) = llm.generate(PROMPTS[place], search)
        assert [s.token_ids for s in together[place].outputs] == [s.token_ids for s in alone.outputs]


def test_best_of_gives_the_likeliest_of_the_samples(llm: LLM) -> None:
    more = {"max_tokens": 8, "seed": 3, "temperature": 1.4, "ignore_eos": True}
    (all_six,) = llm.generate("Hello", SamplingParams(n=6, logprobs=0, **more))
    ranked = sorted(all_six.outputs, key=lambda sample: -(sample.cumulative_logprob or 0.0))
    (best,) = llm.generate("Hello", SamplingParams(n=2, best_of=6, **more))
    assert [sample.token_ids for sample in best.outputs] == [sample.token_ids for sample in ranked[:2]]
    assert [sample.index for sample in best.outputs] == [0, 1]
    assert best.outputs[0].logprobs is None


def test_stats_count_the_blocks_that_sharing_saves(tiny_model: Path) -> None:
    llm = LLM(str(tiny_model), kernels="torch", dtype="float32", threads=1, num_blocks=100, max_running=8, block_size=4)
    assert llm.stats().max_shared == 0
    llm.generate([[5] * 40], SamplingParams(n=4, max_tokens=8, temperature=1.0, ignore_eos=True))
    stats = llm.stats()
    # The prompt fills ten blocks, and three of its four samples hold none of their own for it.
    assert stats.max_shared == 30
    assert (stats.num_shared, stats.num_running, stats.num_waiting) == (0, 0, 0)
    assert stats.num_free == stats.num_blocks == 100
    assert stats.num_cached >= 10


def test_a_stream_has_one_answer(llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="best_of: "):
        llm.stream("Hello", SamplingParams(best_of=2))
    with pytest.raises(InvalidRequest, match="logprobs: "):
        llm.generate("Hello", SamplingParams(beam_width=2, max_tokens=3, logprobs=0))
    search = SamplingParams(beam_width=3, max_tokens=10, ignore_eos=True)
    assert "".join(llm.stream("Hello", search)) == llm.generate("Hello", search)[0].text


SEARCH = SamplingParams(beam_width=3, n=2, max_tokens=12, ignore_eos=True)
SAMPLED = SamplingParams(n=3, max_tokens=12, seed=7, temperature=1.2, ignore_eos=True)


@pytest.mark.parametrize("block_size", [1, 2, 16])
@pytest.mark.parametrize("kernels", ["torch", "native"])
def test_blocks_of_any_size_give_the_same_tokens_on_all_kernels(
    llm: LLM, tiny_model: Path, kernels: str, block_size: int
) -> None:
    if kernels == "native" and not native_available():
        pytest.skip("the native kernels were not built or not for this processor")
    # So little memory that some must be preempted; they are moved out and come back.
    other = LLM(
        str(tiny_model), kernels=kernels, dtype="float32", threads=1, max_running=6, block_size=block_size,
        num_blocks=112 // block_size, preemption="swap", max_step_tokens=16,
    )  # fmt: skip
    each = [GREEDY, SEARCH, SAMPLED, GREEDY] * 2
    found, expected = (model.generate(PROMPTS * 2, each) for model in (other, llm))
    assert [[s.token_ids for s in one.outputs] for one in found] == [
        [s.token_ids for s in one.outputs] for one in expected
    ]
    assert other.stats().num_free == 112 // block_size


def test_one_that_is_dropped_frees_its_memory_at_once(tiny_model: Path) -> None:
    # What is loaded is kept from the collector of cycles: a cycle among it would stay for good.
    other = LLM(str(tiny_model), kernels="torch", dtype="float32", threads=1, num_blocks=40, max_running=2)
    other.generate("Hello", GREEDY)
    engine = weakref.ref(other._switchboard.engine)
    del other
    assert engine() is None


def test_a_context_that_the_pool_does_not_hold_is_not_offered(llm: LLM) -> None:
    assert llm.limits.max_model_len == llm.limits.max_pool_tokens == 9600
    (result,) = llm.generate([[5] * 9590], SamplingParams(temperature=0, ignore_eos=True, max_tokens=None))
    assert len(result.outputs[0].token_ids) == 10


def test_replicas_are_for_servers(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"kernels": "torch", "dtype": "float32", "threads": 1, "num_blocks": 64}
    alone = LLM(str(tiny_model), replicas=2, **options)
    assert "replicas 2: here one engine computes" in caplog.text
    assert len(alone.generate("Hello", GREEDY)[0].outputs[0].token_ids) == 10


def test_names_of_vllm_work_or_say_what_to_use(llm: LLM) -> None:
    ids = llm.get_tokenizer().encode("Hello there, world, and more of it all")
    (output,) = llm.generate(prompt_token_ids=ids, sampling_params=GREEDY, priority=[1])
    assert output.metrics is not None
    assert output.metrics.num_generation_tokens == 10
    assert output.metrics.finished_time >= output.metrics.first_token_time > output.metrics.arrival_time
    (found,) = llm.beam_search([{"prompt_token_ids": ids}], BeamSearchParams(beam_width=2, max_tokens=3))
    assert [sequence.tokens[: len(ids)] for sequence in found.sequences] == [ids, ids]
    assert llm.stats().num_cached > 0
    assert llm.reset_prefix_cache()
    assert llm.stats().num_cached == 0
    with pytest.raises(AttributeError, match=r"has no attribute 'llm_engine': an LLM is its own engine"):
        _ = llm.llm_engine


def test_a_bad_word_never_comes_and_tokens_may_be_listed(llm: LLM) -> None:
    text = llm.generate("Hello", GREEDY)[0].outputs[0]
    allowed = replace(GREEDY, allowed_token_ids=(5, 9, 11))
    assert {*llm.generate("Hello", allowed)[0].outputs[0].token_ids} <= {5, 9, 11}
    word = llm.tokenizer.decode(text.token_ids[:1])
    others = llm.generate("Hello", replace(GREEDY, bad_words=(word,)))[0].outputs[0]
    assert llm.tokenizer.encode(word, add_special=False)[0] not in others.token_ids
