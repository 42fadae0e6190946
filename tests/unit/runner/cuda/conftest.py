from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

from chairlift.runner.cuda.step.graphs import Graphs
from fakes.gpu import DoneEvent


@pytest.fixture(scope="session", autouse=True)
def language_once_a_launch() -> Iterator[None]:
    """Triton's interpreter puts its own functions in the place of the language's for every function that a kernel
    calls, which takes half of its time: once a launch will do."""
    launch, put_in_place = interpreter.GridExecutor.__call__, interpreter._patch_lang
    done: set[frozenset[str]] = set()

    def launch_anew(self: Any, *args: Any, **options: Any) -> Any:
        done.clear()
        return launch(self, *args, **options)

    def put_in_place_once(function: Any) -> Any:
        languages = frozenset(each.__name__ for each in function.__globals__.values() if each is tl or each is tl.core)
        if languages in done:
            return None  # the first of a launch puts everything back
        done.add(languages)
        return put_in_place(function)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.GridExecutor, "__call__", launch_anew)
        patch.setattr(interpreter, "_patch_lang", put_in_place_once)
        yield


@pytest.fixture(autouse=True)
def plain_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU multiplies is multiplied here by whatever torch has; oneDNN warns of bfloat16 where a processor does
    not have it."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are done at once, and none is captured."""
    monkeypatch.setattr(torch.cuda, "Event", DoneEvent)
    monkeypatch.setattr(Graphs, "_capture", lambda *_: None)


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
