"""How the contest judges rows of logits."""

import numpy as np

from chairlift.telemetry.logit_files import Logits

ATOL, RTOL = 5e-3, 1e-5


def is_close(expected: Logits, found: Logits) -> bool:
    return expected.shape == found.shape and bool(np.allclose(found, expected, rtol=RTOL, atol=ATOL))
