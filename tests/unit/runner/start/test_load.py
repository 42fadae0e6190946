from pathlib import Path

import psutil
import pytest
import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import BlockId
from chairlift.core.memory.pages import Group
from chairlift.core.plan import BlockCopy
from chairlift.models.source import Source, load_model_config
from chairlift.runner.kv_cache import kv_bytes_per_block
from chairlift.runner.machine import hardware
from chairlift.runner.start import choices
from chairlift.runner.start.load import load_runner
from fakes.gpu import MIB, FakeGpu
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, step


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return make_twin(tmp_path_factory.mktemp("twin"), "qwen3-qk-norm")


def load(twin: Twin, **changes: object):
    source = Source("folder", twin.folder, "twin")
    settings = Settings(**{"device": "cpu", "dtype": "float32", "kernels": "torch", "threads": 1, **changes})
    return load_runner(settings, source, load_model_config(source))


def test_a_loaded_model_answers_as_transformers_does(twin: Twin) -> None:
    loaded = load(twin)
    tokens = random_tokens(20)
    loaded.runner.submit(step([chunk(tokens, 0, 20, [1, 0], request(tokens))]))
    assert list(loaded.runner.collect().tokens) == [int(twin.reference_logits(tokens)[-1].argmax())]
    assert (loaded.device, loaded.dtype, loaded.kernels, loaded.threads) == ("cpu", "float32", "torch", 1)


def test_limits_come_from_the_model_and_the_settings(twin: Twin) -> None:
    limits = load(twin).limits
    assert (limits.vocab_size, limits.max_model_len, limits.block_size) == (97, 128, 16)
    # No more blocks than every running request at full length can use.
    assert limits.num_blocks == limits.max_running * 8
    limits = load(twin, max_model_len=50, max_running=700, block_size=8, num_blocks=11, max_step_prompts=2).limits
    assert (limits.max_model_len, limits.max_running, limits.block_size, limits.num_blocks) == (50, 700, 8, 11)
    assert limits.max_step_tokens >= 700 and limits.max_step_prompts == 2
    assert load(twin, max_step_tokens=9).limits.max_running == 9


def test_kv_memory_is_cut_into_blocks(twin: Twin) -> None:
    block_bytes = kv_bytes_per_block(twin.config, 16, torch.float32)
    assert load(twin, kv_memory=5 * block_bytes + 1).limits.num_blocks == 5


def test_a_pool_below_the_model_s_context_lowers_it_and_one_line_says_so(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    assert load(twin, num_blocks=3).limits.max_model_len == 48
    (record,) = caplog.records
    assert record.getMessage().startswith("max_model_len is 48 instead of 128: the KV cache holds no more; --kv-memory")
    with pytest.raises(InvalidConfig, match="max_model_len 100 is more than the 48 tokens"):
        load(twin, num_blocks=3, max_model_len=100)


def test_kv_memory_below_one_block_names_the_options(twin: Twin) -> None:
    with pytest.raises(InvalidConfig, match="--kv-memory"):
        load(twin, kv_memory=100)


def test_host_memory_is_cut_into_blocks_where_victims_are_swapped(twin: Twin) -> None:
    block_bytes = kv_bytes_per_block(twin.config, 16, torch.float32)
    assert load(twin).num_host_blocks == 0
    assert load(twin, preemption="swap", num_blocks=9).num_host_blocks == 9
    loaded = load(twin, preemption="swap", host_memory=5 * block_bytes + 1)
    assert loaded.num_host_blocks == 5
    assert (loaded.block_copy_s, loaded.step_times) == (0.0, ())
    with pytest.raises(InvalidConfig, match="host_memory .* does not hold one block"):
        load(twin, preemption="swap", host_memory=block_bytes - 1)


def test_on_mindspore_a_failure_names_it_and_our_own_kernels_are_not_missed(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such operation")

    monkeypatch.setattr(choices, "start_mindspore", lambda *_: "ascend")
    monkeypatch.setattr(choices, "pick_weight_format", lambda *_: None)
    monkeypatch.setattr(choices, "build_model", fail)
    monkeypatch.setattr(choices, "why_missing", lambda _: "were not built")
    with pytest.raises(InvalidConfig, match="on mindspore:ascend in float16: no such operation; use --device cpu"):
        load(twin, device="mindspore", dtype="auto", kernels="auto")
    assert not caplog.records


def test_a_loaded_model_moves_blocks_out_and_back(twin: Twin) -> None:
    loaded = load(twin, preemption="swap", num_blocks=8)
    tokens = random_tokens(20)
    asked = request(tokens)
    loaded.runner.submit(step([chunk(tokens[:19], 0, 19, [1, 0], asked, is_sampled=False)]))
    other = random_tokens(20, seed=1)
    out = (BlockCopy(BlockId(1), BlockId(3)), BlockCopy(BlockId(0), BlockId(2)))
    overwrite = step([chunk(other, 0, 20, [0, 1], request(other))])
    loaded.runner.submit(overwrite._replace(swap_outs=out))
    back = (BlockCopy(BlockId(3), BlockId(6)), BlockCopy(BlockId(2), BlockId(7)))
    loaded.runner.submit(step([chunk(tokens, 19, 1, [6, 7], asked)])._replace(swap_ins=back))
    results = [loaded.runner.collect() for _ in range(3)]
    assert list(results[2].tokens) == [int(twin.reference_logits(tokens)[-1].argmax())]


def test_the_cost_of_recovery_is_measured_for_auto_preemption(twin: Twin) -> None:
    loaded = load(twin, preemption="auto", num_blocks=64)
    assert loaded.num_host_blocks == 64
    assert 0 <= loaded.block_copy_s < 0.1
    assert [tokens for tokens, _ in loaded.step_times] == [1, 16, 64, 128]
    assert all(0 < seconds < 10 for _, seconds in loaded.step_times)


def test_a_context_beyond_the_models_is_refused(twin: Twin) -> None:
    with pytest.raises(InvalidConfig, match="max_model_len 129 is more than the model's context of 128"):
        load(twin, max_model_len=129)


def test_dummy_weights_need_only_a_configuration(twin: Twin, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((twin.folder / "config.json").read_text())
    bare = Twin(tmp_path, twin.reference, twin.config)
    assert load(bare, load_format="dummy").limits.vocab_size == 97
    with pytest.raises(InvalidConfig, match="safetensors"):
        load(bare)


def test_a_failed_allocation_is_one_line(twin: Twin) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(twin, num_blocks=1 << 45)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_cuda_without_a_device_is_refused(twin: Twin) -> None:
    with pytest.raises(InvalidConfig, match="--device cpu"):
        load(twin, device="cuda")


def test_weights_too_large_for_the_gpu_are_refused_before_anything_is_read(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeGpu(total=8 * MIB, taken=8 * MIB)
    gpu.install(monkeypatch)
    with pytest.raises(InvalidConfig, match=r"^the weights need 0.0 GiB .*; use --dtype bfloat16, .* --device cpu$"):
        load(twin, device="cuda")


def test_a_share_of_a_gpu_is_warned_of_on_a_cpu(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    load(twin, memory=0.5)
    assert "--memory 0.5 is a fraction of a GPU's memory and is ignored on a CPU; use --kv-memory SIZE" in caplog.text
    caplog.clear()
    assert load(twin).budget is None
    assert caplog.text == ""


def test_auto_dtype_is_bfloat16_only_in_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    for features, expected in (
        (("avx2", "avx512f"), torch.float32),
        (("avx2", "avx512_bf16"), torch.bfloat16),
        (("amx_bf16",), torch.bfloat16),
        ((), torch.float32),
    ):
        monkeypatch.setattr(hardware, "cpu_features", lambda features=features: features)
        assert hardware.resolve_dtype("auto", CPU, "float16") is expected
    assert hardware.resolve_dtype("float64", CPU, "float16") is torch.float64


def test_a_containers_limits_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    assert hardware.free_memory(CPU) <= psutil.virtual_memory().total
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("300000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    assert hardware.free_memory(CPU) == 800000
    (tmp_path / "memory.max").write_text("max\n")
    assert hardware.free_memory(CPU) > 1000000


def test_the_machine_is_described_in_words() -> None:
    facts = hardware.describe()
    assert facts["torch"] == torch.__version__ and "GiB" in facts["free memory"] and int(facts["cores"]) >= 1


def test_layers_with_windows_share_pages_in_groups(tmp_path: Path) -> None:
    """Of seven layers one sees all tokens; contexts no longer than the window need no groups."""
    twin = make_twin(tmp_path, "gemma3")
    source = Source("folder", tmp_path, "gemma3")
    loaded = load_runner(Settings(model=str(tmp_path), device="cpu", num_blocks=200), source, twin.config)
    assert loaded.limits.groups == (Group("window", 6, 9),)
    assert loaded.limits.max_model_len == twin.config.max_model_len
    with pytest.raises(InvalidConfig, match="num_blocks 6 hold no token: of this model one takes 7 blocks"):
        load_runner(Settings(model=str(tmp_path), device="cpu", num_blocks=6), source, twin.config)
    short = Settings(model=str(tmp_path), device="cpu", num_blocks=20, max_model_len=9)
    assert load_runner(short, source, twin.config).limits.groups == ()
