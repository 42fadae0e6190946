"""Kernels that are launched before the one ahead has finished (programmatic dependent launch), on GPUs that can: Hopper
and later.

A step of a single row is hundreds of kernels of a few microseconds, of which one goes into starting each. Such a kernel
says early that the next may be launched, and waits itself before it touches what others wrote.

Always: a kernel launched with `early()` calls `await_others` before it reads what any other kernel of the step may have
written and before it writes; once it returns, all kernels ahead have finished. Without `early()` both do nothing.
Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl
from triton import knobs
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from chairlift.runner.cuda.start.target import arch

_HOPPER = 90


def early(is_wanted: bool) -> dict[str, bool]:
    """Options of a launch."""
    is_early = is_wanted and not knobs.runtime.interpret and arch() >= _HOPPER
    return {"IS_EARLY": True, "launch_pdl": True} if is_early else {"IS_EARLY": False}


@triton.jit
def let_next_begin(IS_EARLY: tl.constexpr):
    """The next kernel is launched when all programs have said so or ended."""
    if IS_EARLY:
        gdc_launch_dependents()


@triton.jit
def await_others(IS_EARLY: tl.constexpr):
    """Until all kernels ahead have finished and what they wrote can be read."""
    if IS_EARLY:
        gdc_wait()
