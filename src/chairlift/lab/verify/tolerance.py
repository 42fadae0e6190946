"""How far logits may be from a reference, by dtype, and from other rows in the contest.

Errors are measured in spreads, the standard deviation of the expected row, because models differ in scale: an error of
0.05 spreads means the same for logits around 2 as for logits around 20.
"""

from dataclasses import dataclass

import numpy as np

from chairlift.lab.verify.deviation import Deviation
from chairlift.telemetry.logit_files import Logits


@dataclass(frozen=True, slots=True)
class Tolerance:
    spreads: float  # the largest error of any value
    kl: float  # the mean divergence, in nats

    def holds(self, deviation: Deviation) -> bool:
        return deviation.max_spreads <= self.spreads and deviation.mean_kl <= self.kl

    def in_words(self) -> str:
        return f"{self.spreads:g} spreads and a mean KL of {self.kl:g}"


_BY_DTYPE = {
    "float64": Tolerance(1e-3, 1e-6),  # the reference has float64 too
    "float32": Tolerance(1e-3, 1e-6),
    "float16": Tolerance(8e-2, 1e-3),
    "bfloat16": Tolerance(5e-1, 5e-3),
}
_FP8 = Tolerance(1.0, 1e-1)
_BYTES = Tolerance(7e-1, 1e-2)  # rows rounded to 8 bits for products with quantised weights; keys and values as bytes


def tolerance_of(dtype: str, kv_dtype: str, quantize: str) -> Tolerance:
    if quantize == "fp8" or kv_dtype not in (*_BY_DTYPE, "int8"):
        return _FP8
    return _BYTES if quantize != "none" or kv_dtype == "int8" else _BY_DTYPE[dtype]


ATOL, RTOL = 5e-3, 1e-5  # the contest's


def is_close(expected: Logits, found: Logits) -> bool:
    """As the contest judges."""
    return expected.shape == found.shape and bool(np.allclose(found, expected, rtol=RTOL, atol=ATOL))
