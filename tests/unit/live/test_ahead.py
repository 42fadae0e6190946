"""The engine process does what can be done ahead while nobody wants anything."""

from pathlib import Path

import msgspec
import zmq

from chairlift.core.params import SamplingParams
from chairlift.live.engine_process import EngineProcess
from chairlift.live.messages import Hello, Submit
from fakes.switchboards import info_of, ledger_switchboard


def make_process(folder: Path, left: list[bool]) -> EngineProcess:
    switchboard = ledger_switchboard()
    return EngineProcess(f"ipc://{folder}/engine", switchboard, info_of(switchboard), lambda: left.pop(0))


def test_everything_is_done_ahead_while_nobody_calls(tmp_path: Path) -> None:
    left = [True, True, True, False]
    process = make_process(tmp_path, left)
    process._work_ahead()
    assert left == []
    process._socket.close(0)


def test_whoever_calls_comes_first(tmp_path: Path) -> None:
    left = [True] * 100
    process = make_process(tmp_path, left)
    caller = zmq.Context.instance().socket(zmq.DEALER)
    caller.connect(f"ipc://{tmp_path}/engine")
    encode = msgspec.msgpack.Encoder().encode
    caller.send(encode(Hello()))
    caller.send(encode(Submit(1, [1, 2], SamplingParams(max_tokens=2))))
    assert process._socket.poll(5_000)
    process._receive()
    assert len(left) == 100
    process._receive()  # there is work now
    assert len(left) == 100
    caller.close(0)
    process._socket.close(0)
