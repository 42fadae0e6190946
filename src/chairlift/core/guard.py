"""Stands between the scheduler and choices that anybody may have written: a mistake there loses no request.

Always: a request that waits in the policy waits here too. A rule that raises, or names a request that it must not name,
is replaced for good by the plain one (first come first served, mixed, prompt fits): see `failures`.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

from chairlift.core.admission.prompt import PromptFits
from chairlift.core.ids import RequestId
from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.policy import (
    Admission,
    Allowance,
    Leaving,
    Looking,
    MemoryView,
    Policy,
    Prefill,
    Served,
    StepView,
    Yielding,
)
from chairlift.core.prefill.mixed import Mixed
from chairlift.core.request import Progress

T = TypeVar("T")


class Guard:
    def __init__(self, policy: Policy, prefill: Prefill, admission: Admission) -> None:
        self._policy = policy
        self._prefill = prefill
        self._admission = admission
        self.waiting: OrderedDict[RequestId, Progress] = OrderedDict()  # who has waited longest first
        self.failures: list[str] = []
        self._is_to_look = True
        self._listen()

    def _listen(self) -> None:
        policy = self._policy
        self._served = policy if isinstance(policy, Served) else None
        self._left = policy.left if isinstance(policy, Leaving) else None
        self._yielding = policy.yielding if isinstance(policy, Yielding) else None
        self.is_serving = self._served is not None

    def push(self, progress: Progress, now: float) -> None:
        self.waiting[progress.id] = progress
        self._ask(lambda: self._policy.push(progress, now), None, now)

    def first(self, now: float) -> Progress | None:
        if not self.waiting:
            return None
        chosen = self._ask(lambda: self._waiting(self._policy.first(now)), None, now)
        return chosen or self._waiting(self._policy.first(now))  # the second time it is first come, first served

    def _waiting(self, request: RequestId | None) -> Progress:
        if request is None or request not in self.waiting:
            raise ValueError(f"first() named {request!r}, which does not wait")
        return self.waiting[request]

    def remove(self, progress: Progress, now: float) -> None:
        del self.waiting[progress.id]
        self._ask(lambda: self._policy.remove(progress), None, now)

    def served(self, progress: Progress, num_prompt: int, num_output: int, now: float) -> None:
        if self._served is not None:
            served = self._served
            self._ask(lambda: served.served(progress, num_prompt, num_output), None, now)

    def decoded(self, decodes: list[Progress], now: float) -> None:
        if self._served is not None:
            served = self._served
            self._ask(lambda: served.decoded(decodes), None, now)

    def left(self, progress: Progress, now: float) -> None:
        if self._left is not None:
            left = self._left
            self._ask(lambda: left(progress), None, now)

    def victim(self, running: dict[RequestId, Progress], now: float) -> Progress:
        def choose() -> Progress:
            request = self._policy.victim(running.values(), now)
            if request not in running:
                raise ValueError(f"victim() named {request!r}, which does not run")
            return running[request]

        return self._ask(choose, None, now) or choose()

    def yielding(self, running: dict[RequestId, Progress], now: float) -> Sequence[Progress]:
        if self._yielding is None:
            return ()
        ask = self._yielding

        def choose() -> list[Progress]:
            return [running[request] for request in dict.fromkeys(ask(list(running.values()), now))]

        return self._ask(choose, [], now)

    def allow(self, view: StepView) -> Allowance:
        try:
            allowance = self._prefill.allow(view)
            if not (isinstance(allowance, Allowance) and isinstance(allowance.num_new, int)):
                raise TypeError(f"allow() answered {allowance!r}, which is no Allowance")
            return allowance
        except Exception as error:
            self._tell("the prefill rule", error)
            self._prefill = Mixed()
            return self._prefill.allow(view)

    def look_again(self) -> None:
        """Who runs has changed, or may have, without a word of the admission rule's."""
        self._is_to_look = True

    def fits(self, candidate: Progress, num_new: int, memory: MemoryView) -> bool:
        try:
            if self._is_to_look:
                self._is_to_look = False
                if isinstance(self._admission, Looking):
                    self._admission.look(memory)
            is_fitting = self._admission.fits(candidate, num_new, memory)
            if not isinstance(is_fitting, bool):
                raise TypeError(f"fits() answered {is_fitting!r}, which is neither True nor False")
            return is_fitting
        except Exception as error:
            self._tell("the admission rule", error)
            self._admission = PromptFits()
            return self._admission.fits(candidate, num_new, memory)

    def _ask(self, question: Callable[[], T], otherwise: T, now: float) -> T:
        try:
            return question()
        except Exception as error:
            self._fall_back(error, now)
            return otherwise

    def _fall_back(self, error: Exception, now: float) -> None:
        self._tell("the policy", error)
        self._policy = Fcfs()
        self._listen()
        for progress in self.waiting.values():
            self._policy.push(progress, now)

    def _tell(self, what: str, error: Exception) -> None:
        self.failures.append(f"{what} failed ({type(error).__name__}: {' '.join(str(error).split())})")
