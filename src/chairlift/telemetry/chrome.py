"""A trace as Chrome and Perfetto show it: a track per slot of the running set, and counters.

    steps      every step, with what it computed
    running set  a track per slot: the request in it; inside, its prompt chunks and its runs of decode steps
    preempted  requests that wait to come back, on as many tracks as were ever needed at once
    counters   waiting, running, blocks in use

Open the file at https://ui.perfetto.dev or chrome://tracing. Knows only what the trace says.
"""

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from chairlift.core.events import Admitted, Finished, Forked, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.telemetry.lines import AbortLine, Add, AnyLine, Commit, Fail, Plan, RollBack
from chairlift.telemetry.trace import Trace

_STEPS, _RUNNING, _PREEMPTED, _COUNTERS = range(1, 5)
_NAMES = {_STEPS: "steps", _RUNNING: "running set", _PREEMPTED: "preempted", _COUNTERS: "counters"}

Entry = dict[str, Any]


def entries(trace: Trace) -> Iterator[Entry]:
    """The "traceEvents", in no particular order."""
    for index, (process, name) in enumerate(_NAMES.items()):
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": index}}
    converter = _Converter()
    for line in trace:
        yield from converter.take(line)
    yield from converter.end()


def render(trace: Trace) -> Iterator[bytes]:
    """The file, piece by piece."""
    encode = msgspec.json.encode
    yield b'{"displayTimeUnit":"ms","otherData":' + encode({"model": trace.header.model}) + b',"traceEvents":[\n'
    separator = b""
    for entry in entries(trace):
        yield separator + encode(entry)
        separator = b",\n"
    yield b"\n]}\n"


class _Tracks:
    """Gives each request the lowest free track."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._free: list[int] = []
        self._num = 0
        self.open: dict[RequestId, tuple[int, float]] = {}  # track, since

    def enter(self, request: RequestId, at: float) -> None:
        if request in self.open:
            return
        if not self._free:
            self._num += 1
            self._free.append(self._num)
        self.open[request] = heapq.heappop(self._free), at

    def leave(self, request: RequestId, at: float) -> Iterator[Entry]:
        if request in self.open:
            track, since = self.open.pop(request)
            heapq.heappush(self._free, track)
            yield _slice(self._process, track, f"request {request}", since, at)


class _Run(NamedTuple):
    """Decode steps of one request that follow each other."""

    first: float
    last: float
    last_step: int
    num_tokens: int


class _Converter:
    def __init__(self) -> None:
        self._now = 0.0
        self._running = _Tracks(_RUNNING)
        self._preempted = _Tracks(_PREEMPTED)
        self._prompts: dict[RequestId, int] = {}
        self._searches: dict[RequestId, list[RequestId]] = {}  # members end together, and some without an event
        self._plans: dict[int, Plan] = {}
        self._done = 0.0  # when the last step ended
        self._runs: dict[RequestId, _Run] = {}

    def take(self, line: AnyLine) -> Iterator[Entry]:
        self._now = max(self._now, line.at)
        match line:
            case Add():
                for request in line.requests:
                    self._prompts[request] = len(line.prompt)
                    if line.beam_width:
                        self._searches[request] = line.requests
            case Plan():
                yield from self._plan(line)
            case Commit():
                yield from self._step(line.step, line.at, line.more)
            case Fail():
                yield from self._step(line.step, line.at, {})
            case RollBack():
                del self._plans[line.step]
            case Admitted() | Forked():
                yield from self._preempted.leave(line.request, line.at)
                self._running.enter(line.request, line.at)
            case Preempted():
                yield from self._leave_running(line.request, line.at)
                self._preempted.enter(line.request, line.at)
            case Finished() | AbortLine():
                yield from self._end(line.request, line.at)
            case Token() if line.finish is not None:
                for request in self._searches.get(line.request, [line.request]):
                    yield from self._end(request, line.at)

    def end(self) -> Iterator[Entry]:
        """Shows open requests up to the last line."""
        for request in [*self._running.open, *self._preempted.open]:
            yield from self._end(request, self._now)

    def _plan(self, line: Plan) -> Iterator[Entry]:
        if line.step is not None:
            self._plans[line.step] = line
        counts = {"waiting": line.waiting + line.preempted, "running": line.running, "blocks in use": line.blocks}
        for name, count in counts.items():
            yield {"ph": "C", "pid": _COUNTERS, "name": name, "ts": _micros(line.at), "args": {name: count}}

    def _step(self, step: int, at: float, more: dict[RequestId, list[int]]) -> Iterator[Entry]:
        plan = self._plans.pop(step)
        # A step that was planned while another ran began when that one ended.
        start, self._done = max(plan.at, self._done), at
        yield _slice(
            _STEPS, 1, f"step {step}", start, at,
            tokens=sum(count for _, _, count in plan.chunks), decodes=plan.num_decoding,
            drafts=sum(map(len, plan.drafts.values())), accepted=sum(map(len, more.values())),
            prompts=len(plan.chunks) - plan.num_decoding, copies=plan.num_copies,
            swapped_out=plan.num_swap_outs, swapped_in=plan.num_swap_ins,
        )  # fmt: skip
        for index, (request, first, count) in enumerate(plan.chunks):
            if request not in self._running.open:  # aborted meanwhile
                continue
            end = first + count - len(plan.drafts.get(request, ()))
            is_prompt = end <= self._prompts[request]
            if index < plan.num_decoding and not is_prompt:
                yield from self._decode(request, step, start, at, 1 + len(more.get(request, ())))
            else:
                what = "prompt" if is_prompt else "again"
                yield _slice(_RUNNING, self._running.open[request][0], f"{what} {first}-{end}", start, at)

    def _decode(self, request: RequestId, step: int, start: float, at: float, num_tokens: int) -> Iterator[Entry]:
        """A step without this request ends its run, so that it shows as a gap."""
        run = self._runs.get(request)
        if run is not None and run.last_step != step - 1:
            yield from self._end_run(request)
            run = None
        self._runs[request] = _Run(run.first if run else start, at, step, num_tokens + (run.num_tokens if run else 0))

    def _end_run(self, request: RequestId) -> Iterator[Entry]:
        run = self._runs.pop(request, None)
        if run is not None:
            track, _ = self._running.open[request]
            yield _slice(_RUNNING, track, f"decode {run.num_tokens}", run.first, run.last)

    def _leave_running(self, request: RequestId, at: float) -> Iterator[Entry]:
        yield from self._end_run(request)
        yield from self._running.leave(request, at)

    def _end(self, request: RequestId, at: float) -> Iterator[Entry]:
        yield from self._leave_running(request, at)
        yield from self._preempted.leave(request, at)
        self._prompts.pop(request, None)
        self._searches.pop(request, None)


def _slice(process: int, track: int, name: str, start: float, end: float, **args: Any) -> Entry:
    return {
        "ph": "X", "pid": process, "tid": track, "name": name, "ts": _micros(start),
        "dur": max(0.0, _micros(end) - _micros(start)), "args": args,
    }  # fmt: skip


def _micros(seconds: float) -> float:
    return round(1e6 * seconds, 3)
