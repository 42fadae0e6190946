"""The prefill rules: which prompts may enter a step. `WaitAfterPreempt` goes around any of them."""

from chairlift.core.policy import Allowance, Prefill, StepView


class Mixed(Prefill):
    """Compute prompts and decodes in the same steps."""

    skips_steady = True

    def allow(self, step: StepView) -> Allowance:
        return Allowance()


_NUM_DELAYED = 2  # for each request that waits: itself, and one that comes meanwhile


class Timed(Prefill):
    """Size steps by how long they take: prompts end one by one while few wait, and fill large steps while many do.

    The fixed time of a step is what it takes without prompts. The first prompt of a step has `share` times as long,
    and at least `least` tokens, so that decodes do not wait much longer than the work is worth. A further prompt
    delays the first by its own time; in a step of its own it would come later by the fixed time, and so would all
    behind it and those that come meanwhile. So further prompts enter, whole, while they take less than twice the
    fixed time for each that waits.
    """

    skips_steady = True

    def __init__(self, share: float = 12.0, least: int = 512) -> None:
        if share < 0:
            raise ValueError("share must not be negative")
        if least < 1:
            raise ValueError("least must be at least 1")
        self._share = share
        self._least = least

    def allow(self, step: StepView) -> Allowance:
        if step.token_s == 0.0:  # nothing is known yet
            return Allowance()
        fixed = step.fixed_s / step.token_s  # prompt tokens that take as long
        num_behind = step.num_waiting + step.num_preempted + max(0, step.num_prompts - 1)
        num_more = int(_NUM_DELAYED * num_behind * fixed)
        if not step.num_decodes:
            return Allowance(num_more=num_more)
        return Allowance(num_tokens=max(self._least, int(self._share * fixed)) + num_more, num_more=num_more)


def exclusive(allowance: Allowance, step: StepView) -> Allowance:
    """Steps of prompts alone: decodes wait while a prompt is computed or may enter."""
    num_entering = min(allowance.num_new, step.num_admissible, step.num_waiting + step.num_preempted)
    return allowance._replace(decodes=not (step.num_prompts or num_entering))


class PrefillFirst(Prefill):
    """Compute prompts before any decode: first tokens come soon, streams stall."""

    skips_steady = True

    def allow(self, step: StepView) -> Allowance:
        return exclusive(Allowance(), step)


class DecodeFirst(Prefill):
    """Admit nothing new while requests decode, until a share `free` of the running set is free: streams flow."""

    skips_steady = True

    def __init__(self, free: float = 0.25) -> None:
        if not 0 <= free <= 1:
            raise ValueError("free must be between 0 and 1")
        self._free = free

    def allow(self, step: StepView) -> Allowance:
        size = step.num_admissible + step.num_decodes + step.num_prompts
        is_open = step.num_decodes == 0 or step.num_admissible >= self._free * size
        return Allowance(num_new=step.num_admissible if is_open else step.num_preempted)  # preempted ones are not new


class Delay(Prefill):
    """Hold new prompts until the oldest has waited `factor` times as long as the last prompt step took.

    `exclusive`: prompts have steps of their own, as in engines for which the delay was made. Each such step stops
    all decoding, so prompts that gather stop it less often.
    """

    skips_steady = True

    def __init__(self, factor: float = 0.5, exclusive: bool = False) -> None:
        if factor < 0:
            raise ValueError("factor must not be negative")
        self._factor = factor
        self._is_exclusive = exclusive

    def allow(self, step: StepView) -> Allowance:
        has_waited = step.now - step.oldest_arrival >= self._factor * step.last_prompt_s
        allowance = Allowance() if has_waited else Allowance(num_new=step.num_preempted)  # which are not new
        return exclusive(allowance, step) if self._is_exclusive else allowance


class BatchedPrefill(Prefill):
    """Admit prompts `size` at a time, once so many wait and the running set has room for them.

    Fewer than `size` wait until others join them or no request runs.
    """

    skips_steady = True

    def __init__(self, size: int = 8) -> None:
        if size < 1:
            raise ValueError("size must be at least 1")
        self._size = size
        self._end = 0  # num_admitted when the batch is complete

    def allow(self, step: StepView) -> Allowance:
        size = min(self._size, step.num_admissible + step.num_decodes + step.num_prompts)
        if step.num_admitted >= self._end and min(step.num_waiting, step.num_admissible) >= size:
            self._end = step.num_admitted + size
        # A batch may take several steps. Preempted requests come back when they can.
        return Allowance(num_new=max(0, self._end - step.num_admitted) + step.num_preempted)


class Static(Prefill):
    """Refill only when the whole batch is done: the baseline.

    Nothing decodes while the batch fills; it is full when a step admits no request.
    """

    def __init__(self) -> None:
        self._is_open = True
        self._num_seen = 0  # admitted before the last step

    def allow(self, step: StepView) -> Allowance:
        has_grown = step.num_admitted > self._num_seen
        self._num_seen = step.num_admitted
        if step.num_decodes + step.num_prompts + step.num_preempted == 0:
            self._is_open = True
        elif self._is_open:
            has_room = step.num_admissible > 0 and step.num_waiting > 0
            self._is_open = has_room and (has_grown or step.num_prompts > 0)
        # Preempted requests belong to the batch.
        return Allowance(decodes=False) if self._is_open else Allowance(num_new=step.num_preempted)


class WaitAfterPreempt(Prefill):
    """Any prefill rule, but no admission in a step that preempts: decodes then wait for prompts in progress alone."""

    def __init__(self, rule: Prefill) -> None:
        self._rule = rule

    def allow(self, step: StepView) -> Allowance:
        allowance = self._rule.allow(step)
        if not step.has_preempted:
            return allowance
        return allowance._replace(num_new=0, decodes=allowance.decodes or not step.num_prompts)
