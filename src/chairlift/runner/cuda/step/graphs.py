"""Captured steps: all launches of a step as one.

The first step of all runs kernel by kernel. Later ones are captured when their key comes first: that takes as long as
launching them, beside the step ahead. A long one is launched kernel by kernel then, and captured while the device
computes it. Of many graphs the ones that were used last are kept.

Always: a step comes out the same whether it is captured or not. Graphs share their memory, and the logits: they are
read before the next one runs. The largest is captured first: torch cuts tensors from pieces of memory and never joins
two, so the memory of steps that came in the order of their sizes would add up. A capture that fails is tried once more
when its key comes again, as what a library makes on first use may not be captured; then, or without memory, capturing
ends for good.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.attention.flashinfer_planner import FlashPlan
from chairlift.runner.cuda.step.forward import Forward
from chairlift.runner.cuda.step.graph_key import LONG, MAX_GRAPHS, GraphKey, GraphKeys
from chairlift.runner.cuda.step.memory import StepMemory
from chairlift.runner.torch.runner import failure

_log = logging.getLogger(__name__)

Graph = tuple[torch.cuda.CUDAGraph, Tensor, Tensor]  # with its logits and tokens


class Graphs:
    def __init__(
        self, forward: Forward, memory: StepMemory, keys: GraphKeys, vocab_size: int, max_graphs: int = MAX_GRAPHS,
        has_trials: bool = False,
    ) -> None:  # fmt: skip
        """max_graphs: kept at once. has_trials: trials choose products on first use, and wait for the device."""
        self._keys = keys
        self._max_graphs = max_graphs
        self._forward = forward
        self._memory = memory
        self._captured: OrderedDict[GraphKey, Graph] = OrderedDict()  # the one used last is last
        self._tried: set[GraphKey] = set()  # run before
        self._has_trials = has_trials
        self._chosen: set[tuple[int, int, bool]] = set()  # numbers of rows whose products are
        self._can_capture = max_graphs > 0
        self._pool: Any = None  # of memory
        self._side: torch.cuda.Stream | None = None  # on which they are captured
        # If each kept its own, they would take gigabytes.
        self._logits = torch.empty(keys.max_samples, vocab_size, dtype=torch.float32, device=memory.last.device)

    def run(self, key: GraphKey, planned: FlashPlan | None) -> tuple[Tensor, Tensor]:
        """(logits, tokens) of the step that is in the memory."""
        if key not in self._captured and self._can_capture and (self._captured or key in self._tried):
            if key.num_tokens > LONG:
                output = self._forward.run(key, planned)
                self._capture(key, planned)
                return output
            self._capture(key, planned)
        if key not in self._captured:
            self._tried.add(key)
            return self._forward.run(key, planned)
        self._captured.move_to_end(key)
        graph, logits, tokens = self._captured[key]
        graph.replay()
        return logits, tokens

    def capture_one(self) -> bool:
        """The first likely one that is not captured; False where there is none, no room for it, or it fails."""
        key = next((key for key in self._keys.likely if key not in self._captured), None)
        if key is None or not self._can_capture or len(self._captured) >= self._max_graphs:
            return False
        with suppress(RuntimeError, triton.TritonError):  # no step waits for it
            self._capture(key, None)
        return key in self._captured

    def _capture(self, key: GraphKey, planned: FlashPlan | None) -> None:
        """Where it fails the step runs eagerly."""
        if planned is None and not self._captured and key != self._keys.largest:
            self._capture(self._keys.largest, None)
            if not self._can_capture:
                return
        stream = torch.cuda.current_stream()
        # Always the same stream: libraries keep memory for each.
        side = self._side = self._side or torch.cuda.Stream()
        try:
            self._choose(key, planned)
            # Around the capture too: where that cannot be ended, torch would stay on its stream.
            with _beside(stream, side):
                if not self._captured:
                    self._begin(key, planned)
                with self._memory.padding(key):
                    graph = torch.cuda.CUDAGraph()
                    with _capturing(graph, self._pool):
                        logits, tokens = self._forward.run(key, planned)
                        self._logits[: key.num_samples].copy_(logits)
            self._pool = self._pool or graph.pool()
            self._captured[key] = (graph, self._logits[: key.num_samples], tokens)
            if len(self._captured) > self._max_graphs:
                self._captured.popitem(last=False)
        except RuntimeError as error:
            if key in self._tried or not self._captured or isinstance(error, torch.OutOfMemoryError):
                self._can_capture = False
                _log.warning("no more steps are captured: %s", failure(error))
            self._tried.add(key)

    def _choose(self, key: GraphKey, planned: FlashPlan | None) -> None:
        """What trials choose is chosen before a capture: by a step of padding that runs kernel by kernel."""
        rows = key.num_tokens, key.num_samples, key.has_adapters
        if self._has_trials and rows not in self._chosen:
            with self._memory.padding(key):
                self._forward.run(key, planned)
            self._chosen.add(rows)

    def _begin(self, key: GraphKey, planned: FlashPlan | None) -> None:
        """What is made on first use of a stream cannot be captured. A small step will do, where there is no plan for
        another: torch keeps its memory for that stream."""
        key = self._keys.small if planned is None else key
        with self._memory.padding(key):
            self._forward.run(key, planned)


@contextmanager
def _beside(stream: torch.cuda.Stream, side: torch.cuda.Stream) -> Iterator[None]:
    """On another stream, between earlier and later launches of the one."""
    side.wait_stream(stream)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        stream.wait_stream(side)


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """As `torch.cuda.graph`, but torch keeps its memory, which the next step needs; `measure` leaves room for both. The
    device is not waited for, and kernels may be loaded."""
    graph.capture_begin(pool=pool, capture_error_mode="relaxed")
    try:
        yield
    finally:
        graph.capture_end()
