from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter


@pytest.fixture
def fp8_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter drops the carry when it rounds up to fp8 (15.9 becomes 8): torch rounds in its place."""
    plain = interpreter._convert_float

    def convert(values: np.ndarray, source: Any, target: Any, mode: Any) -> np.ndarray:
        if (source, target) != (tl.float32, tl.float8e4nv):
            return plain(values, source, target, mode)
        return torch.from_numpy(values.copy()).to(torch.float8_e4m3fn).view(torch.uint8).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", convert)
