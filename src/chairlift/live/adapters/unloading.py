"""An adapter that is offered no more, until all replicas have forgotten it."""

import asyncio


class Unloading:
    def __init__(self) -> None:
        self.replicas = 0  # that have not forgotten it; bits
        self.done = asyncio.Event()

    def lose(self, replica: int) -> None:
        """It has forgotten it, or is gone."""
        self.replicas &= ~(1 << replica)
        self.tell()

    def tell(self) -> None:
        if not self.replicas:
            self.done.set()
