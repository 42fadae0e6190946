"""One `LLM` for several threads, and calls that end early: on a real (tiny) model."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chairlift import LLM, SamplingParams
from chairlift.core.plan import StepPlan

PATIENCE_S = 120  # only a thread that waits for ever takes so long
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
ENDLESS = SamplingParams(temperature=0, max_tokens=5000, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> LLM:
    return LLM(str(tiny_model), kernels="torch", dtype="float32", threads=1, num_blocks=600, max_running=8)


@pytest.fixture(autouse=True)
def _gives_everything_back(llm: LLM) -> Iterator[None]:
    yield
    stats = llm.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free) == (0, 0, 600)


def test_threads_that_generate_stream_and_look_at_once_get_what_they_get_alone(llm: LLM) -> None:
    prompts = [[i + 2, i + 3, i + 5] for i in range(12)]
    alone = [result.text for result in llm.generate(prompts, GREEDY)]
    is_over = threading.Event()

    def look() -> int:
        most = 0
        while not is_over.is_set():
            most = max(most, llm.stats().num_running)
        return most

    def stop_early(prompt: list[int]) -> None:
        stream = llm.stream(prompt, ENDLESS)
        next(stream)
        stream.close()  # type: ignore[attr-defined]

    with ThreadPoolExecutor(16) as threads:
        looking = threads.submit(look)
        together = [threads.submit(llm.generate, [prompt], GREEDY) for prompt in prompts]
        streamed = [threads.submit(lambda p=prompt: "".join(llm.stream(p, GREEDY))) for prompt in prompts]
        closed = [threads.submit(stop_early, prompt) for prompt in prompts]
        assert [one.result(PATIENCE_S)[0].text for one in together] == alone
        assert [one.result(PATIENCE_S) for one in streamed] == alone
        assert [one.result(PATIENCE_S) for one in closed] == [None] * 12
        is_over.set()
        assert looking.result(PATIENCE_S) > 1  # they shared steps


def test_an_interrupt_ends_the_call_and_nothing_else(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    (expected,) = llm.generate("Hello", GREEDY)
    pieces = llm.stream("Hello", GREEDY)
    text = next(pieces)
    runner = llm._switchboard.engine.runner
    submit = runner.submit

    def interrupted(plan: StepPlan) -> None:
        signal.raise_signal(signal.SIGINT)
        submit(plan)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["Hello", "Paris", "one two"], ENDLESS)
    assert llm.stats().num_running == 1
    assert text + "".join(pieces) == expected.text
