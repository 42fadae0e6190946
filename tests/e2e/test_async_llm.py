"""`AsyncLLM` on a real (tiny) model."""

import asyncio
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chairlift import (
    LLM,
    AsyncLLM,
    ChairliftError,
    EngineUnavailable,
    InvalidRequest,
    RequestOutput,
    RequestOutputKind,
    SamplingParams,
)
from chairlift.core.plan import StepPlan
from e2e.conftest import IN_PYTHON

OPTIONS = {**IN_PYTHON, "max_running": 8}
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
ENDLESS = SamplingParams(temperature=0, max_tokens=5000, ignore_eos=True)
DELTA, FINAL = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
PROMPTS: list[list[int]] = [[i + 2, i + 3, i + 5] for i in range(12)]


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> Iterator[AsyncLLM]:
    made = AsyncLLM(str(tiny_model), **OPTIONS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def alone(tiny_model: Path) -> list[RequestOutput]:
    with LLM(str(tiny_model), **OPTIONS) as other:
        return other.generate(PROMPTS, GREEDY)


@pytest.fixture(autouse=True)
def _gives_everything_back(llm: AsyncLLM) -> Iterator[None]:
    yield
    stats = llm.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free) == (0, 0, 600)


async def listed(llm: AsyncLLM, prompt: Any, params: SamplingParams, **more: Any) -> list[RequestOutput]:
    return [output async for output in llm.generate(prompt, params, **more)]


async def test_many_tasks_get_what_they_get_alone_and_share_steps(llm: AsyncLLM, alone: list[RequestOutput]) -> None:
    most = 0

    async def last(prompt: list[int]) -> str:
        nonlocal most
        text = ""
        async for output in llm.generate(prompt, GREEDY):
            text, most = output.text, max(most, llm.stats().num_running)
        return text

    assert await asyncio.gather(*map(last, PROMPTS)) == [each.text for each in alone]
    assert most > 1


async def test_outputs_show_all_so_far_or_what_is_new_or_the_end(llm: AsyncLLM, alone: list[RequestOutput]) -> None:
    wanted = alone[0].outputs[0]
    scored = replace(GREEDY, logprobs=1)
    so_far, news, final = [
        await listed(llm, PROMPTS[0], replace(scored, output_kind=kind), request_id="mine")
        for kind in (RequestOutputKind.CUMULATIVE, DELTA, FINAL)
    ]
    assert len(so_far) > 1 and len(news) > 1 and len(final) == 1
    for outputs in (so_far, news, final):
        assert [each.finished for each in outputs] == [False] * (len(outputs) - 1) + [True]
        assert {each.request_id for each in outputs} == {"mine"}
        assert outputs[-1].outputs[0].finish_reason == "length"
    for whole in (so_far[-1], final[0]):
        assert (whole.outputs[0].text, whole.outputs[0].token_ids) == (wanted.text, wanted.token_ids)
        assert len(whole.outputs[0].logprobs or ()) == 12
    texts = [each.text for each in so_far]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert "".join(each.text for each in news) == wanted.text
    assert [token for each in news for token in each.outputs[0].token_ids] == wanted.token_ids
    assert sum(len(each.outputs[0].logprobs or ()) for each in news) == 12


async def test_a_chat_is_streamed(llm: AsyncLLM, tiny_model: Path) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    pieces = [each.text async for each in llm.chat(messages, replace(GREEDY, output_kind=DELTA))]
    (whole,) = await listed(llm, llm.chat_prompt(messages), replace(GREEDY, output_kind=FINAL))
    assert len(pieces) > 1 and "".join(pieces) == whole.text


async def test_several_samples_come_with_their_numbers(llm: AsyncLLM) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=6, temperature=1.5, ignore_eos=True, output_kind=DELTA)
    texts = ["", "", ""]
    for output in await listed(llm, "Hello", params):
        for sample in output.outputs:
            texts[sample.index] += sample.text
    (final,) = await listed(llm, "Hello", replace(params, output_kind=FINAL))
    assert [sample.text for sample in final.outputs] == texts and len(set(texts)) == 3


async def test_a_search_shows_its_best_answers_in_the_end(llm: AsyncLLM) -> None:
    (found,) = await listed(llm, "Hello", SamplingParams(beam_width=3, n=2, max_tokens=6, ignore_eos=True))
    assert found.finished and len(found.outputs) == 2
    (best,) = await listed(llm, "Hello", SamplingParams(best_of=3, n=1, max_tokens=6, ignore_eos=True))
    assert best.finished and len(best.outputs) == 1


async def test_a_stop_string_ends_a_stream(llm: AsyncLLM, alone: list[RequestOutput]) -> None:
    text = alone[0].text
    outputs = await listed(llm, PROMPTS[0], replace(ENDLESS, stop=text[3:5]))
    assert outputs[-1].text == text[: text.index(text[3:5])]
    assert outputs[-1].outputs[0].stop_reason == text[3:5]


async def test_a_cancelled_task_frees_its_request_and_no_other(llm: AsyncLLM, alone: list[RequestOutput]) -> None:
    has_begun = asyncio.Event()

    async def forever() -> None:
        async for _ in llm.generate("Hello", ENDLESS):
            has_begun.set()

    task = asyncio.create_task(forever())
    await has_begun.wait()
    other = asyncio.create_task(listed(llm, PROMPTS[1], GREEDY))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await other)[-1].text == alone[1].text
    assert llm.stats().num_running == 0


async def test_leaving_the_loop_over_outputs_frees_the_request(llm: AsyncLLM) -> None:
    outputs = llm.generate("Hello", ENDLESS)
    async for _ in outputs:
        break
    assert llm.stats().num_running == 1
    await outputs.aclose()
    assert llm.stats().num_running == 0


async def test_a_bad_request_is_refused_alone(llm: AsyncLLM, alone: list[RequestOutput]) -> None:
    other = asyncio.create_task(listed(llm, PROMPTS[2], GREEDY))
    with pytest.raises(InvalidRequest, match="prompt: must not be empty"):
        llm.generate("")
    with pytest.raises(InvalidRequest, match="at most 9599 fit"):
        llm.generate("Hello", SamplingParams(max_tokens=50_000))
    with pytest.raises(InvalidRequest, match="use LLM.*task"):
        await llm.embed(["Hello"])
    assert (await other)[-1].text == alone[2].text


def test_several_event_loops_share_one_engine(llm: AsyncLLM, alone: list[RequestOutput]) -> None:
    texts: dict[int, str] = {}

    def loop(index: int) -> None:
        texts[index] = asyncio.run(listed(llm, PROMPTS[index], GREEDY))[-1].text

    threads = [threading.Thread(target=loop, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {index: alone[index].text for index in range(4)}


async def test_closing_ends_what_is_under_way_and_frees_the_engine(tiny_model: Path) -> None:
    async with AsyncLLM(str(tiny_model), **OPTIONS) as other:
        engine = weakref.ref(other._switchboard.engine)
        outputs = other.generate("Hello", ENDLESS)
        await anext(outputs)
        other.close()
        with pytest.raises(ChairliftError, match="closed; make another"):
            async for _ in outputs:
                pass
    assert engine() is None
    with pytest.raises(EngineUnavailable, match="closed; make another"):
        await anext(other.generate("Hello", GREEDY))


async def test_one_that_is_dropped_ends_its_thread(tiny_model: Path) -> None:
    other = AsyncLLM(str(tiny_model), **OPTIONS)
    await listed(other, "Hello", GREEDY)
    engine, thread = weakref.ref(other._switchboard.engine), other._stepping._thread
    del other
    assert engine() is None
    assert not thread.is_alive()


async def test_a_failing_engine_is_told_to_every_task(tiny_model: Path) -> None:
    other = AsyncLLM(str(tiny_model), **OPTIONS)

    def fails(plan: StepPlan) -> None:
        raise OSError("the device is gone")

    other._switchboard.engine.runner.submit = fails  # type: ignore[method-assign]
    tasks = [asyncio.create_task(listed(other, prompt, GREEDY)) for prompt in PROMPTS[:3]]
    for told in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(told, EngineUnavailable) and "the device is gone" in str(told)
    with pytest.raises(EngineUnavailable, match="the device is gone"):
        await listed(other, "Hello", GREEDY)
    other.close()
