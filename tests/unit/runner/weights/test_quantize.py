"""fp8 is refused where it is missing, in one line that names the alternative."""

from pathlib import Path

import pytest
import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.source import Source, load_model_config
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.kernels import pick_kv_dtype
from chairlift.runner.kv_cache import kv_bytes_per_block
from chairlift.runner.start.load import load_runner
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.quantize import pick_weight_format
from fakes.tiny_model import write_tiny_model
from fakes.worlds.models import CONFIG, SHAPE


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ({"kv_dtype": "fp8"}, "kv_dtype fp8: only the triton kernels .* the torch ones are used; use --kv-dtype auto"),
        ({"quantize": "fp8"}, "quantize fp8: only the triton kernels .* the torch ones are used; use --quantize none"),
    ],
)
def test_a_cpu_keeps_nothing_in_fp8(tmp_path: Path, option: dict[str, str], complaint: str) -> None:
    source = Source("folder", write_tiny_model(tmp_path), "tiny")
    settings = Settings(device="cpu", kernels="torch", **option)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match=f"^{complaint}$"):
        load_runner(settings, source, load_model_config(source))


def test_an_older_gpu_is_named_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 6))
    with pytest.raises(InvalidConfig, match=r"8\.9 .* this one has 8\.6; use --kv-dtype auto$"):
        pick_kv_dtype("fp8", "triton", torch.bfloat16)
    with pytest.raises(InvalidConfig, match=r"8\.9 .* this one has 8\.6; use --quantize none$"):
        pick_weight_format("fp8", "triton", torch.bfloat16, CONFIG, TorchOps())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    ("dtype", "config", "complaint"),
    [
        (torch.float16, CONFIG, "bfloat16, not float16; use --dtype bfloat16 or --quantize none"),
        (
            torch.bfloat16,
            uniform_model(**SHAPE | {"intermediate_size": 56}),
            "32, 56 are not all multiples of 16; use --quan",
        ),
    ],
)
def test_products_that_fp8_cannot_do_are_refused(dtype: torch.dtype, config: ModelConfig, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        pick_weight_format("fp8", "triton", dtype, config, TorchOps())


@pytest.mark.usefixtures("hopper")
def test_keys_and_values_in_fp8_take_a_byte_each_beside_any_type() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        assert pick_kv_dtype("fp8", "triton", dtype) is torch.float8_e4m3fn
        assert pick_kv_dtype("auto", "torch", dtype) is dtype
    sizes = [kv_bytes_per_block(CONFIG, 16, kept) for kept in (torch.float8_e4m3fn, torch.bfloat16)]
    assert sizes == [2 * 2 * 2 * 16 * 8, 2 * sizes[0]]
