"""What is planned against what a load then holds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.source import Source, load_model_config, locate
from chairlift.runner.machine import hardware
from chairlift.runner.machine.devices import NAMES, DeviceSpec, find_device
from chairlift.runner.memory import forecast as module
from chairlift.runner.memory.forecast import Forecast, forecast
from chairlift.runner.memory.measure import Footprint
from chairlift.runner.start.load import load_runner
from fakes.allocations import held
from fakes.family_configs import CONFIGS
from fakes.gpu import GIB, MIB, FakeGpu
from unit.runner.twins import make_twin

ONE_BILLION = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip


def planned(source: Source, **changes: Any) -> Forecast:
    settings = Settings(**{"device": "cpu", **changes})
    return forecast(settings, source, load_model_config(source), find_device("cpu", None))


def check(source: Source, **changes: Any) -> None:
    """Within 2 %: of the weights, and of the cache's bytes and tokens."""
    plan = planned(source, **changes)
    before = held()
    loaded = load_runner(Settings(**{"device": "cpu", "threads": 1, **changes}), source, load_model_config(source))
    taken = held() - before
    assert loaded.limits.max_pool_tokens == pytest.approx(plan.limits.max_pool_tokens, rel=0.02)
    assert replace(loaded.limits, num_blocks=1) == replace(plan.limits, num_blocks=1)
    assert (loaded.dtype, loaded.kv_dtype) == (plan.dtype, plan.kv_dtype)
    assert taken == pytest.approx(plan.budget.weights + plan.budget.kv, rel=0.02)


def test_the_embedded_model_takes_what_was_planned() -> None:
    check(locate(None))


def test_a_small_model_with_groups_takes_what_was_planned(tmp_path: Path) -> None:
    source = Source("folder", make_twin(tmp_path, "llama-gqa-tied").folder, "twin")
    check(source, dtype="float32", kernels="torch", kv_memory=10**7, max_model_len=100)


@pytest.mark.nightly
def test_a_billion_parameters_take_what_was_planned(tmp_path: Path) -> None:
    if hardware.free_memory(torch.device("cpu")) < 8 * GIB:
        pytest.skip("there is not enough memory for it")
    (tmp_path / "config.json").write_text(json.dumps(ONE_BILLION))
    check(Source("folder", tmp_path, "one"), load_format="dummy", kv_memory=512 * MIB)


def test_a_gpu_s_cache_is_cut_as_a_load_cuts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a given footprint of steps: its estimate is compared elsewhere."""
    (tmp_path / "config.json").write_text(json.dumps(ONE_BILLION))
    source = Source("folder", tmp_path, "one")
    config = load_model_config(source)
    monkeypatch.setattr(module, "estimate_footprint", lambda *_: Footprint(2 * GIB, GIB, 2048, 9))
    device = DeviceSpec("fake", "cuda", 24 * GIB, GIB, (9, 0))
    found = forecast(Settings(memory=0.8), source, config, device)
    budget = found.budget
    assert (budget.others, budget.activations, budget.graphs) == (GIB, 2 * GIB, GIB)
    assert found.limits.max_step_tokens == 2048
    # All but the share that is left alone, and less than a block beside what tensors are rounded up by.
    room = int(0.8 * 24 * GIB) - 4 * GIB - budget.weights - 2 * 16 * 2 * MIB
    assert 0 <= room - budget.kv < 16 * found.kv_token_bytes
    assert found.kv_token_bytes == 2 * 16 * 8 * 64 * 2
    assert forecast(Settings(num_blocks=77), source, config, device).limits.num_blocks == 77


def test_slots_for_adapters_are_planned_on_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ONE_BILLION))
    source = Source("folder", tmp_path, "one")
    config, device = load_model_config(source), find_device("h100", None)
    plain, adapted = (
        forecast(settings, source, config, device)
        for settings in (Settings(), Settings(lora_dir=tmp_path, max_loras=4, max_lora_rank=20))
    )
    each = 16 * (3 * 2048 + 2048 + 2 * 2048 + 8192 + 3072 + 2048 + 2 * 8192 + 2048)  # numbers of A and B for a rank
    assert adapted.budget.weights - plain.budget.weights == 4 * 32 * each * 2
    assert adapted.limits.num_adapter_slots == 4


def test_what_torch_computes_on_a_gpu_has_no_graphs() -> None:
    for family, options in (("deepseek2", {}), ("qwen3", {"kernels": "torch"})):
        found = forecast(Settings(**options), locate(None), CONFIGS[family], find_device("h100", None))
        assert found.budget.graphs == 0 < found.budget.activations
    with pytest.raises(InvalidConfig, match="kernels triton: they have none for latent attention .* --kernels torch"):
        forecast(Settings(kernels="triton"), locate(None), CONFIGS["deepseek2"], find_device("h100", None))
    assert forecast(Settings(), locate(None), CONFIGS["qwen3"], find_device("h100", None)).budget.graphs > 0


def test_a_device_here_is_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu(total=30 * GIB, taken=3 * GIB).install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA Fake")
    assert find_device("cuda", None) == DeviceSpec("NVIDIA Fake", "cuda", 30 * GIB, 3 * GIB, (9, 0))


def test_a_device_may_be_elsewhere() -> None:
    assert find_device("h200", None).total == pytest.approx(139.8 * GIB, rel=1e-3)
    assert find_device("h200", 100 * GIB).total == 100 * GIB
    assert find_device("cuda", 80 * 10**9).kind == "cuda"
    assert find_device("cpu", 5 * GIB).total == 5 * GIB
    with pytest.raises(InvalidConfig, match=r"--device b200, h200.*or give its size \(--device-memory 80GB\)"):
        find_device("cuda", None)


def test_impossible_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ONE_BILLION))
    source = Source("folder", tmp_path, "one")
    config = load_model_config(source)
    with pytest.raises(InvalidConfig, match="the weights need 2.3 GiB"):
        forecast(Settings(), source, config, find_device("cuda", 2 * GIB))
    with pytest.raises(InvalidConfig, match="the weights need 2.3 GiB and 1.0 are free"):
        forecast(Settings(dtype="bfloat16"), source, config, find_device("cpu", GIB))
    with pytest.raises(InvalidConfig, match="leaves 0.0 for keys and values"):
        forecast(Settings(), source, config, find_device("cuda", 3300 * MIB))
    with pytest.raises(InvalidConfig, match="fp8: a100 does not have it"):
        forecast(Settings(kv_dtype="fp8"), source, config, find_device("a100", None))
    with pytest.raises(InvalidConfig, match="max_model_len 9000 is more"):
        forecast(Settings(max_model_len=9000), source, config, find_device("a100", None))


@pytest.mark.parametrize("name", NAMES)
def test_every_device_has_room_for_a_small_model(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ONE_BILLION))
    source = Source("folder", tmp_path, "one")
    assert forecast(Settings(), source, load_model_config(source), find_device(name, None)).budget.free > 0
