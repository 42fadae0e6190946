"""A rule that raises or answers nonsense is replaced, and no request is lost."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

import pytest

from chairlift.core import policy as policy_module
from chairlift.core.events import RuleFailed
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Admission, Allowance, Prefill, RequestView
from fakes.requests import make_request, make_samples
from fakes.worlds.world import World

LIMITS = Limits(vocab_size=50, max_model_len=24, block_size=2, num_blocks=12, max_running=3, max_step_tokens=12)


def run(**rules: Any) -> list[str]:
    """A crowded world, in which every request must get its tokens; what failed."""
    arrivals: dict[int, list[Any]] = {0: [make_samples(20, range(5), 2, 6)]}
    for i in range(1, 8):
        arrivals.setdefault(i // 2, []).append((make_request(i, range(i, i + 4), 8),))
    world = World(LIMITS, arrivals=arrivals, aborts={3: [RequestId(6)]}, may_fail=True, **rules).run()
    return [event.message for event in world.events if isinstance(event, RuleFailed)]


class Breaking(Fcfs):
    """First come, first served, until one of its methods is called too often."""

    def __init__(self, method: str, num_good: int, answer: Callable[[], Any]) -> None:
        super().__init__()
        self._method, self._num_good, self._answer = method, num_good, answer

    def _now(self, method: str, plain: Callable[[], Any]) -> Any:
        if method != self._method:
            return plain()
        self._num_good -= 1
        return plain() if self._num_good >= 0 else self._answer()

    def push(self, view: RequestView, now: float) -> None:
        self._now("push", lambda: super(Breaking, self).push(view, now))

    def first(self, now: float) -> RequestId | None:
        return self._now("first", lambda: super(Breaking, self).first(now))  # type: ignore[no-any-return]

    def remove(self, view: RequestView) -> None:
        self._now("remove", lambda: super(Breaking, self).remove(view))

    def victim(self, running: Iterable[RequestView], now: float) -> RequestId:
        return self._now("victim", lambda: super(Breaking, self).victim(running, now))  # type: ignore[no-any-return]

    def served(self, view: RequestView, num_prompt: int, num_output: int) -> None:
        self._now("served", lambda: None)

    def decoded(self, views: Sequence[RequestView]) -> None:
        self._now("decoded", lambda: None)

    def left(self, view: RequestView) -> None:
        self._now("left", lambda: None)

    def yielding(self, running: Sequence[RequestView], now: float) -> Sequence[RequestId]:
        return self._now("yielding", lambda: ())  # type: ignore[no-any-return]


def raising() -> None:
    raise RuntimeError("out of\npatience")


METHODS = ("push", "first", "remove", "victim", "served", "decoded", "left", "yielding")


@pytest.mark.parametrize("num_good", [0, 2])
@pytest.mark.parametrize("method", METHODS)
def test_a_policy_that_raises_is_replaced_and_no_request_is_lost(method: str, num_good: int) -> None:
    (message,) = run(policy=Breaking(method, num_good, raising))
    assert message.startswith("the policy failed (RuntimeError: out of patience)")


@pytest.mark.parametrize("nonsense", [None, 99, "1", [], 1.5])
@pytest.mark.parametrize("method", ["first", "victim"])
def test_a_policy_that_names_an_unknown_request_is_replaced(method: str, nonsense: object) -> None:
    (message,) = run(policy=Breaking(method, 1, lambda: nonsense))
    assert message.startswith("the policy failed (")


@pytest.mark.parametrize("nonsense", [[99], None, 3, [[]]])
def test_a_policy_that_yields_unknown_requests_is_replaced(nonsense: object) -> None:
    (message,) = run(policy=Breaking("yielding", 1, lambda: nonsense))
    assert message.startswith("the policy failed (")


def test_a_policy_that_works_is_left_alone() -> None:
    assert run(policy=Breaking("none", 0, raising)) == []


class Counting(Fcfs):
    """Overrides one hook of several."""

    def __init__(self) -> None:
        super().__init__()
        self.num_tokens: Counter[RequestId] = Counter()

    def served(self, view: RequestView, num_prompt: int, num_output: int) -> None:
        self.num_tokens[view.id] += num_output


def test_a_policy_that_overrides_only_served_hears_of_decodes_too() -> None:
    policy = Counting()
    assert run(policy=policy) == []
    assert {id: policy.num_tokens[RequestId(id)] for id in (1, 2, 3, 4, 5, 7)} == dict.fromkeys((1, 2, 3, 4, 5, 7), 8)


def test_hooks_that_do_nothing_cost_no_call() -> None:
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == policy_module.__file__:
            called.add(frame.f_code.co_name)

    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        run(policy=Fcfs())
    finally:
        sys.setprofile(previous)
    assert called == {"watch", "look"}  # once for all, and once a step


class Answers(Prefill, Admission):
    """As prefill and as admission rule: says the same every time."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    def allow(self, step: object) -> Any:
        return self._answer()

    def fits(self, candidate: object, num_new: int, memory: object) -> Any:
        return self._answer()


@pytest.mark.parametrize(
    "answer", [raising, lambda: None, lambda: 3, lambda: (True, True, 5), lambda: Allowance(num_new="all")]  # type: ignore[arg-type]
)  # fmt: skip
def test_a_prefill_rule_that_fails_is_replaced(answer: Callable[[], Any]) -> None:
    (message,) = run(prefill=Answers(answer))
    assert message.startswith("the prefill rule failed (")


class BadLook(Answers):
    def look(self, memory: object) -> None:
        raise RuntimeError("nothing to see")


def test_an_admission_rule_that_fails_to_look_is_replaced() -> None:
    (message,) = run(admission=BadLook(lambda: True))
    assert message.startswith("the admission rule failed (RuntimeError: nothing to see)")


@pytest.mark.parametrize("answer", [raising, lambda: None, lambda: "yes", lambda: 1])
def test_an_admission_rule_that_fails_is_replaced(answer: Callable[[], Any]) -> None:
    (message,) = run(admission=Answers(answer))
    assert message.startswith("the admission rule failed (")


def test_rules_that_refuse_everything_do_not_stop_the_work() -> None:
    nothing = Allowance(decodes=False, prompts=False, num_new=0)
    assert run(prefill=Answers(lambda: nothing), admission=Answers(lambda: False)) == []


def test_each_of_three_rules_may_fail() -> None:
    failures = run(policy=Breaking("first", 1, raising), prefill=Answers(raising), admission=Answers(raising))
    assert sorted(message.partition(" failed")[0] for message in failures) == [
        "the admission rule",
        "the policy",
        "the prefill rule",
    ]
