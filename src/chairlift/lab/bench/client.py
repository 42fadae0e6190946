"""One client process: sends its share of the requests when they are due, and timestamps the answers.

Always: every request that was sent ends as one record. Of the answers only times and counts are kept.
"""

import asyncio
import gc
import resource
import signal
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from time import monotonic

import uvloop

from chairlift.lab.bench.answer import READERS, StreamedAnswer
from chairlift.lab.bench.connection import Connections
from chairlift.lab.bench.messages import (
    Begin,
    ClientProgress,
    ClientReady,
    ClientUsage,
    LoadPlan,
    PreparedRequest,
    Stop,
)
from chairlift.lab.bench.record import ClientRecord, Ending, Unreachable

Report = Callable[[ClientProgress | ClientUsage], object]

LAG_EVERY_S = 0.01
TELL_EVERY_S = 0.2
PAUSE_S = 0.5  # of a closed loop whose server refuses connections


def main(commands: Pipe, reports: Pipe) -> None:
    """Two pipes: the event loop makes the one it watches non-blocking, which long reports cannot use."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to stop
    _allow_many_connections()
    share = commands.recv()
    gc.freeze()  # the share is permanent: the collector need not scan it
    reports.send(ClientReady())
    # A thread sends the reports: a parent that is slow to read them does not stop the clock.
    with ThreadPoolExecutor(1) as sender:
        uvloop.run(Client(share, commands, lambda report: sender.submit(reports.send, report)).run())


def _allow_many_connections() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Client:
    def __init__(self, share: LoadPlan, pipe: Pipe, report: Report) -> None:
        self._share = share
        self._pipe = pipe
        self._report = report
        self._connections = Connections(share.target.address, share.peer, READERS[share.target.api])
        self._commands: asyncio.Queue[Begin | Stop] = asyncio.Queue()
        self._in_flight: dict[int, StreamedAnswer] = {}
        self._records: list[ClientRecord] = []
        self._num_chunks = 0  # of answers that ended
        self._at = 0.0

    async def run(self) -> None:
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._listen)
        while True:
            command = await self._commands.get()
            if isinstance(command, Stop):
                return
            requests = self._share.warm_up if command.is_warm_up else self._share.requests
            if not await self._phase(requests, command.at):
                return

    def _listen(self) -> None:
        try:
            self._commands.put_nowait(self._pipe.recv())
        except EOFError:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._commands.put_nowait(Stop())

    async def _phase(self, requests: list[PreparedRequest], at: float) -> bool:
        """Whether the phase ended by itself, not by a stop."""
        self._at, self._num_chunks = at, 0
        lags: array[float] = array("d")
        began, processor = monotonic(), time.process_time()
        watching = [asyncio.ensure_future(self._watch_lag(lags)), asyncio.ensure_future(self._tell())]
        loop = self._closed_loop(iter(requests)) if self._share.concurrency else self._open_loop(requests)
        sending = asyncio.ensure_future(loop)
        stopping = asyncio.ensure_future(self._commands.get())  # nothing but Stop comes during a phase
        await asyncio.wait((sending, stopping), return_when=asyncio.FIRST_COMPLETED)
        is_stopped = stopping.done()
        for task in (*watching, sending, stopping):
            task.cancel()
        for end in await asyncio.gather(*watching, sending, stopping, return_exceptions=True):
            if isinstance(end, Exception):  # a bug of ours must not pass unseen
                raise end
        usage = ClientUsage(monotonic() - began, time.process_time() - processor, lags.tobytes())
        self._flush()
        self._report(usage)
        return not is_stopped

    async def _closed_loop(self, todo: Iterator[PreparedRequest]) -> None:
        await asyncio.sleep(self._at - monotonic())
        async with asyncio.TaskGroup() as group:
            for _ in range(self._share.concurrency):
                group.create_task(self._one_after_another(todo))

    async def _open_loop(self, requests: list[PreparedRequest]) -> None:
        async with asyncio.TaskGroup() as group:
            for planned in requests:
                wait_s = self._at + planned.arrival_s - monotonic()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                group.create_task(self._one(planned, planned.arrival_s))

    async def _one_after_another(self, todo: Iterator[PreparedRequest]) -> None:
        for planned in todo:
            is_reachable = await self._one(planned, monotonic() - self._at)
            if not is_reachable:
                await asyncio.sleep(PAUSE_S)

    async def _one(self, planned: PreparedRequest, due_s: float) -> bool:
        """Whether the server accepted the connection."""
        answer = self._in_flight[planned.index] = StreamedAnswer()
        sent = monotonic()
        ending, reason, is_unreachable = Ending.CUT, "", False
        try:
            async with asyncio.timeout(self._share.timeout_s):
                await self._connections.ask(planned.request, answer)
            ending, reason = answer.judge(planned.output_tokens)
        except TimeoutError:
            ending, reason = Ending.FAILED, f"not answered within {self._share.timeout_s:g} s"
        except Unreachable as error:
            ending, reason, is_unreachable = Ending.FAILED, str(error), True
        finally:
            del self._in_flight[planned.index]
            self._num_chunks += len(answer.times)
            self._records.append(
                ClientRecord(
                    index=planned.index,
                    due_s=due_s,
                    sent_s=sent - self._at,
                    times=array("d", [moment - self._at for moment in answer.times]).tobytes(),
                    last_s=(answer.last_s or sent) - self._at,
                    asked_tokens=planned.output_tokens,
                    prompt_tokens=planned.prompt_tokens if answer.prompt_tokens is None else answer.prompt_tokens,
                    cached_tokens=answer.cached_tokens,
                    output_tokens=answer.num_tokens,
                    is_told=answer.output_tokens is not None,
                    ending=ending,
                    reason=reason,
                    is_unreachable=is_unreachable,
                )
            )
        return not is_unreachable

    async def _watch_lag(self, lags: "array[float]") -> None:
        while True:
            due = monotonic() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            lags.append(max(0.0, monotonic() - due))

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            self._flush()

    def _flush(self) -> None:
        records, self._records = self._records, []
        num_running = sum(bool(answer.times) for answer in self._in_flight.values())
        num_chunks = self._num_chunks + sum(len(answer.times) for answer in self._in_flight.values())
        num_waiting = len(self._in_flight) - num_running
        self._report(ClientProgress(num_waiting, num_running, num_chunks, records))
