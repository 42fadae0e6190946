"""Front ends tell replicas what users were served in the others; an engine hands it to its policy."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import zmq

from chairlift.core.policies.fair_share import FairShare
from chairlift.core.policy import Service
from chairlift.live.wire import service_told
from chairlift.live.wire.engine_process import EngineProcess
from chairlift.live.wire.messages import Elsewhere
from chairlift.live.wire.service_told import ServiceTold
from fakes.switchboards import info_of, ledger_switchboard
from fakes.viewed import viewed

ANN, BOB = Service("ann", 1.0, 5, 1), Service("bob", 2.0, 0, 1)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_told, "period_s", lambda num_replicas: 0.0)


async def test_each_replica_is_told_of_the_others_those_that_are_gone_of_nothing() -> None:
    sent: list[tuple[int, list[Service]]] = []
    told = ServiceTold(lambda replica, message: sent.append((replica, message.services)))
    for replica, counts_users in ((0, True), (1, True), (2, False), (3, True)):
        told.come(replica, counts_users)
    told.go(3)
    assert told.is_on
    told.count(0, ANN)
    told.count(1, BOB)
    told.count(0, ANN)
    await asyncio.sleep(0.01)
    assert sent == [(0, [BOB]), (1, [Service("ann", 1.0, 10, 2)])]


async def test_nothing_is_counted_where_one_replica_is_left() -> None:
    told = ServiceTold(lambda replica, message: None)
    told.come(0, counts_users=True)
    assert not told.is_on
    told.come(1, counts_users=True)
    assert told.is_on
    told.go(0)
    assert not told.is_on


class Kept(FairShare):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Service] = []

    def served_elsewhere(self, services: Sequence[Service]) -> None:
        self.heard += services


def test_an_engine_hands_it_to_its_policy(tmp_path: Path) -> None:
    policy = Kept()
    switchboard = ledger_switchboard(policy=policy)
    info = info_of(switchboard)
    assert info.counts_users
    assert not info_of(ledger_switchboard()).counts_users
    process = EngineProcess(f"ipc://{tmp_path}/engine", switchboard, viewed(switchboard.engine), info)
    caller = zmq.Context.instance().socket(zmq.DEALER)
    caller.connect(f"ipc://{tmp_path}/engine")
    caller.send(msgspec.msgpack.encode(Elsewhere([ANN, BOB])))
    assert process._socket.poll(5_000)
    process._take(0)
    assert policy.heard == [ANN, BOB]
    caller.close(0)
    process._socket.close(0)
