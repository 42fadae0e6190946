"""The running links of a front end, a task for each replica: one that breaks ends all."""

import asyncio
from collections.abc import Iterable

from chairlift.live.wire.link import Link


class LinkRuns:
    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by replica
        self._broken: asyncio.Future[None] | None = None  # while running

    @property
    def is_on(self) -> bool:
        return self._broken is not None

    async def until_broken(self, links: Iterable[Link]) -> None:
        """Runs the links of the first replicas; raises what breaks one of them, or one that is added."""
        self._broken = asyncio.get_running_loop().create_future()
        for replica, link in enumerate(links):
            self.start(replica, link)
        await self._broken

    async def stop_all(self) -> None:
        tasks, self._tasks, self._broken = list(self._tasks.values()), {}, None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def start(self, replica: int, link: Link) -> None:
        self._tasks[replica] = asyncio.ensure_future(link.run())
        self._tasks[replica].add_done_callback(self._end)

    def stop(self, replica: int) -> None:
        if (task := self._tasks.pop(replica, None)) is not None:
            task.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)
