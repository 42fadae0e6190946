"""Models of transformers on a CUDA device: their logits, captured steps against others, and whole loads."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.build import find_model, load
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.events import Token
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.start.load import Loaded
from fakes.clocks import CountingClock
from fakes.requests import make_request
from unit.runner.fallback.families import FAMILIES, make_twin
from unit.runner.twins import random_tokens

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LENGTHS = (3, 40, 17, 1)
NUM_TOKENS = 12


def loaded_from(folder: Path, **changes: Any) -> Loaded:
    given = {"model": str(folder), "model_impl": "transformers", "device": "cuda", "dtype": "float32"}
    return load(find_model(Settings(**{**given, "kv_memory": 2**24, "max_running": 8, **changes})))


def answer(loaded: Loaded) -> tuple[dict[int, list[int]], dict[tuple[int, int], Tensor]]:
    """Texts with their answers, and the logits at each position that a token was chosen from."""
    rows: dict[tuple[int, int], Tensor] = {}

    def see(requests: Any, positions: Any, logits: Tensor) -> None:
        rows.update(zip(zip(requests, positions, strict=True), logits.cpu().clone(), strict=True))

    loaded.runner.on_logits = see  # type: ignore[attr-defined]
    engine = Engine(Scheduler(loaded.limits, Fcfs()), loaded.runner, CountingClock())
    texts = {i: random_tokens(length, seed=length) for i, length in enumerate(LENGTHS)}
    for i, text in texts.items():
        engine.add((make_request(i, text, NUM_TOKENS, temperature=0.0),))
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Token):
                texts[event.request].append(event.token)
    return texts, rows


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_captured_steps_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    texts, rows = answer(loaded_from(tmp_path))
    assert len(rows) == len(LENGTHS) * NUM_TOKENS
    for i, text in texts.items():
        expected = twin.reference_logits(text)
        for place in range(LENGTHS[i] - 1, len(text) - 1):
            torch.testing.assert_close(rows[i, place], expected[place], atol=2e-3, rtol=2e-3)


# The mixtures of transformers 5.17 copy from the host, which no captured step can.
@pytest.mark.parametrize(("family", "is_captured"), [("gpt_neox", 1), ("cohere2", 1), ("olmoe", 0), ("deepseek_v3", 0)])
def test_steps_are_captured_where_they_can_be_and_answers_are_the_same_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, family: str, is_captured: bool
) -> None:
    make_twin(tmp_path, family)
    loaded = loaded_from(tmp_path)
    assert isinstance(loaded.runner, CudaRunner)
    captured, _ = answer(loaded)
    assert ("no more steps are captured" not in caplog.text) is bool(is_captured)
    loaded.runner.uses_graphs = False
    assert answer(loaded)[0] == captured


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_it_serves_in_16_bits_and_with_random_weights(tmp_path: Path, dtype: str) -> None:
    make_twin(tmp_path, "starcoder2")
    loaded = loaded_from(tmp_path, dtype=dtype, load_format="dummy")
    texts, rows = answer(loaded)
    assert loaded.dtype == dtype and loaded.kernels.startswith("triton")
    assert all(len(text) == LENGTHS[i] + NUM_TOKENS for i, text in texts.items())
    assert all(row.isfinite().all() for row in rows.values())
