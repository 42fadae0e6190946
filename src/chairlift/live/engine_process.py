"""The engine's end of the wire: reads what front ends send, steps, and sends each its outputs, once per step.

Sleeps in the socket when there is nothing to do. A front end that is gone is noticed when it is next written to, and
its requests are ended.
"""

import msgspec
import zmq

from chairlift.live.messages import Abort, EngineInfo, FromEngine, Hello, Output, Ready, Step, Submit, ToEngine
from chairlift.live.switchboard import FrontEnd, Switchboard


class EngineProcess:
    def __init__(self, address: str, switchboard: Switchboard, info: EngineInfo) -> None:
        self._switchboard = switchboard
        self._info = info
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(ToEngine)
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)

    def run(self) -> None:
        """Never returns; a signal ends the process."""
        while True:
            self._receive()
            for front_end, outputs in self._switchboard.step().items():
                self._send(front_end, self._step(outputs))

    def _step(self, outputs: list[Output]) -> Step:
        scheduler = self._switchboard.engine.scheduler
        num_waiting = len(scheduler.waiting) + len(scheduler.preempted)
        return Step(outputs, len(scheduler.running), num_waiting)

    def _receive(self) -> None:
        """Everything that has arrived; waits for something only when there is no work."""
        timeout_ms = 0 if self._switchboard.has_work else None
        while self._socket.poll(timeout_ms):
            front_end, data = self._socket.recv_multipart()
            message = self._decoder.decode(data)
            if isinstance(message, Submit):
                self._switchboard.submit(front_end, message)
            elif isinstance(message, Abort):
                self._switchboard.abort(front_end, message)
            elif isinstance(message, Hello):
                self._switchboard.drop(front_end)  # whoever had this name before is gone
                self._send(front_end, Ready(self._info))
            timeout_ms = 0

    def _send(self, front_end: FrontEnd, message: FromEngine) -> None:
        try:
            self._socket.send_multipart([front_end, self._encoder.encode(message)])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._switchboard.drop(front_end)
