"""Which requests the engine is busy with, noted where it outlives the engine: in a file that is mapped to memory.

Always: what is in a step was noted before the step began. With its result there it stays noted until the engine turns
to something else: the result is still to be told, and the next step to be planned. Outside steps the note names the
request that is taken in, and while a step is planned those that wait for their first. The engine writes, and the next
one reads what it left; the parent made the file, says how the engine ended, and looks whether there is progress.

    | progress of all engines: u64 | end: u64 | beat: u64 | slot | slot | ... | turn | a slot for each step under way
    end: 0 not told, 1 the engine ended by itself, 2 it was killed
    beat: when the engine last did something, by the machine's monotonic clock, ns
    slot, turn: | length: u64 | MessagePack {front end: [keys]} |          length 0: nobody
"""

import mmap
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

import msgspec

from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Runner, RunnerFailed
from chairlift.telemetry.mapped import make_mapped

_NUMBER = Struct("=Q")
_SLOT_BYTES = 1 << 18  # some fifty thousand requests
_NUM_SLOTS = 8
_TURN = _NUM_SLOTS
_END = _NUMBER.size
_BEAT = 2  # of the numbers, which is read and written whole
_SLOTS = 3 * _NUMBER.size
_SIZE = _SLOTS + (_NUM_SLOTS + 1) * _SLOT_BYTES
_CRASHED, _KILLED = 1, 2

RequestKeys = dict[bytes, list[int]]  # of requests, by front end


@dataclass(frozen=True, slots=True)
class InterruptedWork:
    """What an engine that died left behind."""

    keys: RequestKeys  # of requests that it was busy with
    was_killed: bool  # as far as can be told: it did not end by itself

    @property
    def is_alone(self) -> bool:
        """Whether it was busy with one request, and no other of any front end."""
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
        self._num_made = 0  # ended steps with a token that was not told yet
        self._waiting = b""  # those named while steps are planned

    @property
    def progress(self) -> int:
        """Steps whose tokens were told and requests that were found to end engines, of all engines so far."""
        number: int = _NUMBER.unpack_from(self._memory, 0)[0]
        return number

    def beat(self) -> None:
        """The engine does something: to be called often, also while it has nothing to do."""
        self._numbers[_BEAT] = time.monotonic_ns()

    @property
    def last_beat(self) -> int:
        return self._numbers[_BEAT]

    @property
    def silent_s(self) -> float:
        """How long ago the last one was."""
        return (time.monotonic_ns() - self.last_beat) / 1e9

    def tell_end(self, was_killed: bool) -> None:
        """An engine has ended. The word about the one whose steps are noted stays until they are taken: those that die
        while they start have none."""
        if not self._end:
            self._end = _KILLED if was_killed else _CRASHED

    def take(self) -> InterruptedWork:
        """Of the engine before this one; once."""
        found: dict[bytes, set[int]] = {}
        for slot in range(_NUM_SLOTS + 1):
            (length,) = _NUMBER.unpack_from(self._memory, _offset(slot))
            start = _offset(slot) + _NUMBER.size
            if length:
                for front_end, keys in msgspec.msgpack.decode(
                    self._memory[start : start + length], type=RequestKeys
                ).items():
                    found.setdefault(front_end, set()).update(keys)
            self._set_length(slot, 0)
        was_killed = self._end == _KILLED
        self._end = 0
        return InterruptedWork({front_end: sorted(keys) for front_end, keys in found.items()}, was_killed)

    def take_in(self, front_end: bytes, key: int) -> None:
        """The engine turns to a request that is new to it."""
        self._write(_TURN, msgspec.msgpack.encode({front_end: [key]}))
        self._forget_ended()
        self._count_told()

    def plan(self, waiting: Mapping[bytes, Collection[int]]) -> None:
        """A step is planned, in which these may be for the first time, and perhaps more after it."""
        self._waiting = msgspec.msgpack.encode(waiting) if waiting else b""
        self._write(_TURN, self._waiting)
        self._count_told()

    def rest(self) -> None:
        """There is nothing to do."""
        self._write(_TURN, b"")
        self._forget_ended()
        self._count_told()

    def begin(self, keys: bytes) -> None:
        """A step."""
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
        """The step begun last did not begin after all."""
        self._num_begun -= 1
        self._set_length(self._num_begun % _NUM_SLOTS, 0)

    def end(self, has_token: bool) -> None:
        """The oldest step under way has ended."""
        self._num_ended += 1
        self._num_made += has_token

    def count(self, number: int = 1) -> None:
        """There is progress."""
        _NUMBER.pack_into(self._memory, 0, self.progress + number)

    def _count_told(self) -> None:
        """What came of the steps that ended was told."""
        if self._num_made:
            self.count(self._num_made)
            self._num_made = 0

    def _forget_ended(self) -> None:
        while self._num_forgotten < self._num_ended:
            self._set_length(self._num_forgotten % _NUM_SLOTS, 0)
            self._num_forgotten += 1

    @property
    def _end(self) -> int:
        number: int = _NUMBER.unpack_from(self._memory, _END)[0]
        return number

    @_end.setter
    def _end(self, number: int) -> None:
        _NUMBER.pack_into(self._memory, _END, number)

    def _write(self, slot: int, keys: bytes) -> None:
        """Nobody, if they are too many. Whenever the engine is killed, what is noted can be read."""
        self._set_length(slot, 0)
        if len(keys) <= _SLOT_BYTES - _NUMBER.size:
            start = _offset(slot) + _NUMBER.size
            self._memory[start : start + len(keys)] = keys
            self._set_length(slot, len(keys))

    def _set_length(self, slot: int, length: int) -> None:
        _NUMBER.pack_into(self._memory, _offset(slot), length)


class NotedRunner:
    """A runner whose steps are noted."""

    def __init__(
        self, runner: Runner, note: StepNote, keys_of: Callable[[Iterable[RequestId]], dict[bytes, set[int]]]
    ) -> None:
        assert runner.depth < _NUM_SLOTS
        self._runner = runner
        self._note = note
        self._keys_of = keys_of
        self._encode = msgspec.msgpack.Encoder().encode
        self._requests: list[RequestId] = []  # of the last step
        self._keys = b""  # theirs

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
