"""Which of several replicas the live page shows: the first that is there, and another once that is gone."""

from collections.abc import Callable

from chairlift.live.wire.messages import Explain, Explained, Snapshot, Watch
from chairlift.live.wire.watch_client import WatchClient


class Watched:
    def __init__(self, send: Callable[[int, Watch | Explain], bool]) -> None:
        """`send` is False when the replica is not there."""
        self.client = WatchClient(self._send_to_it)
        self.replica: int | None = None  # None: none is there
        self._send = send

    def _send_to_it(self, message: Watch | Explain) -> bool:
        return self.replica is not None and self._send(self.replica, message)

    def come(self, replica: int) -> None:
        if self.replica is None:
            self.replica = replica
            self.client.resume()

    def go(self, replica: int, others: list[int]) -> None:
        """`others`: that are there."""
        if replica == self.replica:
            self.replica = None
            self.client.lose()
            for other in others[:1]:
                self.come(other)

    def hear(self, replica: int, message: Snapshot | Explained) -> None:
        if replica == self.replica:
            self.client.hear(message)
