"""The contest's client: sends requests when they are due, each on its own connection, as the original does.

Always: every request that was sent has one outcome. A refused connection or an interrupt ends the run; requests in
flight count as cut.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence
from time import monotonic

import msgspec

from chairlift.core.errors import InvalidConfig
from chairlift.lab.bench.answer import StreamedAnswer, llm_serving_line, read_llm_serving
from chairlift.lab.bench.connection import Connections
from chairlift.lab.bench.probe import answering
from chairlift.lab.bench.record import Ending, Unreachable
from chairlift.lab.bench.target import Address
from chairlift.lab.contest.outcome import ContestOutcome, ContestRun
from chairlift.lab.contest.requests import ROUTE, ContestRequest


def check_route(address: Address) -> None:
    """A body without a prompt is refused by the right route (422) and unknown to any other (404, 405)."""
    headers = {"Content-Type": "application/json", "Connection": "close"}
    with answering(address, "POST", ROUTE, headers, b"{}") as answer:
        status = answer.status
    if status in (404, 405, 501):
        raise InvalidConfig(
            f"{address} has no {ROUTE} (HTTP {status}): it does not speak llm-serving's API; `chairlift bench` is for "
            "servers that speak OpenAI's"
        )


OnEnd = Callable[[ContestOutcome], None]
INTERRUPTED = "interrupted"


class _AnswerWithLine(StreamedAnswer):
    """Keeps the last line, which holds the whole text."""

    last_line = b""


def _read(answer: StreamedAnswer, line: bytes, now: float) -> None:
    read_llm_serving(answer, line, now)
    if isinstance(answer, _AnswerWithLine) and line.lstrip().startswith(b"{"):
        answer.last_line = line


class ContestClient:
    def __init__(self, address: Address, peer: str, timeout_s: float, on_end: OnEnd) -> None:
        self._connections = Connections(address, peer, _read)
        self._host = address.netloc
        self._timeout_s = timeout_s
        self._on_end = on_end
        self._stopped: asyncio.Future[str]

    async def run(self, requests: Sequence[ContestRequest]) -> ContestRun:
        loop = asyncio.get_running_loop()
        self._stopped = loop.create_future()
        loop.add_signal_handler(signal.SIGINT, self._stop, INTERRUPTED)
        run = ContestRun(len(requests))
        began = monotonic()
        tasks: set[asyncio.Task[None]] = set()
        sending = asyncio.ensure_future(self._send(requests, began, run, tasks))
        await asyncio.wait((sending, self._stopped), return_when=asyncio.FIRST_COMPLETED)
        if not self._stopped.done():
            await asyncio.wait((asyncio.gather(*tasks), self._stopped), return_when=asyncio.FIRST_COMPLETED)
        run.exec_time = monotonic() - began
        if self._stopped.done():
            run.stopped = self._stopped.result()
            for task in (sending, *tasks):
                task.cancel()
            await asyncio.gather(sending, *tasks, return_exceptions=True)
        loop.remove_signal_handler(signal.SIGINT)
        return run

    def _stop(self, why: str) -> None:
        if not self._stopped.done():
            self._stopped.set_result(why)

    async def _send(
        self, requests: Sequence[ContestRequest], began: float, run: ContestRun, tasks: set[asyncio.Task[None]]
    ) -> None:
        for request in requests:
            wait_s = began + request.at_s - monotonic()
            await asyncio.sleep(max(0.0, wait_s))
            tasks.add(asyncio.ensure_future(self._one(request, run)))

    async def _one(self, request: ContestRequest, run: ContestRun) -> None:
        answer = _AnswerWithLine()
        sent = monotonic()
        ending, reason = Ending.CUT, "cut: the run was stopped"
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connections.ask(request.request(self._host), answer)
            ending, reason = answer.judge(request.max_new_tokens)
        except TimeoutError:
            ending, reason = Ending.FAILED, f"not answered within {self._timeout_s:g} s"
        except Unreachable as error:
            ending, reason = Ending.FAILED, str(error)
            self._stop(reason)
        finally:
            outcome = _outcome(request, answer, sent, ending, reason)
            run.outcomes.append(outcome)
            self._on_end(outcome)


def _outcome(
    request: ContestRequest, answer: _AnswerWithLine, sent: float, ending: Ending, reason: str
) -> ContestOutcome:
    return ContestOutcome(
        request=request,
        ending=ending,
        reason=reason,
        text=_text(answer.last_line),
        num_tokens=answer.num_tokens,
        res_time=monotonic() - sent,
        first_token_time=answer.times[0] - sent if answer.times else None,
    )


def _text(line: bytes) -> str:
    try:
        return llm_serving_line(line).generated_text
    except (msgspec.DecodeError, IndexError):
        return ""
