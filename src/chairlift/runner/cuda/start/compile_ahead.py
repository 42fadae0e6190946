"""Compiles the kernels of a start by many processes while weights are loaded: one by one took two thirds of a start.

A file in Triton's cache says that a start like this one has compiled them. Nothing here may fail a start: what is not
compiled ahead is compiled when it is launched.
"""

import hashlib
import json
import logging
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.cache import triton_key

from chairlift import runner
from chairlift.core.limits import Limits
from chairlift.models.spec import ModelConfig
from chairlift.runner.ops import Ops
from chairlift.runner.weights.assemble import WeightFormat

if TYPE_CHECKING:
    from chairlift.runner.cuda.start.dry_run import MakeRunner

_COMPILER = (sys.executable, "-m", "chairlift.runner.cuda.start.compiler")
_log = logging.getLogger(__name__)


class CompileAhead:
    def __init__(
        self, make_runner: "MakeRunner", config: ModelConfig, ops: Ops, dtype: torch.dtype, kv_dtype: torch.dtype,
        weight_format: WeightFormat, limits: Limits, capability: tuple[int, int], max_rank: int = 0,
    ) -> None:  # fmt: skip
        """Begins, unless it has been done before. max_rank: of adapters."""
        # Part of every key of the cache and slow: in a thread, as weights are loaded next.
        threading.Thread(target=triton_key, daemon=True).start()
        target = GPUTarget("cuda", capability[0] * 10 + capability[1], 32)
        self._compiling: Future[Any] | None = None
        self._mark = _mark(config, type(ops), vars(ops), dtype, kv_dtype, weight_format, limits, target, max_rank)
        if self._mark.exists():
            return
        try:
            from chairlift.runner.cuda.start.dry_run import kernels_of_start

            kernels = kernels_of_start(make_runner, config, ops, dtype, kv_dtype, weight_format, limits, target)
        except Exception as error:
            _log.warning("kernels are compiled one by one: %s", error)
            return
        if kernels:
            order = json.dumps({"target": [target.backend, target.arch, target.warp_size], "kernels": kernels})
            self._compiling = ThreadPoolExecutor(1).submit(
                lambda: subprocess.run(_COMPILER, input=order, text=True, capture_output=True, check=True)
            )

    def wait(self) -> None:
        """Until they are in the cache."""
        if self._compiling is None:
            return
        try:
            self._compiling.result()
            self._mark.touch()
        except (OSError, subprocess.CalledProcessError) as error:
            said = str(getattr(error, "stderr", "")).strip().splitlines()
            _log.warning("kernels are compiled one by one: %s", said[-1] if said else error)


def _mark(*start: object) -> Path:
    """Named after all that decides on the kernels: versions, our sources, what is started."""
    digest = hashlib.sha256(repr((sys.version, torch.__version__, triton.__version__, start)).encode())
    for path in sorted(Path(runner.__path__[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return Path(triton.knobs.cache.dir) / f"chairlift-{digest.hexdigest()[:32]}"
