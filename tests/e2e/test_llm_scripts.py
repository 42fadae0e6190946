"""What scripts do with an `LLM` beyond generating: change parameters, ask for the tokenizer, close it, make another."""

import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import chairlift
from chairlift import (
    LLM,
    ChairliftError,
    EngineArgs,
    EngineUnavailable,
    InvalidConfig,
    InvalidRequest,
    SamplingParams,
    StructuredOutputsParams,
    TextPrompt,
    TokensPrompt,
)
from e2e.conftest import IN_PYTHON
from fakes.encoders import write_encoder

GREEDY = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
ENDLESS = SamplingParams(temperature=0, max_tokens=5000, ignore_eos=True)
HI = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> LLM:
    return LLM(str(tiny_model), max_num_seqs=8, enforce_eager=True, **IN_PYTHON)


def test_every_name_that_is_offered_is_there() -> None:
    assert all(getattr(chairlift, name) is not None for name in chairlift.__all__)
    assert set(chairlift.__all__) <= set(dir(chairlift))


def test_parameters_may_be_changed_and_are_checked_when_used(llm: LLM) -> None:
    params = llm.get_default_sampling_params()
    assert params.max_tokens == 16
    params.max_tokens, params.temperature, params.top_k = 3, 0.0, -1
    params.stop = "zzz"  # type: ignore[assignment]
    (output,) = llm.generate("Hello", params)
    assert len(output.outputs[0].token_ids) == 3
    params.top_p = 7.0
    with pytest.raises(InvalidRequest, match="top_p: must be between"):
        llm.generate("Hello", params)


def test_vllm_s_prompts_and_none_for_nothing(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, stop=None, logit_bias=None)  # type: ignore[arg-type]
    (text,) = llm.generate(TextPrompt(prompt="Hello"), params, use_tqdm=False)
    (ids,) = llm.generate([TokensPrompt(prompt_token_ids=text.prompt_token_ids)], sampling_params=params)
    (both,) = llm.generate({"prompt": "Hello", "prompt_token_ids": text.prompt_token_ids}, params)
    assert text.text == ids.text == both.text
    assert (text.finished, ids.prompt, int(ids.request_id)) == (True, None, int(text.request_id) + 1)


def test_a_stop_token_is_the_reason(llm: LLM) -> None:
    tokens = llm.generate("Hello", GREEDY)[0].outputs[0].token_ids
    stop = next(token for token in tokens[1:] if token not in tokens[:1])
    (output,) = llm.generate("Hello", SamplingParams(temperature=0, stop_token_ids=[stop], ignore_eos=True))
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", stop)
    assert output.outputs[0].token_ids == tokens[: tokens.index(stop) + 1]


def test_structured_outputs_by_vllm_s_names(llm: LLM) -> None:
    params = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes", "no"]), seed=1)
    assert llm.generate("Hello", params)[0].text in ("yes", "no")
    with pytest.raises(InvalidRequest, match="one kind of shape, got 2"):
        StructuredOutputsParams(json={}, regex="a")


def test_a_seed_of_the_model_repeats_draws_without_one(tiny_model: Path) -> None:
    def drawn(seed: int) -> list[str]:
        with LLM(str(tiny_model), seed=seed, **IN_PYTHON) as made:
            return [each.text for each in made.generate(["Hello"] * 3, SamplingParams(temperature=2.0))]

    first = drawn(7)
    assert len(set(first)) == 3
    assert drawn(7) == first != drawn(8)


def test_the_tokenizer_has_the_names_of_transformers(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    ids = tokenizer.encode("Hello world", add_special_tokens=False)
    assert tokenizer("Hello world", add_special_tokens=False) == {"input_ids": ids}
    assert tokenizer(["Hello world"], add_special_tokens=False) == {"input_ids": [ids]}
    assert tokenizer.decode(ids) == "Hello world"
    assert tokenizer.decode([tokenizer.eos_token_id], skip_special_tokens=True) == ""
    text = tokenizer.apply_chat_template(HI, tokenize=False, add_generation_prompt=True)
    assert isinstance(text, str) and text.startswith("<|im_start|>user\nHello")
    assert tokenizer.apply_chat_template(HI, add_generation_prompt=True) == llm.chat_prompt(HI)
    assert len(tokenizer) == llm.tokenizer.vocab_size


def test_a_chat_template_may_be_given(llm: LLM) -> None:
    template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    (output,) = llm.chat(HI, GREEDY, use_tqdm=False, chat_template=template)
    assert llm.tokenizer.decode(output.prompt_token_ids) == "<Hello>"
    assert llm.chat(HI, GREEDY)[0].prompt_token_ids == llm.chat_prompt(HI)
    begun = [*HI, {"role": "assistant", "content": "Well"}]
    (going_on,) = llm.chat(begun, GREEDY, add_generation_prompt=False, continue_final_message=True)
    assert llm.tokenizer.decode(going_on.prompt_token_ids, skip_special=False).endswith("Well")
    with pytest.raises(InvalidRequest, match="chat_template: must be a text"):
        llm.chat(HI, GREEDY, chat_template=5)  # type: ignore[arg-type]


def test_what_it_is_made_with_may_be_a_value(tiny_model: Path) -> None:
    with LLM.from_engine_args(EngineArgs(str(tiny_model), max_num_seqs=3, **IN_PYTHON)) as made:
        assert made.limits.max_running == 3
    with pytest.raises(InvalidConfig, match="--hf-overrides.*config.json"):
        LLM(str(tiny_model), hf_overrides={"rope_theta": 1})


def test_it_shows_what_it_is(tiny_model: Path) -> None:
    with LLM(str(tiny_model), **IN_PYTHON) as made:
        assert repr(made) == "LLM('tiny', device='cpu', dtype='float32', max_model_len=9600)"
    assert repr(made) == "LLM('tiny', device='cpu', dtype='float32', closed)"


def test_one_that_is_closed_refuses_and_frees_its_engine(tiny_model: Path) -> None:
    with LLM(str(tiny_model), **IN_PYTHON) as made:
        engine = weakref.ref(made._switchboard.engine)
        stream = made.stream("Hello", ENDLESS)
        next(stream)
    assert engine() is None
    with pytest.raises(ChairliftError, match="this LLM is closed; make another"):
        list(stream)
    for call in (lambda: made.generate("Hello"), made.stats, lambda: made.chat(HI)):
        with pytest.raises(EngineUnavailable, match="this LLM is closed; make another"):
            call()
    made.close()


def test_closing_ends_the_calls_of_other_threads(tiny_model: Path) -> None:
    made = LLM(str(tiny_model), **IN_PYTHON)
    have_begun = threading.Barrier(4)

    def follow(index: int) -> None:
        stream = made.stream([index + 2], ENDLESS)
        next(stream)
        have_begun.wait()
        list(stream)

    with ThreadPoolExecutor(3) as threads:
        following = [threads.submit(follow, index) for index in range(3)]
        have_begun.wait()
        made.close()
        for each in following:
            with pytest.raises(ChairliftError, match="closed; make another"):
                each.result()


@pytest.mark.nightly
def test_several_one_after_the_other_take_the_memory_of_one(tiny_model: Path) -> None:
    options = {**IN_PYTHON, "num_blocks": None, "kv_memory": "128MiB"}
    process = psutil.Process(os.getpid())

    def memory(is_closed: bool) -> int:
        with LLM(str(tiny_model), **options) as made:
            made.generate("Hello", GREEDY)
            cache: Any = made._switchboard.engine.runner._kv  # type: ignore[attr-defined]
            for each in chain(*cache.state):
                each.fill_(1)  # else the system would not have given it yet
            del cache, each
            if not is_closed:
                return process.memory_info().rss
        return process.memory_info().rss

    after = [memory(is_closed=True) for _ in range(4)]
    assert memory(is_closed=False) - after[0] > 100 * 2**20
    assert max(after[1:]) - after[0] < 50 * 2**20


@pytest.mark.parametrize("words", [{"runner": "pooling"}, {"task": "embed"}, {"runner": "pooling", "convert": "embed"}])
def test_a_model_that_makes_text_makes_vectors_where_vllm_s_words_say_so(
    tiny_model: Path, words: dict[str, str]
) -> None:
    with LLM(str(tiny_model), kernels="torch", dtype="float32", enforce_eager=False, **words) as made:
        (output,) = made.embed("Hello")
        with pytest.raises(InvalidRequest, match="makes vectors or scores and no text"):
            made.generate("Hello")
    assert np.linalg.norm(np.asarray(output)) == pytest.approx(1.0, abs=1e-4)


def test_vectors_are_arrays_to_numpy(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "encoder", has_head=False)
    with LLM(str(folder), dtype="float32", runner="pooling", kernels="torch") as made:
        outputs = made.embed(["the lift", "snow falls on the alps"])
        (alone,) = made.embed("the lift")
        scores = made.score("the lift", ["the lift", "snow falls on the alps"])
        with pytest.raises(InvalidRequest, match="use embed or score"):
            made.generate("Hello")
    assert outputs[0].outputs.embedding == outputs[0].outputs.vector.tolist()
    matrix = np.asarray(outputs)
    assert matrix.dtype == np.float32 and matrix.shape == (2, outputs[0].outputs.hidden_size)
    np.testing.assert_allclose(matrix[0], np.asarray(alone), atol=1e-5)
    assert len(outputs[1].prompt_token_ids) > len(outputs[0].prompt_token_ids)
    assert scores[0].outputs.score == float(scores[0]) > scores[1].outputs.score
