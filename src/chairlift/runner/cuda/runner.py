"""`CudaRunner`: carries out plans on a GPU without waiting for it.

    plan -> host part -> step input -> device part -> in flight -> result

Sampled tokens stay on the device for the next step and come back to the host beside it, so two steps are in flight and
the GPU does not wait for Python.

Always: plans are carried out in order.
"""

from collections import deque
from functools import partial

import torch
import triton

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.runner.cuda.flashinfer.kernels import FlashKernels
from chairlift.runner.cuda.step.device import DevicePart, OnLogits
from chairlift.runner.cuda.step.host import HostPart
from chairlift.runner.cuda.step.in_flight import InFlight
from chairlift.runner.cuda.step.layout import MAX_ROW_PAIRS
from chairlift.runner.hooks import LogitsHook
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.sampling.prompt_targets import prompt_targets
from chairlift.runner.torch.runner import device_lost_on_error, failure
from chairlift.runner.torch.step_result import NOT_A_NUMBER


class CudaRunner:
    depth = 2
    max_row_pairs = MAX_ROW_PAIRS

    def __init__(
        self, model: Decoder, kv: KvCache, device: torch.device, limits: Limits, flash: FlashKernels | None = None,
        exact: bool = False,
    ) -> None:  # fmt: skip
        """exact: the model's operations are."""
        if limits.max_drafts:
            raise InvalidConfig("drafts are not checked on a GPU")
        self.device = DevicePart(model, kv, device, limits, flash, exact)
        self.host = HostPart(self.device.num_rows, self.device.table_width, kv.block_size)
        self._steps: deque[tuple[StepPlan, InFlight]] = deque()
        self.on_logits: LogitsHook | None = None
        self.uses_graphs = True  # off: every step runs eagerly

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> None:
        try:
            step = self.host.input_of(plan)
            self._steps.append((plan, self.device.launch(step, self.uses_graphs, self._hook(plan))))
        except (RuntimeError, MemoryError, triton.TritonError) as error:
            self.host.forget_tables()
            _wait()
            raise failure(error) from error

    def collect(self) -> StepResult:
        plan, step = self._steps.popleft()
        tokens, scores, prompt_scores = step.output()
        prompts = dict(zip(prompt_targets(plan), prompt_scores, strict=True)) if prompt_scores else {}
        is_fine = min(tokens, default=0) >= 0
        requests = _sampled(plan) if scores or not is_fine else []
        named = {requests[place]: score for place, score in scores.items()}
        failed = {request: NOT_A_NUMBER for request, token in zip(requests, tokens, strict=False) if token < 0}
        return StepResult(plan.step, tokens, named, prompts, failed)

    @torch.inference_mode()
    def prepare(self) -> bool:
        """Captures one more of the likely steps, between steps; False when there is none."""
        return self.device.capture_one()

    def dry_run(self, plan: StepPlan) -> None:
        """Launches all that the plan takes, without a result: on a device without memory there is none."""
        self.device.compute(self.host.input_of(plan), uses_graphs=False)

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
