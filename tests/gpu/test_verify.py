"""The gate on a real GPU: widths of a 7B model, whose matrices are those that a library splits, with few layers."""

import json
from pathlib import Path

import pytest
import torch

from chairlift.build import find_model
from chairlift.config.options.resolve import resolve
from chairlift.lab.verify.batch import against_batch
from chairlift.lab.verify.opened import PromptSpec
from chairlift.lab.verify.reference import against_reference
from chairlift.lab.verify.report import Verdict, VerifyReport

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

WIDE = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 2,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(WIDE))
    return str(tmp_path)


def nothing(name: str, done: int, total: int) -> None:
    pass


def batches(model: str, exact: bool) -> VerifyReport:
    options = {"model": model, "load_format": "dummy", "device": "cuda", "exact": exact}
    return against_batch(find_model(resolve(options)), PromptSpec(num_prompts=20, num_tokens=32), nothing)


def test_exact_passes_over_10000_rows_and_its_control_differs(model: str) -> None:
    report = batches(model, exact=True)
    assert report.verdict is Verdict.PASS, report.to_text()
    assert report.total.num_rows >= 10_000
    assert report.total.num_differing == 0
    assert all(comparison.is_reached for comparison in report.comparisons if not comparison.is_control), (
        report.to_text()
    )
    assert report.comparisons[-1].deviation.num_differing > 0


def test_without_it_batches_change_bits(model: str) -> None:
    report = batches(model, exact=False)
    assert report.total.num_differing > 0, report.to_text()


def test_the_engine_is_within_the_tolerance_of_the_references(model: str) -> None:
    options = {"model": model, "load_format": "dummy", "device": "cuda"}
    report = against_reference(find_model(resolve(options)), PromptSpec(), nothing)
    assert report.verdict is Verdict.PASS, report.to_text()
