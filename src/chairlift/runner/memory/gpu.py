"""A GPU's memory while a model is loaded: in use before, by the weights, and by serving.

Counts all use of the device, by other programs and outside of torch too.
"""

import gc
import logging
from collections.abc import Callable

import torch

from chairlift.core.limits import Limits
from chairlift.core.ports import Runner
from chairlift.models.spec import ModelConfig
from chairlift.runner.cuda.step.graph_key import max_graphs
from chairlift.runner.machine import hardware
from chairlift.runner.memory.budget import Budget, check_weights
from chairlift.runner.memory.measure import measure_footprint, with_step
from chairlift.runner.weights.quantize import kept_bytes

SHARE = 0.9  # of the memory, by default
_log = logging.getLogger(__name__)


class GpuMemory:
    def __init__(self, device: torch.device, share: float) -> None:
        """Must be made before anything is loaded."""
        self._device = device
        self.share = share
        self._total = hardware.total_memory(device)
        self._release()  # memory of an earlier model
        self._others = self._used()

    def check_weights(self, config: ModelConfig, dtype: torch.dtype, quantize: str) -> None:
        """Refuses weights that cannot fit."""
        smaller = "" if quantize != "none" else "--quantize fp8, " if dtype.itemsize == 2 else "--dtype bfloat16, "
        need = kept_bytes(config, quantize, dtype.itemsize)
        check_weights(need, self._total, self._others, self.share, f"{smaller}a smaller model or --device cpu")

    def measure(self, make: Callable[[Limits], Runner], limits: Limits) -> tuple[Budget, Limits, int]:
        """After loading: the budget without a cache, limits with a step that leaves room for one, and the number of
        captured steps that there is room for."""
        self._release()
        weights = max(0, self._used() - self._others)
        room = int(self.share * self._total) - self._others - weights
        footprint = measure_footprint(make, limits, room, self._used, self._release)
        self._release()
        budget = Budget(self._total, self._others, weights, footprint.activations, footprint.graphs)
        fitting = with_step(limits, footprint.num_tokens)
        if fitting != limits:
            _log.warning(
                "steps of %d tokens and %d requests at the end of a context of %d take too much memory: "
                "max_step_tokens is %d; lower --max-model-len or --max-running for larger ones",
                limits.max_step_tokens, limits.max_running, limits.max_model_len, fitting.max_step_tokens,
            )  # fmt: skip
        if footprint.num_graphs < max_graphs(limits):
            _log.warning(
                "there is memory for %d captured steps instead of %d: a step without one takes longer; "
                "raise --memory for more",
                footprint.num_graphs, max_graphs(limits),
            )  # fmt: skip
        return budget, fitting, footprint.num_graphs

    def _used(self) -> int:
        return self._total - hardware.free_memory(self._device)

    @staticmethod
    def _release() -> None:
        gc.collect()
        torch.cuda.empty_cache()
