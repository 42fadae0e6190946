"""Runs requests suspected of ending engines one at a time, each until it has made a token; all others wait.

Always: while there are suspects, the engine holds one request at most. The first is a trial of its own, of one token:
an engine that dies of that is itself the cause. A cleared request waits with its tokens until the last suspect is
cleared; then all go on. Aborts and front ends that leave are handled meanwhile. Stands before the switchboard with the
same methods. Every request is noted before it is added.
"""

from collections.abc import Mapping

from chairlift.core.engine import Engine
from chairlift.core.events import Exported
from chairlift.core.params import SamplingParams
from chairlift.live.adapters.reading import AdapterReading
from chairlift.live.moving.moves import Moves
from chairlift.live.recovery.step_note import StepNote
from chairlift.live.wire.messages import Abort, Move, Output, Submit
from chairlift.live.wire.recipients import FrontEnd
from chairlift.live.wire.switchboard import Switchboard, log_lost, without

_MAX_TOGETHER = 2
_MAX_CRASHES = 2
_MAX_ALONE = 5  # killed or crashed


class Suspicion:
    """Whether a request may end engines: how many died while busy with it, without a token of it since.

    One such death says little: every request of the step is a suspect. After two, or one crash of an engine that
    was busy with nothing else, a request runs by itself until it has made a token (`quarantine.py`). A request that
    crashed the engine twice by itself is not tried again. A kill says less than a crash: an operator may have sent
    it, or the kernel for want of memory that the request took. So it takes more kills.
    """

    def __init__(self) -> None:
        self.num_alone = 0  # deaths of engines that were busy with nothing else
        self._num_crashes = 0  # those of them without a kill from outside
        self._num_deaths = 0
        self._made: Mapping[int, int] = {}  # tokens of its open samples at the last death

    def look(self, made: Mapping[int, int]) -> None:
        """An engine died; the request has `made` tokens by open sample. A change since the death before clears it."""
        if made != self._made:
            self.num_alone = self._num_crashes = self._num_deaths = 0
        self._made = made

    def add(self, is_alone: bool, was_killed: bool) -> None:
        """The engine that died was busy with the request."""
        self._num_deaths += 1
        self.num_alone += is_alone
        self._num_crashes += is_alone and not was_killed

    @property
    def is_strong(self) -> bool:
        return self._num_deaths >= _MAX_TOGETHER or self._num_crashes > 0

    @property
    def is_proven(self) -> bool:
        return self._num_crashes >= _MAX_CRASHES or self.num_alone >= _MAX_ALONE


HeldRequest = tuple[FrontEnd, Submit]
_NO_FRONT_END = b""  # no front end has this name
_TRIAL = Submit(0, [0], SamplingParams(max_tokens=1, temperature=0.0), 1)


class Quarantine:
    def __init__(self, switchboard: Switchboard, note: StepNote | None = None) -> None:
        self._switchboard = switchboard
        self._note = note
        self._suspects: list[HeldRequest] = []
        self._has_tried = False  # the trial
        self._alone: tuple[FrontEnd, int] | None = None  # the suspect that runs
        self._cleared: list[HeldRequest] = []
        self._others: list[HeldRequest] = []

    @property
    def engine(self) -> Engine:
        return self._switchboard.engine

    @property
    def is_on(self) -> bool:
        return self._alone is not None or self.num_held > 0

    @property
    def num_held(self) -> int:
        return len(self._suspects) + len(self._cleared) + len(self._others)

    @property
    def has_work(self) -> bool:
        return self.is_on or self._switchboard.has_work

    def submit(self, front_end: FrontEnd, message: Submit) -> None:
        if message.num_alone is not None:
            if not self.is_on:
                self._others += [(to, self._switchboard.withdraw(to, key)) for to, key in self._switchboard.open_keys()]
            self._suspects.append((front_end, message))
        elif self.is_on:
            self._others.append((front_end, message))
        else:
            self._take_in(front_end, message)

    def move(self, front_end: FrontEnd, message: Move) -> bool:
        return self._switchboard.move(front_end, message)

    def is_new(self, front_end: FrontEnd, key: int) -> bool:
        return self._switchboard.is_new(front_end, key)

    @property
    def reading(self) -> AdapterReading | None:
        return self._switchboard.reading

    def forget_adapter(self, adapter: int) -> bool:
        """From memory; False while a request has it, here or in the engine."""
        held = (*self._suspects, *self._cleared, *self._others)
        if any(message.attributes.adapter == adapter for _, message in held):
            return False
        return self.reading is None or self.reading.drop(adapter)

    @property
    def moves(self) -> Moves | None:
        return self._switchboard.moves

    def take_exported(self) -> list[Exported]:
        return self._switchboard.take_exported()

    def abort(self, front_end: FrontEnd, message: Abort) -> None:
        self._switchboard.abort(front_end, message)
        for held in (self._suspects, self._cleared, self._others):
            for i, (to, waiting) in enumerate(held):
                if (to, waiting.key) == (front_end, message.key):
                    left = without(waiting, message.sample)
                    held[i : i + 1] = [] if left is None else [(to, left)]
                    return

    def drop(self, front_end: FrontEnd) -> None:
        self._switchboard.drop(front_end)
        num_held = self.num_held
        for held in (self._suspects, self._cleared, self._others):
            held[:] = [each for each in held if each[0] != front_end]
        log_lost(front_end, num_held - self.num_held)

    def begin(self) -> None:
        """Submits a step if none is in flight: requests that arrive while it runs can be in the next."""
        if self.engine.can_begin:
            if self._note is not None:
                self._note.plan(self._switchboard.waiting)
            self.engine.begin()

    def step(self) -> dict[FrontEnd, list[Output]]:
        if self._note is not None:
            self._note.plan(self._switchboard.waiting)
        news = self._switchboard.step()
        if not self.is_on:
            return news
        if self._alone is not None:
            self._check_suspect(*self._alone, news)
        news.pop(_NO_FRONT_END, None)
        if self._alone is None and not self.engine.has_work:  # nor is any step in flight
            self._next()
        return news

    def _check_suspect(self, front_end: FrontEnd, key: int, news: dict[FrontEnd, list[Output]]) -> None:
        """Clears the suspect if it has made a token, or is gone."""
        if (front_end, key) not in self._switchboard.open_keys():
            self._alone = None
        elif any(output.key == key and output.token is not None for output in news.get(front_end, ())):
            self._alone = None
            self._cleared.append((front_end, self._switchboard.withdraw(front_end, key)))

    def _next(self) -> None:
        """Starts the suspect that ended the fewest engines by itself: most are innocent, and their tokens progress."""
        if self._suspects:
            suspect = min(self._suspects, key=lambda held: held[1].num_alone or 0)
            if self._has_tried:
                self._suspects.remove(suspect)
            else:
                self._has_tried, suspect = True, (_NO_FRONT_END, _TRIAL)
            self._alone = suspect[0], suspect[1].key
            self._take_in(*suspect)
            return
        for held in (*self._cleared, *self._others):
            self._take_in(*held)
        self._cleared.clear()
        self._others.clear()

    def _take_in(self, front_end: FrontEnd, message: Submit) -> None:
        if self._note is not None:
            self._note.take_in(front_end, message.key)
        self._switchboard.submit(front_end, message)
