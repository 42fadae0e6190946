"""When to plan the next step: as late as the device allows, so that requests which arrive meanwhile are in it.

    device  | step n                                     | step n+1
    host              wait for requests       | plan, submit |
                                              ^ moment = begin of n + forecast - host's own time - margin

The host takes longer for a step with prompts, so its moment is earlier. A prompt that comes between the two is planned
at once: the device may wait for the difference, and the prompt does not wait for a step.

A step that ended before the next was submitted is late: the device waited. The margin, a share of the forecast, grows
with each late step and shrinks with every other, so that about one in a hundred is late; steps with prompts that were
not expected do not count. Without a forecast, and for steps so short that there is little to win, the moment is past.

Knows nothing of clocks or requests; the times that it is told may be of any clock.
"""

from collections import deque
from typing import NamedTuple

from chairlift.core.plan import StepPlan
from chairlift.core.step_forecast import StepForecast, StepSize, size_of

AT_ONCE = float("-inf")
_SHORT_S = 0.003  # a step that takes less is not waited for
_RECENT = 16  # steps whose longest time on the host counts
_GROWTH, _SHRINKAGE = 1.2, 0.998  # 1.2 x 0.998^91 = 1: one late step in 92
_LEAST, _MOST = 0.01, 1.0  # margin


class _Submitted(NamedTuple):
    size: StepSize
    at: float
    is_judged: bool  # it was planned at the moment: whether it is late depends on the margin


class LatePlanning:
    def __init__(self) -> None:
        self._forecast = StepForecast()
        self._in_flight: deque[_Submitted] = deque()
        self._began = 0.0  # the oldest in flight, on the device
        self._forecast_s = 0.0  # the same; 0 if it is not to be waited for
        self._expected: bool | None = None  # prompts in the next, by what was known when it began; None: not told
        # From planning to submitted, of decodes alone and with prompts.
        self._host_s = deque([0.0], maxlen=_RECENT), deque([0.0], maxlen=_RECENT)
        self._margin = 0.1

    def expect(self, has_prompts: bool) -> None:
        """The oldest in flight has just begun, and this is what is known of the next."""
        self._expected = has_prompts

    def moment(self, has_prompts: bool) -> float:
        """Before it, the next step need not be planned, which is expected to have prompts or not."""
        host_s = max(max(each) for each in self._host_s[: 1 + has_prompts])
        wait_s = self._forecast_s * (1.0 - self._margin) - host_s
        return self._began + wait_s if wait_s > 0.0 else AT_ONCE

    def submitted(self, plan: StepPlan, planned: float, now: float) -> None:
        """`planned`: when its planning began."""
        has_prompts = plan.num_decoding < len(plan.chunks)
        expected = has_prompts if self._expected is None else self._expected
        is_judged = self._forecast_s > 0.0 and expected >= has_prompts and self.moment(expected) <= planned
        self._host_s[has_prompts].append(now - planned)
        self._in_flight.append(_Submitted(size_of(plan), now, is_judged))
        if len(self._in_flight) == 1:
            self._begin(now)

    def ended(self, was_ready: bool, now: float) -> None:
        """The oldest in flight. `was_ready`: it had ended before it was collected."""
        size = self._in_flight.popleft().size
        self._forecast.learn(size, now - self._began, at_most=was_ready)
        if self._in_flight:
            following = self._in_flight[0]
            if following.is_judged:
                self._adapt(is_late=was_ready)
            self._begin(following.at if was_ready else now)
        else:
            self._forecast_s = 0.0

    def failed(self, now: float) -> None:
        """The oldest in flight: how long it took means nothing."""
        self._in_flight.popleft()
        self._forecast_s = 0.0
        if self._in_flight:
            self._begin(now)

    def _begin(self, now: float) -> None:
        """The oldest in flight begins on the device."""
        self._began, self._expected = now, None
        forecast_s = self._forecast.seconds(self._in_flight[0].size)
        self._forecast_s = forecast_s if forecast_s > _SHORT_S else 0.0

    def _adapt(self, is_late: bool) -> None:
        self._margin = min(max(self._margin * (_GROWTH if is_late else _SHRINKAGE), _LEAST), _MOST)
