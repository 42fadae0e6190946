"""Which requests the engine is busy with, noted in a mapped file that outlives the engine.

Always: the requests of a step are noted before it begins. They stay noted after its result came, until the engine turns
to something else: the result is still to be sent, and the next step to be planned. Outside steps the note names the
request being added, and while a step is planned those that wait for their first. The engine writes, the next engine
and, where there are replicas, front ends read; the parent makes the file, says how the engine ended, and looks for
progress.

    | progress of all engines: u64 | end: u64 | beat: u64 | slot | slot | ... | turn |    a slot for each step in flight
    end: 0 not told, 1 the engine ended by itself, 2 it was killed
    beat: when the engine last did something, by the machine's monotonic clock, ns
    slot, turn: | length: u64 | MessagePack {front end: [keys]} |                          length 0: no requests
"""

import mmap
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Runner, RunnerFailed
from chairlift.telemetry.mapped import make_mapped

_WIDTH = 8  # bytes of a number, which is read and written whole
_PROGRESS, _END, _BEAT = range(3)
_SLOT_BYTES = 1 << 18  # some fifty thousand requests
_NUM_SLOTS = 8
_TURN = _NUM_SLOTS
_SLOTS = 3 * _WIDTH
_SIZE = _SLOTS + (_NUM_SLOTS + 1) * _SLOT_BYTES
_CRASHED, _KILLED = 1, 2

RequestKeys = dict[bytes, list[int]]  # of requests, by front end


@dataclass(frozen=True, slots=True)
class InterruptedWork:
    """What a dead engine was busy with."""

    keys: RequestKeys
    was_killed: bool  # a guess: it did not end by itself

    @property
    def is_alone(self) -> bool:
        """Whether it was busy with one request of all front ends."""
        return sum(map(len, self.keys.values())) == 1


class StepNote:
    def __init__(self, path: Path) -> None:
        """Makes the file if there is none."""
        self.path = path
        make_mapped(path, _SIZE)
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self._numbers = memoryview(self._memory).cast("Q")
        self._num_begun = self._num_ended = self._num_forgotten = 0
        self._num_made = 0  # ended steps with a token that was not sent yet
        self._waiting = b""  # requests named while steps are planned

    @property
    def progress(self) -> int:
        """Steps whose tokens were sent and requests found to end engines, of all engines so far."""
        return self._numbers[_PROGRESS]

    def beat(self) -> None:
        """The engine is alive: called often, also while it is idle."""
        self._numbers[_BEAT] = time.monotonic_ns()

    @property
    def last_beat(self) -> int:
        return self._numbers[_BEAT]

    @property
    def silent_s(self) -> float:
        """Since the last beat."""
        return (time.monotonic_ns() - self.last_beat) / 1e9

    def tell_end(self, was_killed: bool) -> None:
        """An engine has ended. The first such word stays until the noted steps are taken: an engine that dies while it
        starts has none."""
        if not self._numbers[_END]:
            self._numbers[_END] = _KILLED if was_killed else _CRASHED

    def take(self) -> InterruptedWork:
        """What the engine before this one left; once."""
        left = self._read()
        for slot in range(_NUM_SLOTS + 1):
            self._set_length(slot, 0)
        self._numbers[_END] = 0
        return left

    def look(self) -> InterruptedWork | None:
        """What a dead engine has left, as long as no other has taken it; None before the word how it ended."""
        return self._read() if self._numbers[_END] else None

    def _read(self) -> InterruptedWork:
        found: dict[bytes, set[int]] = {}
        for slot in range(_NUM_SLOTS + 1):
            start, length = _offset(slot) + _WIDTH, self._numbers[_offset(slot) // _WIDTH]
            noted = msgspec.msgpack.decode(self._memory[start : start + length], type=RequestKeys) if length else {}
            for front_end, keys in noted.items():
                found.setdefault(front_end, set()).update(keys)
        was_killed = self._numbers[_END] == _KILLED
        return InterruptedWork({front_end: sorted(keys) for front_end, keys in found.items()}, was_killed)

    def take_in(self, front_end: bytes, key: int) -> None:
        """The engine adds a request."""
        self._write(_TURN, msgspec.msgpack.encode({front_end: [key]}))
        self._forget_ended()
        self._count_told()

    def plan(self, waiting: Mapping[bytes, Collection[int]]) -> None:
        """A step is planned, and perhaps more after it, in which these may be for the first time."""
        self._waiting = msgspec.msgpack.encode(waiting) if waiting else b""
        self._write(_TURN, self._waiting)
        self._count_told()

    def rest(self) -> None:
        """The engine is idle, or waits for requests while a step runs."""
        self._write(_TURN, b"")
        self._forget_ended()
        self._count_told()

    def begin(self, keys: bytes) -> None:
        """A step begins."""
        self._write(self._num_begun % _NUM_SLOTS, keys)
        self._num_begun += 1
        self._write(_TURN, b"")
        self._forget_ended()

    def plan_on(self) -> None:
        """The step has begun, or failed to; another may be planned."""
        self._write(_TURN, self._waiting)

    def await_end(self) -> None:
        """Nothing more is planned until a step has ended."""
        self._write(_TURN, b"")

    def roll_back(self) -> None:
        """The last step did not begin after all."""
        self._num_begun -= 1
        self._set_length(self._num_begun % _NUM_SLOTS, 0)

    def end(self, has_token: bool) -> None:
        """The oldest step in flight has ended."""
        self._num_ended += 1
        self._num_made += has_token

    def count(self, number: int = 1) -> None:
        """There is progress."""
        self._numbers[_PROGRESS] += number

    def _count_told(self) -> None:
        """The results of ended steps were sent."""
        if self._num_made:
            self.count(self._num_made)
            self._num_made = 0

    def _forget_ended(self) -> None:
        while self._num_forgotten < self._num_ended:
            self._set_length(self._num_forgotten % _NUM_SLOTS, 0)
            self._num_forgotten += 1

    def _write(self, slot: int, keys: bytes) -> None:
        """Nothing, if the keys are too many. The note is readable whenever the engine is killed."""
        self._set_length(slot, 0)
        if len(keys) <= _SLOT_BYTES - _WIDTH:
            start = _offset(slot) + _WIDTH
            self._memory[start : start + len(keys)] = keys
            self._set_length(slot, len(keys))

    def _set_length(self, slot: int, length: int) -> None:
        self._numbers[_offset(slot) // _WIDTH] = length


class NotedRunner:
    """A runner that notes its steps."""

    def __init__(
        self, runner: Runner, note: StepNote, keys_of: Callable[[Iterable[RequestId]], dict[bytes, set[int]]]
    ) -> None:
        assert runner.depth < _NUM_SLOTS
        self._runner = runner
        self._note = note
        self._keys_of = keys_of
        self._encode = msgspec.msgpack.Encoder().encode
        self._requests: list[RequestId] = []  # of the last step
        self._keys = b""  # of these requests

    @property
    def depth(self) -> int:
        return self._runner.depth

    def submit(self, plan: StepPlan) -> None:
        requests = [chunk.request.id for chunk in plan.chunks]
        if requests != self._requests:
            self._requests, self._keys = requests, self._encode(self._keys_of(requests))
        self._note.begin(self._keys)
        try:
            self._runner.submit(plan)
        except RunnerFailed:
            self._note.roll_back()
            self._note.plan_on()
            raise
        if self.depth > 1:
            self._note.plan_on()

    def collect(self) -> StepResult:
        self._note.await_end()
        try:
            result = self._runner.collect()
        except RunnerFailed:
            self._note.end(has_token=False)
            raise
        self._note.end(has_token=bool(result.tokens))
        return result


def _offset(slot: int) -> int:
    return _SLOTS + slot * _SLOT_BYTES
