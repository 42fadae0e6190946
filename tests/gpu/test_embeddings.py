"""Vectors and scores on a GPU, against the same model in float64 on the CPU."""

from pathlib import Path

import pytest
import torch

from chairlift.runner.embedding.inputs import Input
from fakes.encoders import EncoderTwin, make_encoder, write_modules
from unit.runner.twins import make_twin

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LENGTHS = (5, 1, 23, 40, 22, 7)
INPUTS = [Input([3 + (7 * i + length) % 57 for i in range(length)], length // 2) for length in LENGTHS]


def check(twin: EncoderTwin) -> None:
    wanted = twin.model(device="cpu").vectors(INPUTS)
    for dtype, error in (("float32", 1e-3), ("bfloat16", 0.1)):
        made = twin.model(device="cuda", dtype=dtype).vectors(INPUTS)
        torch.testing.assert_close(made.cpu().double(), wanted, atol=error, rtol=error)


@pytest.mark.parametrize("family", ["Bert", "XLMRoberta", "ModernBert"])
@pytest.mark.parametrize("has_head", [False, True])
def test_encoders_on_a_gpu_are_those_on_a_cpu(tmp_path: Path, family: str, has_head: bool) -> None:
    check(make_encoder(tmp_path, family, has_head))


def test_a_decoder_s_vectors_on_a_gpu_are_those_on_a_cpu(tmp_path: Path) -> None:
    make_twin(tmp_path, "qwen3-qk-norm")
    write_modules(tmp_path, {"pooling_mode": "lasttoken"}, "Normalize")
    check(EncoderTwin(tmp_path, None))
