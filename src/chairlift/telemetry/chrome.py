"""A trace as Chrome and Perfetto show it: a track per slot of the running set, and counters.

    steps      every step, with what it computed
    running set  a track per slot: the request in it; inside, its prompt chunks and its runs of decode steps
    preempted  requests that wait to come back, on as many tracks as were ever needed at once
    counters   waiting, running, blocks in use

Open the file at https://ui.perfetto.dev or chrome://tracing. Knows only what the trace says. A request's phase gives it
its track; the slices inside are its share of steps, named by the tokens they computed rather than by phases.
"""

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from chairlift.core.events import Event, Token
from chairlift.core.ids import RequestId
from chairlift.telemetry.lines import AbortLine, Add, AnyLine, Arrive, Commit, Elsewhere, Fail, Leave, Plan, RollBack
from chairlift.telemetry.phases import OVER, PREEMPTED, QUEUED, SWAPPED, after
from chairlift.telemetry.trace import Trace

_STEPS, _RUNNING, _PREEMPTED, _COUNTERS = range(1, 5)
_PROCESSES = {QUEUED: None, PREEMPTED: _PREEMPTED, SWAPPED: _PREEMPTED, OVER: None}  # others: the running set
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


class _Stay(NamedTuple):
    """A request on a track."""

    process: int
    track: int
    since: float


class _Run(NamedTuple):
    """Decode steps of one request that follow each other."""

    first: float
    last: float
    last_step: int
    num_tokens: int


class _Converter:
    def __init__(self) -> None:
        self._now = 0.0
        self._stays: dict[RequestId, _Stay] = {}
        self._free: dict[int, list[int]] = {_RUNNING: [], _PREEMPTED: []}  # tracks
        self._new = {_RUNNING: itertools.count(1), _PREEMPTED: itertools.count(1)}
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
            case Leave() | Arrive() | Elsewhere():
                pass
            case _:
                yield from self._event(line)

    def end(self) -> Iterator[Entry]:
        """Shows open requests up to the last line."""
        for request in sorted(self._stays, key=lambda request: self._stays[request].process):
            yield from self._move(request, None, self._now)

    def _event(self, line: Event | AbortLine) -> Iterator[Entry]:
        phase = after("", line)
        members = self._searches.get(line.request) if isinstance(line, Token) else None
        for request in members or [line.request] if phase else ():
            yield from self._move(request, _PROCESSES.get(phase, _RUNNING), line.at)
            if phase == OVER:
                self._prompts.pop(request, None)
                self._searches.pop(request, None)

    def _move(self, request: RequestId, process: int | None, at: float) -> Iterator[Entry]:
        """Leaves its track for the lowest free one of a process, if any."""
        stay = self._stays.get(request)
        if stay is not None and stay.process != process:
            yield from self._end_run(request)
            del self._stays[request]
            heapq.heappush(self._free[stay.process], stay.track)
            yield _slice(stay.process, stay.track, f"request {request}", stay.since, at)
        if process is not None and request not in self._stays:
            free = self._free[process]
            self._stays[request] = _Stay(process, heapq.heappop(free) if free else next(self._new[process]), at)

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
            stay = self._stays.get(request)
            if stay is None or stay.process != _RUNNING:  # aborted meanwhile
                continue
            end = first + count - len(plan.drafts.get(request, ()))
            is_prompt = end <= self._prompts[request]
            if index < plan.num_decoding and not is_prompt:
                yield from self._decode(request, step, start, at, 1 + len(more.get(request, ())))
            else:
                what = "prompt" if is_prompt else "again"
                yield _slice(_RUNNING, stay.track, f"{what} {first}-{end}", start, at)

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
            yield _slice(_RUNNING, self._stays[request].track, f"decode {run.num_tokens}", run.first, run.last)


def _slice(process: int, track: int, name: str, start: float, end: float, **args: Any) -> Entry:
    return {
        "ph": "X", "pid": process, "tid": track, "name": name, "ts": _micros(start),
        "dur": max(0.0, _micros(end) - _micros(start)), "args": args,
    }  # fmt: skip


def _micros(seconds: float) -> float:
    return round(1e6 * seconds, 3)
