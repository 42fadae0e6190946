"""An idle engine process works ahead, and tidies up after a while; a busy one listens while a step runs."""

import select
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zmq

from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepResult
from chairlift.lab.sim.runner import VirtualClock
from chairlift.live.adapters.registry import Adapter
from chairlift.live.recovery.step_note import NotedRunner, StepNote
from chairlift.live.wire.engine_process import PREPARE_AFTER_S, TAKE_S, TIDY_AFTER_S, EngineProcess
from chairlift.live.wire.messages import Abort, FromEngine, Hello, Ready, with_adapter
from chairlift.runner.adapters.store import AdapterStore
from fakes.ledger import LedgerRunner
from fakes.patience import wait_until
from fakes.submits import submit
from fakes.switchboards import info_of, ledger_switchboard
from fakes.viewed import viewed


@dataclass
class Sized:
    num_bytes: int


def make_process(folder: Path, left: list[bool]) -> EngineProcess:
    switchboard = ledger_switchboard()
    return EngineProcess(
        f"ipc://{folder}/engine", switchboard, viewed(switchboard.engine), info_of(switchboard), lambda: left.pop(0)
    )


def test_an_idle_engine_does_all_work_ahead(tmp_path: Path) -> None:
    left = [True, True, True, False]
    process = make_process(tmp_path, left)
    process._work_ahead()
    assert left == []
    process._socket.close(0)


def test_it_works_ahead_only_a_while_after_the_last_request(tmp_path: Path) -> None:
    left, clock = [True, True, False, True], VirtualClock()
    process = make_process(tmp_path, left)
    switchboard = process._switchboard
    switchboard.engine.clock = clock
    switchboard.submit(b"front", submit(1, [1, 2], SamplingParams(max_tokens=2)))
    while switchboard.has_work:
        process._step()
    process._work_ahead()
    assert len(left) == 4
    assert process._rest() == 1000 * PREPARE_AFTER_S
    clock.advance_to(clock.now() + 1.1 * PREPARE_AFTER_S)
    process._work_ahead()
    process._work_ahead()  # nothing was left
    assert len(left) == 1
    process._socket.close(0)


def test_messages_come_before_work_ahead(tmp_path: Path) -> None:
    left = [True] * 100
    process = make_process(tmp_path, left)
    caller = zmq.Context.instance().socket(zmq.DEALER)
    caller.connect(f"ipc://{tmp_path}/engine")
    encode = msgspec.msgpack.Encoder().encode
    caller.send(encode(Hello()))
    caller.send(encode(submit(1, [1, 2], SamplingParams(max_tokens=2))))
    while not process._switchboard.has_work:  # they may come one after the other
        assert process._socket.poll(5_000)
        process._receive()
    assert len(left) == 100
    process._receive()  # there is work now
    assert len(left) == 100
    caller.close(0)
    process._socket.close(0)


def test_a_request_whose_abort_has_come_is_never_begun(tmp_path: Path) -> None:
    process = make_process(tmp_path, [False] * 100)
    begun: list[int] = []
    process._switchboard.submit = lambda front_end, message: begun.append(message.key)  # type: ignore[method-assign]
    caller = zmq.Context.instance().socket(zmq.DEALER)
    caller.connect(f"ipc://{tmp_path}/engine")
    encode = msgspec.msgpack.Encoder().encode
    for key in (1, 2, 3):
        caller.send(encode(submit(key, [1, 2], SamplingParams(max_tokens=2, n=2))))
    for abort in (Abort(2), Abort(3, sample=1)):
        caller.send(encode(abort))
    wait_until(lambda: process._collect(0) and len(process._inbox) == 5)
    process._take(0)
    assert begun == [1, 3]
    assert not process._aborted and not process._inbox
    caller.close(0)
    process._socket.close(0)


def test_a_request_whose_adapter_was_read_comes_before_work_ahead_and_waits_until_then(tmp_path: Path) -> None:
    store, left = AdapterStore(lambda path: Sized(1), 100), [True] * 100
    switchboard = ledger_switchboard(num_adapter_slots=1, adapters=store)
    reading = switchboard.reading
    assert reading is not None
    process = EngineProcess(
        f"ipc://{tmp_path}/engine", switchboard, viewed(switchboard.engine), info_of(switchboard), lambda: left.pop(0)
    )
    message = submit(1, [1, 2], SamplingParams(max_tokens=2))
    process._switchboard.submit(b"front", with_adapter(message, Adapter(7, "sql", "sql")))
    assert process._numbers()[:2] == (0, 1)
    assert reading.wait()
    wait_until(lambda: bool(select.select([reading.woken], [], [], 0)[0]))
    process._work_ahead()
    assert len(left) == 100
    process._step()
    assert process._numbers()[:2] == (1, 0)
    process._socket.close(0)


def test_one_that_has_nothing_to_do_shows_signs_of_life(tmp_path: Path) -> None:
    switchboard, note = ledger_switchboard(), StepNote(tmp_path / "steps")
    left = [True, True, False, False]
    process = EngineProcess(
        f"ipc://{tmp_path}/engine",
        switchboard,
        viewed(switchboard.engine),
        info_of(switchboard),
        lambda: left.pop(0),
        note,
        max_sleep_s=0.001,
    )
    seen = {note.last_beat}
    process._work_ahead()
    seen.add(note.last_beat)
    assert process._rest() == 1
    process._receive()  # returns without a message
    process._beat()
    assert len({*seen, note.last_beat}) == 3
    process._socket.close(0)


def test_it_tidies_up_once_after_a_while_without_work_and_again_after_more_work(tmp_path: Path) -> None:
    switchboard, clock = ledger_switchboard(), VirtualClock()
    switchboard.engine.clock = clock
    tidied: list[float] = []
    process = EngineProcess(
        f"ipc://{tmp_path}/engine",
        switchboard,
        viewed(switchboard.engine),
        info_of(switchboard),
        tidy=lambda: tidied.append(clock.now()),
    )
    for round_number, max_tokens in ((1, 2), (2, 1)):  # over in one step, a request is never seen between two
        switchboard.submit(b"front", submit(round_number, [1, 2], SamplingParams(max_tokens=max_tokens)))
        while switchboard.has_work:
            clock.advance_to(clock.now() + 2 * TIDY_AFTER_S)  # a slow step is no rest
            process._step()
        clock.advance_to(clock.now() + 1.1 * PREPARE_AFTER_S)
        process._work_ahead()
        assert process._rest() == 1000 * TIDY_AFTER_S
        assert len(tidied) == round_number - 1
        clock.advance_to(clock.now() + TIDY_AFTER_S)
        assert [process._rest(), process._rest()] == [None, None]
        assert len(tidied) == round_number
    process._socket.close(0)


class TickingClock(VirtualClock):
    """Each look at the clock finds it half a millisecond later."""

    def now(self) -> float:
        self.advance_to(super().now() + 0.0005)
        return super().now()


class Tenths(LedgerRunner):
    """Takes 100 ms for a step."""

    clock = TickingClock()

    def collect(self) -> StepResult:
        self.clock.advance_to(self.clock.now() + 0.1)
        return super().collect()


def test_messages_that_arrive_while_a_step_runs_count_for_the_next(tmp_path: Path) -> None:
    switchboard, note = ledger_switchboard(Tenths), StepNote(tmp_path / "steps")
    engine, ledger = switchboard.engine, switchboard.engine.runner
    assert isinstance(ledger, Tenths)
    engine.clock, ledger.depth = ledger.clock, 2
    view = viewed(engine)
    engine.runner = NotedRunner(engine.runner, note, switchboard.recipients.keys_of)
    process = EngineProcess(f"ipc://{tmp_path}/engine", switchboard, view, info_of(switchboard), note=note)
    switchboard.submit(b"a", submit(1, [1, 2], SamplingParams(max_tokens=100)))
    for _ in range(40):
        process._step()
    caller = zmq.Context.instance().socket(zmq.DEALER)
    caller.connect(f"ipc://{tmp_path}/engine")
    caller.send(msgspec.msgpack.encode(submit(2, [3], SamplingParams(max_tokens=2))))
    assert process._socket.poll(5_000)
    num_steps = len(ledger.plans)
    process._await_arrivals()
    assert len(ledger.plans) == num_steps
    assert note.take().keys == {b"a": [1]}  # the step that runs
    process._step()
    assert [len(plan.chunks) for plan in ledger.plans[num_steps - 1 :]] == [1, 2]
    caller.close(0)
    process._socket.close(0)


class HalfMillisecondClock(VirtualClock):
    """Each look at it takes half a millisecond."""

    def now(self) -> float:
        self.advance_to(super().now() + 0.0005)
        return super().now()


def test_a_burst_holds_up_a_step_for_a_while_only_and_all_of_it_is_taken_in_order(tmp_path: Path) -> None:
    switchboard = ledger_switchboard()
    switchboard.engine.clock = HalfMillisecondClock()
    process = EngineProcess(f"ipc://{tmp_path}/engine", switchboard, viewed(switchboard.engine), info_of(switchboard))
    caller = zmq.Context.instance().socket(zmq.DEALER)
    caller.connect(f"ipc://{tmp_path}/engine")
    count = 200
    for key in range(1, 1 + count):
        caller.send(msgspec.msgpack.encode(submit(key, [key], SamplingParams(max_tokens=2))))
    assert process._socket.poll(5_000)
    taken = []
    live = switchboard.engine.scheduler.live
    for _ in range(count):
        before = len(live)
        process._take(1_000 if before < count else 0)
        taken.append(len(live) - before)
    assert 1 < max(taken) <= TAKE_S / 0.0005
    assert [request.request.prompt[0] for request in live.values()] == list(range(1, 1 + count))
    caller.close(0)
    process._socket.close(0)


def test_suspects_are_told_once(tmp_path: Path) -> None:
    """A front end that was cut off and says hello again must not blame them for the same death twice."""
    switchboard, note = ledger_switchboard(), StepNote(tmp_path / "steps")
    note.take_in(b"one", 7)
    note.tell_end(was_killed=False)
    process = EngineProcess(
        f"ipc://{tmp_path}/engine", switchboard, viewed(switchboard.engine), info_of(switchboard), note=note
    )
    caller = zmq.Context.instance().socket(zmq.DEALER)
    caller.setsockopt(zmq.IDENTITY, b"one")
    caller.connect(f"ipc://{tmp_path}/engine")
    told = []
    for _ in range(2):
        caller.send(msgspec.msgpack.encode(Hello()))
        assert process._socket.poll(5_000)
        process._take(0)
        ready = msgspec.msgpack.decode(caller.recv(), type=FromEngine)
        assert isinstance(ready, Ready)
        told.append((ready.suspects, ready.is_alone))
    assert told == [([7], True), ([], True)]
    caller.close(0)
    process._socket.close(0)


def test_messages_are_taken_until_the_next_step_is_to_be_planned(tmp_path: Path) -> None:
    switchboard = ledger_switchboard(Tenths)
    engine, ledger = switchboard.engine, switchboard.engine.runner
    assert isinstance(ledger, Tenths)
    engine.clock, ledger.depth = ledger.clock, 2
    process = EngineProcess(f"ipc://{tmp_path}/engine", switchboard, viewed(engine), info_of(switchboard))
    switchboard.submit(b"a", submit(1, [1, 2], SamplingParams(max_tokens=100)))
    for _ in range(40):
        process._step()
    clock = engine.clock = HalfMillisecondClock()
    clock.advance_to(ledger.clock.now())
    caller = zmq.Context.instance().socket(zmq.DEALER)
    caller.connect(f"ipc://{tmp_path}/engine")
    for key in range(2, 202):
        caller.send(msgspec.msgpack.encode(submit(key, [key], SamplingParams(max_tokens=2))))
    assert process._socket.poll(5_000)
    moment = engine.plan_at
    assert moment - clock.now() > 2 * TAKE_S
    poll, on_their_way = process._socket.poll, iter(range(200))
    process._socket.poll = lambda timeout: poll(1_000 if next(on_their_way, None) is not None else timeout)  # type: ignore[assignment]
    process._take(1_000)
    assert moment <= clock.now() < moment + TAKE_S
    caller.close(0)
    process._socket.close(0)
