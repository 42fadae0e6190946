"""The process of the members' list: nodes tell it what they are, and it tells the front ends of this machine.

Always: it can end and begin anew at any time. Nodes tell again within a second; what the fleet's first engine was like
is in the run folder, and so are the numbers under which engines are shown.
"""

import time
from pathlib import Path

import msgspec
import zmq

from chairlift.build import ResolvedModel
from chairlift.config.cluster_key import read_key
from chairlift.live.nodes.members import SILENT_S, MembersList, Numbers
from chairlift.live.nodes.messages import Ended, FromList, Leave, Left, Published, Refused, Tell, ToList, Welcome
from chairlift.live.nodes.terms import REASONS, EngineTerms, Terms, digest_of, terms_of
from chairlift.live.processes.child import ReportReady
from chairlift.live.wire import messages
from chairlift.live.wire.curve import Curve, Gate
from chairlift.serving import process_setup
from chairlift.serving.process_setup import RunFolder
from chairlift.telemetry.log_lines import say, set_up_logging
from chairlift.telemetry.metrics.fleet import FleetMetrics

_TELL_S = 1.0
_MAX_HEARD = 2**20  # bytes of a message


def members_main(report: ReportReady, model: ResolvedModel, folder: RunFolder, address: str) -> None:
    set_up_logging(model.settings.log_level, model.settings.log_format)
    with process_setup.outliving_parent(folder):
        process = MembersProcess(model, folder, address)
        report(None)
        process.run()


class MembersProcess:
    def __init__(self, model: ResolvedModel, folder: RunFolder, address: str) -> None:
        settings = model.settings
        self._file = folder.terms
        terms = Terms(model.source.name, digest_of(model.config), settings.exact, _saved(folder))
        self._numbers_file = folder.numbers
        numbers = Numbers(settings.replicas, _saved_numbers(folder))
        self._list = MembersList(terms, settings.replicas > 0, numbers)
        self._metrics = FleetMetrics(folder.metrics, settings.replicas > 0, REASONS)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._nodes: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        self._front_ends: zmq.Socket[bytes] = context.socket(zmq.PUB)
        for socket in (self._nodes, self._front_ends):
            socket.setsockopt(zmq.LINGER, 0)
        curve = Curve(read_key(settings.cluster_key))
        curve.listen(self._nodes, address, "--cluster HOST:PORT", _MAX_HEARD)
        self._gate = Gate.of(context, curve.public)
        self._front_ends.bind(folder.members)
        self._own: zmq.Socket[bytes] | None = None  # asks an engine of this machine what it is like
        if settings.replicas and terms.engines is None:
            self._own = context.socket(zmq.DEALER)
            self._own.setsockopt(zmq.LINGER, 0)
            self._own.connect(folder.address(0))
            self._own.send(msgspec.msgpack.encode(messages.Hello()))
        self._decoder = msgspec.msgpack.Decoder(ToList)
        self._encoder = msgspec.msgpack.Encoder()
        self._due = 0.0  # the next publication
        self._refused: dict[str, float] = {}  # when a line said so last, by node

    def run(self) -> None:
        """Never returns; a signal ends the process."""
        poller = zmq.Poller()
        poller.register(self._nodes, zmq.POLLIN)
        if self._own is not None:
            poller.register(self._own, zmq.POLLIN)
        while True:
            wait_ms = max(0, round(1000 * (self._due - time.monotonic())))
            for socket, _ in poller.poll(wait_ms):
                if socket is self._nodes:
                    self._hear(*self._nodes.recv_multipart())
                elif self._own is not None and self._learn(self._own.recv()):
                    poller.unregister(self._own)
                    self._own.close()
                    self._own = None
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + _TELL_S
                for tell in self._list.end_silent(time.monotonic()):
                    say(f"node {tell.node} is gone: it was silent for {SILENT_S:.0f} s")
                self._show()

    def _show(self) -> None:
        """To front ends, and on `/metrics`."""
        if self._list.give_numbers(time.monotonic()):
            _replace(self._numbers_file, msgspec.json.encode(self._list.numbers.by_address))
        members = self._list.members()
        without_figures = [msgspec.structs.replace(each, figures=None) for each in members.engines]
        self._publish(msgspec.structs.replace(members, engines=without_figures))
        told = {each.address: each.figures for each in members.engines if each.figures is not None}
        self._metrics.show(told, self._list.numbers.by_address, self._gate.num_turned_away)

    def _learn(self, data: bytes) -> bool:
        """From the first message of an engine of this machine."""
        message = msgspec.msgpack.decode(data, type=messages.FromEngine)
        if isinstance(message, messages.Ready):
            self._list.begin(terms_of(message.info))
            self._save()
        return isinstance(message, messages.Ready)

    def _hear(self, sender: bytes, *parts: bytes) -> None:
        try:
            message = self._decoder.decode(parts[0] if len(parts) == 1 else b"")
        except msgspec.MsgspecError as error:
            say(f"a message to the members' list was dropped, as it cannot be read ({error})")
            return
        if isinstance(message, Ended):
            self._publish(message)
        elif isinstance(message, Leave):
            self._show()  # what it told just before counts
            addresses = self._list.leave(message)
            if addresses is not None:
                self._publish(Left(addresses))
                say(f"node {message.node} has left")
            self._due = 0.0
        else:
            self._answer(sender, self._join(message))

    def _join(self, tell: Tell) -> FromList:
        now, had, before = time.monotonic(), self._list.last(tell.node), self._list.members()
        refusal = self._list.hear(tell, now)
        if refusal is not None:
            if now - self._refused.get(tell.node, -SILENT_S) >= SILENT_S:
                self._refused = {node: at for node, at in self._refused.items() if now - at < SILENT_S}
                self._refused[tell.node] = now
                self._metrics.refused(refusal.reason)
                say(f"node {tell.node} may not join: {refusal.message}")
            return Refused(refusal.message)
        if tell.engines and (had is None or not had.engines):
            say(f"node {tell.node} has joined: {', '.join(engine.address for engine in tell.engines)}")
        elif had is None:
            say(f"node {tell.node} is starting")
        elif had.engines and not tell.engines:
            say(f"node {tell.node} has no engine at present")
        if {engine.address for engine in before.engines} != {each.address for each in self._list.members().engines}:
            self._save()
            self._due = 0.0
        return Welcome()

    def _answer(self, to: bytes, message: FromList) -> None:
        self._nodes.send_multipart([to, self._encoder.encode(message)])

    def _publish(self, message: Published) -> None:
        self._front_ends.send(self._encoder.encode(message))

    def _save(self) -> None:
        if self._list.terms.engines is not None and not self._file.exists():
            _replace(self._file, msgspec.json.encode(self._list.terms.engines))


def _replace(path: Path, content: bytes) -> None:
    """Whole, or not at all."""
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    beside.replace(path)


def _saved(folder: RunFolder) -> EngineTerms | None:
    return msgspec.json.decode(folder.terms.read_bytes(), type=EngineTerms) if folder.terms.exists() else None


def _saved_numbers(folder: RunFolder) -> dict[str, int]:
    return msgspec.json.decode(folder.numbers.read_bytes(), type=dict[str, int]) if folder.numbers.exists() else {}
