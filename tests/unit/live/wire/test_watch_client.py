"""The replica that the live page shows: the first that is there, another when it goes, and no other's word."""

from chairlift.live.wire.messages import Explain, Snapshot, Watch
from chairlift.live.wire.watch_client import Watched


class Page:
    def __init__(self) -> None:
        self.sent: list[int] = []
        self.seen: list[bytes] = []
        self.watched = Watched(self._send)

    def _send(self, replica: int, message: Watch | Explain) -> bool:
        assert message == Watch(True)
        self.sent.append(replica)
        return True

    def put(self, snapshot: Snapshot) -> None:
        self.seen.append(snapshot.data)

    def lose(self) -> None:
        self.seen.append(b"away")


async def test_the_page_goes_on_with_another_replica_when_its_own_is_gone() -> None:
    page = Page()
    page.watched.come(2)
    page.watched.client.begin(page)
    page.watched.come(0)
    assert page.sent == [2]
    page.watched.hear(0, Snapshot(True, b"of 0"))
    page.watched.hear(2, Snapshot(True, b"of 2"))
    page.watched.go(1, [0, 2])
    assert page.seen == [b"of 2"]
    page.watched.go(2, [0, 1])
    assert page.watched.replica == 0
    page.watched.hear(2, Snapshot(False, b"late"))
    page.watched.hear(0, Snapshot(True, b"of 0"))
    assert page.sent == [2, 0]
    assert page.seen == [b"of 2", b"away", b"of 0"]


async def test_the_last_replica_to_go_is_shown_again_when_it_is_back() -> None:
    page = Page()
    page.watched.come(0)
    page.watched.client.begin(page)
    page.watched.go(0, [])
    assert page.watched.replica is None
    page.watched.come(0)
    assert page.sent == [0, 0]
    assert page.seen == [b"away"]
