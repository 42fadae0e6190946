"""Steps of several ranks on GPUs: the first sends each step input on, and every rank's device part carries it out.

Always: all ranks launch the same sums in the same order. Each chooses the same tokens, from the same logits, sampling
rows and noise, so those of the last step are on every device.
"""

from collections import deque

import numpy as np
import triton

from chairlift.runner.cuda.step.columns import Words
from chairlift.runner.cuda.step.device import DevicePart, OnLogits
from chairlift.runner.cuda.step.in_flight import InFlight, LaunchedStep
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.ranks.orders import Capture, Finish, Launch, Order, Orders, lost_on_error

_IN_FLIGHT = 2  # steps, as the first rank has


class RankedDevice:
    """The first rank's device part, which tells the others what it does."""

    def __init__(self, part: DevicePart, orders: Orders) -> None:
        self._part = part
        self._orders = orders
        self.num_rows, self.table_width = part.num_rows, part.table_width

    @property
    def rungs(self) -> tuple[int, ...]:
        return self._part.rungs

    def launch(self, step: StepInput, uses_graphs: bool, on_logits: OnLogits | None = None) -> LaunchedStep:
        self._orders.send(Launch(step.to_bytes(), uses_graphs))
        with lost_on_error((triton.TritonError,)):
            return self._part.launch(step, uses_graphs, on_logits)

    def finish(self, launched: LaunchedStep, masks: Words | None = None) -> InFlight:
        self._orders.send(Finish(None) if masks is None else Finish(masks.tobytes(), len(masks)))
        with lost_on_error((triton.TritonError,)):
            return self._part.finish(launched, masks)

    def capture_one(self) -> bool:
        self._orders.send(Capture())
        with lost_on_error((triton.TritonError,)):
            return self._part.capture_one()


class CudaPart:
    """Another rank's device part."""

    def __init__(self, part: DevicePart) -> None:
        self._part = part
        self._launched: LaunchedStep | None = None
        self._in_flight: deque[InFlight] = deque()

    def carry_out(self, order: Order) -> None:
        if isinstance(order, Launch):
            self._launched = self._part.launch(StepInput.from_bytes(order.step), order.uses_graphs)
        elif isinstance(order, Finish):
            self._finish(order)
        else:
            assert isinstance(order, Capture)
            self._part.capture_one()

    def _finish(self, order: Finish) -> None:
        assert self._launched is not None
        masks = None
        if order.masks is not None:  # a copy: torch takes no array that it may not write to
            masks = np.frombuffer(order.masks, np.int32).copy().reshape(order.num_masks, -1)
        self._in_flight.append(self._part.finish(self._launched, masks))
        self._launched = None
        while len(self._in_flight) >= _IN_FLIGHT:  # buffers of older steps are used again
            self._in_flight.popleft().done.synchronize()
