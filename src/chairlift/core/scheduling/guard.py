"""The guard between the scheduler and its rules, which users may write: no mistake in a rule loses a request.

Always: a request that waits in the policy waits here too. A rule that raises or returns nonsense is replaced for good
by the plain one (first come first served, mixed, prompt fits) and noted in `failures`.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

from chairlift.core.admission import PromptFits
from chairlift.core.ids import RequestId
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Admission, Allowance, MemoryView, Policy, Prefill, Service, StepView
from chairlift.core.prefill import Mixed
from chairlift.core.request import Progress

T = TypeVar("T")


class Guard:
    def __init__(self, policy: Policy, prefill: Prefill, admission: Admission) -> None:
        self._prefill = prefill
        self._admission = admission
        self.waiting: OrderedDict[RequestId, Progress] = OrderedDict()  # in the order in which they began to wait
        self.parked: dict[RequestId, Progress] = {}  # of these: not in the policy's order, as they wait for a slot
        self.failures: list[str] = []
        self._is_stale = True  # the admission rule has to look at the running set
        self._set_policy(policy)

    def _set_policy(self, policy: Policy) -> None:
        self._policy, kind = policy, type(policy)
        # Looked up once: steps do not pay for hooks that do nothing.
        self.is_serving = kind.served is not Policy.served or kind.decoded is not Policy.decoded
        self.counts_users = kind.served_elsewhere is not Policy.served_elsewhere
        self._has_left = kind.left is not Policy.left
        self._has_yielding = kind.yielding is not Policy.yielding
        self._skips_steady = _skips_steady(policy) or not self.is_serving

    @property
    def skips_steady(self) -> bool:
        """Whether no rule has to be asked while all requests decode and none waits."""
        return self._skips_steady and _skips_steady(self._prefill)

    @property
    def has_ranked(self) -> bool:
        """Whether requests wait in the policy's order."""
        return len(self.waiting) > len(self.parked)

    def push(self, progress: Progress, now: float) -> None:
        self.waiting[progress.id] = progress
        self._ask(lambda: self._policy.push(progress, now), None, now)

    def first(self, now: float) -> Progress | None:
        if not self.has_ranked:
            return None
        chosen = self._ask(lambda: self._waiting(self._policy.first(now)), None, now)
        return chosen or self._waiting(self._policy.first(now))  # by now of Fcfs

    def _waiting(self, request: RequestId | None) -> Progress:
        if request is None or request not in self.waiting or request in self.parked:
            raise ValueError(f"first() named {request!r}, which does not wait")
        return self.waiting[request]

    def remove(self, progress: Progress, now: float) -> None:
        del self.waiting[progress.id]
        if self.parked.pop(progress.id, None) is None:
            self._ask(lambda: self._policy.remove(progress), None, now)

    def park(self, progress: Progress, now: float) -> None:
        """Take a waiting request out of the policy's order."""
        self.parked[progress.id] = progress
        self._ask(lambda: self._policy.remove(progress), None, now)

    def unpark(self, progress: Progress, now: float) -> None:
        """Have it wait in the policy's order again."""
        del self.parked[progress.id]
        self._ask(lambda: self._policy.push(progress, now), None, now)

    def served(self, progress: Progress, num_prompt: int, num_output: int, now: float) -> None:
        self._ask(lambda: self._policy.served(progress, num_prompt, num_output), None, now)

    def decoded(self, decodes: list[Progress], now: float) -> None:
        self._ask(lambda: self._policy.decoded(decodes), None, now)

    def served_elsewhere(self, services: Sequence[Service], now: float) -> None:
        self._ask(lambda: self._policy.served_elsewhere(services), None, now)

    def left(self, progress: Progress, now: float) -> None:
        if self._has_left:
            self._ask(lambda: self._policy.left(progress), None, now)

    def victim(self, running: dict[RequestId, Progress], now: float) -> Progress:
        def choose() -> Progress:
            request = self._policy.victim(running.values(), now)
            if request not in running:
                raise ValueError(f"victim() named {request!r}, which does not run")
            return running[request]

        return self._ask(choose, None, now) or choose()

    def yielding(self, running: dict[RequestId, Progress], now: float) -> Sequence[Progress]:
        if not self._has_yielding:
            return ()

        def choose() -> list[Progress]:
            named = self._policy.yielding(list(running.values()), now)
            return [running[request] for request in dict.fromkeys(named)]

        return self._ask(choose, [], now)

    def allow(self, step: StepView) -> Allowance:
        try:
            allowance = self._prefill.allow(step)
            if not (isinstance(allowance, Allowance) and all(isinstance(count, int) for count in allowance)):
                raise TypeError(f"allow() answered {allowance!r}, which is no Allowance")
            return allowance
        except Exception as error:
            self._note("the prefill rule", error)
            self._prefill = Mixed()
            return self._prefill.allow(step)

    def look_again(self) -> None:
        """The running set may have changed other than by requests that fit."""
        self._is_stale = True

    def fits(self, candidate: Progress, num_new: int, memory: MemoryView) -> bool:
        try:
            if self._is_stale:
                self._is_stale = False
                self._admission.look(memory)
            is_fitting = self._admission.fits(candidate, num_new, memory)
            if not isinstance(is_fitting, bool):
                raise TypeError(f"fits() answered {is_fitting!r}, which is neither True nor False")
            return is_fitting
        except Exception as error:
            self._note("the admission rule", error)
            self._admission = PromptFits()
            return self._admission.fits(candidate, num_new, memory)

    def _ask(self, question: Callable[[], T], otherwise: T, now: float) -> T:
        try:
            return question()
        except Exception as error:
            self._note("the policy", error)
            self._set_policy(Fcfs())
            for progress in self.waiting.values():
                if progress.id not in self.parked:
                    self._policy.push(progress, now)
            return otherwise

    def _note(self, what: str, error: Exception) -> None:
        self.failures.append(f"{what} failed ({type(error).__name__}: {' '.join(str(error).split())})")


def _skips_steady(rule: Policy | Prefill) -> bool:
    """What the class itself says: a user's subclass may do otherwise."""
    return vars(type(rule)).get("skips_steady") is True
