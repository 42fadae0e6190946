"""vLLM's keywords of an `LLM`."""

import pytest

from chairlift.config.options.resolve import resolve
from chairlift.core.errors import InvalidConfig
from chairlift.local.keywords import own_options


def test_names_with_an_equal_meaning_are_taken() -> None:
    given = {
        "model": "m", "tensor_parallel_size": 2, "gpu_memory_utilization": 0.5, "max_num_seqs": 8,
        "max_num_batched_tokens": 64, "enable_prefix_caching": False, "kv_cache_dtype": "fp8_e4m3",
        "scheduling_policy": "fcfs", "dtype": "half", "max_model_len": 100, "seed": 3, "convert": "embed",
    }  # fmt: skip
    settings = resolve(own_options(given))
    assert (settings.tensor_parallel, settings.memory, settings.max_running, settings.max_step_tokens) == (
        2,
        0.5,
        8,
        64,
    )
    assert (settings.prefix_cache, settings.kv_dtype, settings.policy) == (False, "fp8", "fcfs")
    assert (settings.model, settings.dtype, settings.max_model_len) == ("m", "float16", 100)
    assert (settings.seed, settings.task) == (3, "embed")
    assert settings.warnings == ()


def test_what_changes_only_vllm_s_speed_is_ignored_with_a_word() -> None:
    settings = resolve(own_options({"enforce_eager": True, "disable_custom_all_reduce": True}))
    assert [warning.split(":")[0] for warning in settings.warnings] == [
        "--enforce-eager is ignored", "--disable-custom-all-reduce is ignored",
    ]  # fmt: skip


def test_what_is_none_or_asks_for_nothing_is_as_not_given() -> None:
    given = {"tokenizer_mode": "auto", "pipeline_parallel_size": 1, "revision": None, "hf_overrides": {}, "model": "m"}
    more = {
        "tokenizer": "m",
        "runner": "pooling",
        "convert": "none",
        "load_format": "safetensors",
        "quantization": None,
    }
    rest = {"swap_space": 4, "cpu_offload_gb": 0, "skip_tokenizer_init": False, "generation_config": "auto"}
    assert own_options({**given, **more, **rest}) == {"model": "m"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size: use --tensor-parallel"),
        ({"hf_overrides": {"a": 1}}, "--hf-overrides: edit the model's config.json"),
        ({"skip_tokenizer_init": True}, "--skip-tokenizer-init: the tokenizer is always loaded"),
        ({"max_num_seqs": 4, "max_running": 8}, "--max-num-seqs is --max-running here: give one of them"),
        ({"runner": "generate", "task": "embed"}, "task: runner, convert and task say the same; give one"),
        ({"max_num_sequences": 4}, "max_num_sequences: unknown option"),
    ],
)
def test_others_are_refused_with_the_way_out(given: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        resolve(own_options(given))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("is_on", [True, False])
def test_adapters_are_switched_on_without_a_word(is_on: bool) -> None:
    assert own_options({"enable_lora": is_on}) == {}


def test_old_names_of_tasks_are_known() -> None:
    assert own_options({"task": "score"}) == {"task": "rerank"}
