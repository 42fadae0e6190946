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


@pytest.fixture
def ordered_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dots as tensor cores compute them: sixteen products at a time are added to the sum, from first to last. The
    interpreter leaves the order to a library and takes bfloat16 for integers."""

    def widened(handle: Any) -> np.ndarray:
        if handle.dtype.scalar != tl.bfloat16:
            return handle.data.astype(np.float64)
        return (handle.data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    def dot(_: Any, a: Any, b: Any, d: Any, *__: Any) -> Any:
        first, second, sums = widened(a), widened(b), d.data
        for low in range(0, first.shape[1], 16):
            sums = (sums + first[:, low : low + 16] @ second[low : low + 16]).astype(np.float32)
        return interpreter.TensorHandle(sums, d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
