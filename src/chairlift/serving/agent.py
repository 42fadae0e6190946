"""The agent of a node: tells the members' list each second what runs here, and sees the node out.

Always: its death, and that of the list, disturb no request. It is connected to the node's engines as a front end is,
and so knows their loads. When the node is told to stop it asks the engines to be left, waits until they are and the
keys and values of their requests were fetched, and tells the list that it leaves.
"""

import asyncio
import contextlib
import secrets
import socket
import time
from functools import partial

import msgspec
import zmq
import zmq.asyncio

from chairlift.build import ResolvedModel
from chairlift.config.cluster_key import read_key
from chairlift.core.errors import InvalidConfig
from chairlift.core.moving import MAX_FETCH_S
from chairlift.live.nodes.messages import Ended, FromList, Leave, MemberEngine, Refused, Tell, ToList
from chairlift.live.nodes.terms import digest_of, terms_of
from chairlift.live.processes.child import STOP, ReportReady
from chairlift.live.recovery.step_note import StepNote
from chairlift.live.wire import messages
from chairlift.live.wire.curve import TURNED_AWAY, Curve
from chairlift.live.wire.link import Link
from chairlift.serving import process_setup
from chairlift.serving.addresses import split, tcp
from chairlift.serving.process_setup import RunFolder
from chairlift.telemetry.log_lines import say, set_up_logging

_TELL_S = 1.0
_PATIENCE_S = 5.0  # without the list, before a line says so
_MAX_TURNED_AWAY = 5  # in a row, before the key must be wrong
_QUIET_S = 0.5  # without requests, until those that were on their way have come and gone
_LOOK_S = 0.02  # between two looks for the word how an engine ended
_MAX_LOOKS = 100


def agent_main(report: ReportReady, model: ResolvedModel, folder: RunFolder, public: list[str]) -> None:
    """`public`: the engines' addresses for other machines."""
    set_up_logging(model.settings.log_level, model.settings.log_format)
    with process_setup.outliving_parent(folder):
        asyncio.run(Agent(report, model, folder, public).run())


class Agent:
    def __init__(self, report: ReportReady, model: ResolvedModel, folder: RunFolder, public: list[str]) -> None:
        settings = model.settings
        assert settings.join is not None
        self._report, self._join = report, settings.join
        self._public = public
        self._about = Tell(f"{socket.gethostname()}-{secrets.token_hex(3)}", model.source.name, digest_of(model.config))
        self._pieces = folder.pieces
        self._notes = [StepNote(folder.steps(replica)) for replica in range(len(public))]
        self._links = [
            Link(folder.address(i), "agent", partial(self._hear, i), partial(self._lose, i)) for i in range(len(public))
        ]
        self._curve = Curve(read_key(settings.cluster_key))
        self._encoder = msgspec.msgpack.Encoder()
        self._is_stopping = asyncio.Event()
        self._is_welcome = False  # ever
        self._has_reported = False
        self._num_turned_away = 0  # in a row
        self._heard = time.monotonic()  # the list
        self._is_missed = False  # the list, and a line has said so

    async def run(self) -> None:
        """Until the node is told to stop and its engines are left."""
        asyncio.get_running_loop().add_signal_handler(STOP, self._is_stopping.set)
        self._list = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        self._list.setsockopt(zmq.LINGER, 500)
        self._list.setsockopt(zmq.IMMEDIATE, 1)  # nothing is kept for a list that is not there
        monitor = self._list.get_monitor_socket(TURNED_AWAY)
        self._curve.connect(self._list, tcp(*split(self._join)))
        duties = [self._listen(), self._count_turned_away(monitor), self._tell(), *(link.run() for link in self._links)]
        tasks = [asyncio.ensure_future(duty) for duty in (*duties, self._see_out())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._list.disable_monitor()
            monitor.close()
            self._list.close()

    async def _tell(self) -> None:
        while True:
            await self._tell_engines()
            if not self._is_missed and time.monotonic() - self._heard >= _PATIENCE_S:
                self._is_missed = True
                say(f"{self._join} does not answer; what runs here goes on, and joins when it does")
            await asyncio.sleep(_TELL_S if self._is_welcome else _TELL_S / 4)

    async def _tell_engines(self) -> None:
        engines = self._engines()
        ready = {engine.address for engine in engines}
        starting = [address for address in self._public if address not in ready]
        await self._send(msgspec.structs.replace(self._about, engines=engines, starting=starting))

    def _engines(self) -> list[MemberEngine]:
        found = []
        for link, address in zip(self._links, self._public, strict=True):
            if link.is_ready and link.info is not None:
                terms = terms_of(link.info)
                load = (link.num_running, link.num_waiting, self._is_stopping.is_set(), link.queued)
                figures = link.seen.figures if link.seen.figures.born else None
                found.append(MemberEngine(address, terms.fingerprint, terms.span, terms.max_tokens, *load, figures))
        return found

    async def _listen(self) -> None:
        decoder = msgspec.msgpack.Decoder(FromList)
        while True:
            answer = decoder.decode(await self._list.recv())
            self._heard, self._is_missed, self._num_turned_away = time.monotonic(), False, 0
            if isinstance(answer, Refused):
                raise InvalidConfig(f"{self._join} refuses this node: {answer.reason}")
            self._is_welcome = True
            if not self._has_reported and all(link.is_ready for link in self._links):
                self._has_reported = True
                self._report(None)

    async def _count_turned_away(self, monitor: zmq.asyncio.Socket) -> None:
        while True:
            await monitor.recv_multipart()
            self._num_turned_away += 1
            if self._num_turned_away >= _MAX_TURNED_AWAY and not self._is_welcome:
                raise InvalidConfig(
                    f"{self._join} turns this node away: it has another cluster key, or is no chairlift cluster; give "
                    "both the same --cluster-key file"
                )

    def _hear(self, replica: int, message: messages.FromEngine) -> None:
        if isinstance(message, messages.Ready) and self._is_stopping.is_set():
            self._links[replica].send(messages.Drain(True))

    def _lose(self, replica: int) -> None:
        """An engine has died: front ends should know what it was busy with before they try that elsewhere."""
        asyncio.ensure_future(self._tell_end(replica))  # noqa: RUF006  it ends by itself

    async def _tell_end(self, replica: int) -> None:
        for _ in range(_MAX_LOOKS):
            left = self._notes[replica].look()
            if left is not None:
                await self._send(Ended(self._public[replica], left.was_killed, left.keys))
                return
            await asyncio.sleep(_LOOK_S)

    async def _see_out(self) -> None:
        await self._is_stopping.wait()
        for link in self._links:
            if link.is_ready:
                link.send(messages.Drain(True))
        quiet = time.monotonic()
        while time.monotonic() - quiet < _QUIET_S:
            if any(link.num_running + link.num_waiting for link in self._links):
                quiet = time.monotonic()
            await asyncio.sleep(_LOOK_S)
        late = time.monotonic() + MAX_FETCH_S  # then nobody fetches them any more
        while any(self._pieces.glob("*")) and time.monotonic() < late:
            await asyncio.sleep(_LOOK_S)
        await self._tell_engines()  # what they counted since
        await self._send(Leave(self._about.node))

    async def _send(self, message: ToList) -> None:
        with contextlib.suppress(zmq.Again):  # the list is not there
            await self._list.send(self._encoder.encode(message), zmq.NOBLOCK)
