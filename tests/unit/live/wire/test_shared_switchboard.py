"""Several threads at one switchboard, on the ledger runner."""

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan
from chairlift.live.wire.messages import Output
from chairlift.live.wire.shared_switchboard import SharedSwitchboard
from chairlift.live.wire.switchboard import Switchboard
from fakes.ledger import LedgerRunner, expected
from fakes.requests import make_request
from fakes.switchboards import VOCAB_SIZE, ledger_switchboard

PATIENCE_S = 60  # only a thread that waits for ever takes so long


class GatedRunner(LedgerRunner):
    """Steps wait at a gate, which is open unless a test closes it."""

    def submit(self, plan: StepPlan) -> None:
        self.arrived.set()
        assert self.gate.wait(PATIENCE_S)
        self.before_step()
        super().submit(plan)

    before_step: Callable[[], None] = staticmethod(lambda: None)
    gate: threading.Event
    arrived: threading.Event


class World:
    def __init__(self) -> None:
        self.switchboard: Switchboard = ledger_switchboard(GatedRunner)
        runner = self.switchboard.engine.runner
        assert isinstance(runner, GatedRunner)
        self.runner = runner
        runner.gate, runner.arrived = threading.Event(), threading.Event()
        runner.gate.set()
        self.shared = SharedSwitchboard(self.switchboard)

    def tokens(self, prompt: list[int], count: int = 8) -> list[int]:
        with self.shared.asking([(prompt, params(count), count)]) as reader:
            return [output.token for output in self.shared.outputs(reader) if output.token is not None]

    def stream(self, prompt: list[int], count: int = 8) -> Iterator[Output]:
        with self.shared.asking([(prompt, params(count), count)]) as reader:
            yield from self.shared.outputs(reader)

    @property
    def num_live(self) -> int:
        return self.shared.do(lambda: len(self.switchboard.engine.scheduler.live))


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    assert found.num_live == 0
    assert found.shared.do(lambda: found.switchboard.engine.scheduler.pool.num_free) == 256


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def params(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, seed=5)


def alone(prompt: list[int], count: int = 8) -> list[int]:
    return expected(make_request(1, prompt, count, seed=5), VOCAB_SIZE)


def test_threads_get_the_tokens_they_would_get_alone(world: World, threads: ThreadPoolExecutor) -> None:
    prompts = [[i, i + 1, i + 2] for i in range(24)]
    assert list(threads.map(world.tokens, prompts, timeout=PATIENCE_S)) == [alone(prompt) for prompt in prompts]


def test_a_request_that_comes_during_a_step_of_another_thread_shares_the_next(
    world: World, threads: ThreadPoolExecutor
) -> None:
    world.runner.gate.clear()
    first = threads.submit(world.tokens, [1, 2], 8)
    assert world.runner.arrived.wait(PATIENCE_S)
    asked = threading.Event()

    def second() -> list[int]:
        with world.shared._turn_ended:  # the gate opens once this thread waits for the turn
            asked.set()
            return world.tokens([3, 4], 8)

    other = threads.submit(second)
    assert asked.wait(PATIENCE_S)
    with world.shared._turn_ended:
        world.runner.gate.set()
    assert (first.result(PATIENCE_S), other.result(PATIENCE_S)) == (alone([1, 2]), alone([3, 4]))
    assert len(world.runner.plans) == 9  # of 16 tokens: all but the first step have both


def test_what_is_asked_during_a_step_of_another_thread_is_answered_after_it(
    world: World, threads: ThreadPoolExecutor
) -> None:
    world.runner.gate.clear()
    under_way = threads.submit(world.tokens, [1, 2], 2)
    assert world.runner.arrived.wait(PATIENCE_S)
    asked = threads.submit(lambda: world.num_live)
    world.runner.gate.set()
    assert asked.result(PATIENCE_S) in (0, 1)
    assert under_way.result(PATIENCE_S) == alone([1, 2], 2)


def test_a_stream_that_is_not_read_holds_no_other_up(world: World, threads: ThreadPoolExecutor) -> None:
    stream = world.stream([1, 2], 20)
    first = next(stream)
    assert threads.submit(world.tokens, [3, 4], 30).result(PATIENCE_S) == alone([3, 4], 30)
    assert [first.token, *(output.token for output in stream)] == alone([1, 2], 20)


def test_a_stream_that_is_closed_during_a_step_of_another_thread_is_gone_before_the_next(
    world: World, threads: ThreadPoolExecutor
) -> None:
    stream = world.stream([1, 2], 200)
    next(stream)
    world.runner.gate.clear()
    world.runner.arrived.clear()
    other = threads.submit(world.tokens, [3, 4], 8)
    assert world.runner.arrived.wait(PATIENCE_S)
    stream.close()  # type: ignore[attr-defined]
    world.runner.gate.set()
    assert other.result(PATIENCE_S) == alone([3, 4], 8)
    assert len(world.runner.plans[-1].chunks) == 1


def test_a_forgotten_stream_may_be_collected_in_the_middle_of_a_step(world: World) -> None:
    stream = world.stream([1, 2], 200)
    next(stream)
    cycle = [stream]
    cycle.append(cycle)  # type: ignore[arg-type]
    del stream, cycle
    world.runner.before_step = gc.collect  # type: ignore[method-assign, assignment]
    assert world.tokens([3, 4], 4) == alone([3, 4], 4)


def test_a_request_that_cannot_be_submitted_fails_in_its_own_thread_and_takes_the_others_with_it(
    world: World, threads: ThreadPoolExecutor
) -> None:
    bad: Any = [([1], params(3), 3), ([2], params(3), 3), (None, params(3), 3)]

    def ask() -> None:
        with world.shared.asking(bad):
            raise AssertionError("it was taken")

    world.runner.gate.clear()
    other = threads.submit(world.tokens, [3, 4], 4)
    assert world.runner.arrived.wait(PATIENCE_S)
    asked = threads.submit(ask)
    world.runner.gate.set()
    with pytest.raises(TypeError):
        asked.result(PATIENCE_S)
    assert other.result(PATIENCE_S) == alone([3, 4], 4)
    assert world.num_live == 0


def test_a_step_that_breaks_off_ends_its_requests_and_no_thread_waits_for_ever(
    world: World, threads: ThreadPoolExecutor
) -> None:
    stream = world.stream([1, 2], 20)
    next(stream)

    def fail() -> None:
        world.runner.before_step = lambda: None  # type: ignore[method-assign, assignment]
        raise ZeroDivisionError

    world.runner.before_step = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(ZeroDivisionError):
        threads.submit(world.tokens, [3, 4]).result(PATIENCE_S)
    (end,) = stream
    assert end.error == "the step was broken off (ZeroDivisionError)"
    assert world.tokens([5, 6]) == alone([5, 6])


def test_an_interrupt_waits_for_the_step_and_leaves_nothing_behind(world: World, threads: ThreadPoolExecutor) -> None:
    stream = world.stream([1, 2], 20)
    first = next(stream)

    def interrupt() -> None:
        world.runner.before_step = lambda: None  # type: ignore[method-assign, assignment]
        signal.raise_signal(signal.SIGINT)

    world.runner.before_step = interrupt  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        world.tokens([3, 4])
    assert world.num_live == 1
    # The other request was in that step too, and misses nothing of it.
    assert [first.token, *(output.token for output in stream)] == alone([1, 2], 20)
