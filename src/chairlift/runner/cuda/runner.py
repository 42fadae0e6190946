"""`CudaRunner`: carries out plans on a GPU without waiting for it.

    plan -> host part -> step input -> device part -> in flight -> result

Sampled tokens stay on the device for the next step and come back to the host beside it, so two steps are in flight and
the GPU does not wait for Python. A step with structured rows is launched like any other; once the tokens of the step
ahead are known, masks are made of them while the GPU computes, and the step's own tokens are chosen:

    submit(n+1): launch forward n+1      collect(n): tokens of n -> masks of n+1 -> choose in n+1 -> result of n

Always: plans are carried out in order; the tokens of a step are chosen before the next is launched.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import triton

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import HostMemory, RunnerFailed
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.attention.flashinfer import FlashKernels
from chairlift.runner.cuda.step.device import DevicePart, OnLogits
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS
from chairlift.runner.cuda.step.host import HostPart, is_known, structured_rows
from chairlift.runner.cuda.step.in_flight import InFlight, LaunchedStep
from chairlift.runner.cuda.step.layout import MAX_ROW_PAIRS
from chairlift.runner.hooks import LogitsHook
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import PagedModel, nothing
from chairlift.runner.ranks.cuda import RankedDevice
from chairlift.runner.ranks.orders import Orders
from chairlift.runner.sampling.matchers import NO_MATCHERS, Matchers
from chairlift.runner.sampling.scores import prompt_targets
from chairlift.runner.torch.runner import device_lost_on_error, failure
from chairlift.runner.torch.step_result import NOT_A_NUMBER


@dataclass(slots=True)
class _Step:
    plan: StepPlan
    launched: LaunchedStep | None  # None: its tokens were chosen, and its logits are not kept
    in_flight: InFlight | None = None  # None: its tokens are chosen once those of the step ahead are known
    failed: dict[RequestId, str] = field(default_factory=dict)
    error: RunnerFailed | None = None  # from choosing its tokens


class CudaRunner:
    depth = 2
    max_row_pairs = MAX_ROW_PAIRS

    def __init__(
        self, model: PagedModel, kv: KvCache, device: torch.device, limits: Limits, flash: FlashKernels | None = None,
        exact: bool = False, matchers: Matchers | None = None, max_graphs: int = MAX_GRAPHS,
        orders: Orders | None = None, adapters: AdapterStore[Any] | None = None,
    ) -> None:  # fmt: skip
        """exact: the model's operations are. matchers: for structured answers. max_graphs: captured steps that are
        kept. orders: to the other ranks, where several compute the model. adapters: of the host."""
        if limits.max_drafts:
            raise InvalidConfig("drafts are not checked on a GPU")
        part = DevicePart(model, kv, device, limits, flash, exact, max_graphs, adapters)
        self._slots = part.slots
        self.device: DevicePart | RankedDevice = part if orders is None else RankedDevice(part, orders)
        self.host = HostPart(
            self.device.num_rows, self.device.table_width, kv.block_size, kv.kinds, kv.num_groups, kv.fit
        )  # fmt: skip
        # The blocks of other ranks lie in their memories.
        self.host_memory: HostMemory | None = kv.host if orders is None else None
        self._kv = kv
        self._matchers = matchers
        self._steps: deque[_Step] = deque()
        self.on_logits: LogitsHook | None = None
        self.on_beat: Callable[[], None] = nothing
        self.uses_graphs = True  # off: every step runs eagerly

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> None:
        try:
            if plan.loads:
                assert self._slots is not None
                self._slots.load(plan.loads)
            if not plan.chunks:
                self.host.skip(plan)
                self._kv.move_blocks(swap_outs=plan.swap_outs)
                self._steps.append(_Step(plan, None))
                return
            if self._matchers is not None:
                self._matchers.expect(plan)
            launched = self.device.launch(self.host.input_of(plan), self.uses_graphs, self._hook(plan))
            if len(launched.step.sampling.structured):
                step = _Step(plan, launched)
                if is_known(plan, launched.step):
                    self._finish(step, {})
            else:
                step = _Step(plan, None, self.device.finish(launched))
        except (RuntimeError, MemoryError, triton.TritonError) as error:
            self.host.forget_tables()
            _wait()
            raise failure(error) from error
        self._steps.append(step)

    @torch.inference_mode()
    def collect(self) -> StepResult:
        step = self._steps.popleft()
        plan = step.plan
        if step.error is not None:
            self._finish_next(plan, ())
            raise step.error
        if not plan.chunks:
            self._finish_next(plan, ())
            return StepResult(plan.step, (), was_ready=True)
        assert step.in_flight is not None
        tokens, scores, prompt_scores, was_ready = step.in_flight.output()
        self._finish_next(plan, tokens)
        prompts = dict(zip(prompt_targets(plan), prompt_scores, strict=True)) if prompt_scores else {}
        is_fine = min(tokens, default=0) >= 0
        requests = _sampled(plan) if scores or not is_fine else []
        named = {requests[place]: score for place, score in scores.items()}
        failed = {request: NOT_A_NUMBER for request, token in zip(requests, tokens, strict=False) if token < 0}
        return StepResult(plan.step, tokens, named, prompts, failed | step.failed, was_ready=was_ready)

    def _finish_next(self, ahead: StepPlan, tokens: Sequence[int]) -> None:
        """Chooses the tokens of the next step where they wait for these. What fails there fails that step alone."""
        if not self._steps or self._steps[0].in_flight is not None or not self._steps[0].plan.chunks:
            return
        try:
            self._finish(self._steps[0], dict(zip(_sampled(ahead), tokens, strict=False)))
        except (RuntimeError, MemoryError, triton.TritonError) as error:
            self.host.forget_tables()
            _wait()
            # Not RunnerFull: the step was submitted, and so is no longer rolled back.
            self._steps[0].error = RunnerFailed(str(failure(error)))

    def _finish(self, step: _Step, last: dict[RequestId, int]) -> None:
        """last: tokens of the step ahead."""
        if self._matchers is None:
            raise RuntimeError(NO_MATCHERS)
        assert step.launched is not None
        rows = structured_rows(step.plan, step.launched.step, last)
        masks = self._matchers.masks(step.plan.step, rows, self.on_beat)
        step.failed = {rows[index][0].id: fault for index, fault in masks.failed.items()}
        step.in_flight = self.device.finish(step.launched, masks.words)
        step.launched = None

    @torch.inference_mode()
    def prepare(self) -> bool:
        """Captures one more of the likely steps, between steps; False when there is none."""
        return self.device.capture_one()

    @property
    def rungs(self) -> tuple[int, ...]:
        """Numbers of rows that steps are padded to."""
        return self.device.rungs

    def dry_run(self, plan: StepPlan) -> None:
        """Launches all that the plan takes, without a result: on a device without memory there is none."""
        assert isinstance(self.device, DevicePart), "only a rank by itself has dry runs"
        self.device.dry_run(self.host.input_of(plan))

    def _hook(self, plan: StepPlan) -> OnLogits | None:
        if self.on_logits is None:
            return None
        positions = [chunk.start + chunk.count - 1 for chunk in plan.chunks for _ in chunk.samples]
        return partial(self.on_logits, _sampled(plan), positions)


def _sampled(plan: StepPlan) -> list[RequestId]:
    """The requests that take a token from the step, in order."""
    return [request.id for chunk in plan.chunks for request in chunk.samples]


def _wait() -> None:
    """Until nothing of a failed step is in flight, as its buffers go to the next. Where the device itself is lost this
    fails too, so that the engine is started again."""
    event = torch.cuda.Event()
    with device_lost_on_error():
        event.record()
        event.synchronize()
