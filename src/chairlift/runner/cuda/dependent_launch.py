"""Programmatic dependent launch: a kernel starts before the previous one has finished, on Hopper and later.

A step of a single row is hundreds of kernels of a few microseconds, of which one goes into starting each.

Always: a kernel launched with `dependent()` calls `wait_for_previous` before it reads what another kernel of the step
may have written and before it writes; all previous kernels have finished then. Elsewhere both functions do nothing.
Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl
from triton import knobs
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from chairlift.runner.cuda.target import arch

FEW = 64  # rows of a step whose kernels are launched before those ahead have finished: its weights wait for nobody
_HOPPER = 90


def dependent(is_wanted: bool) -> dict[str, bool]:
    """Options of a launch."""
    is_dependent = is_wanted and not knobs.runtime.interpret and arch() >= _HOPPER
    return {"IS_DEPENDENT": True, "launch_pdl": True} if is_dependent else {"IS_DEPENDENT": False}


@triton.jit
def launch_dependents(IS_DEPENDENT: tl.constexpr):
    """The next kernel is launched when all programs have said so or ended."""
    if IS_DEPENDENT:
        gdc_launch_dependents()


@triton.jit
def wait_for_previous(IS_DEPENDENT: tl.constexpr):
    """Until all kernels ahead have finished and what they wrote can be read."""
    if IS_DEPENDENT:
        gdc_wait()
