"""vLLM's names for options."""

import pytest

from chairlift.config.options.resolve import resolve
from chairlift.core.errors import InvalidConfig
from chairlift.local.keywords import EQUAL, WITHOUT_EFFECT, own_options


def test_names_with_an_equal_meaning_are_taken() -> None:
    given = {
        "model": "m", "tensor_parallel_size": 2, "gpu_memory_utilization": 0.5, "max_num_seqs": 8,
        "max_num_batched_tokens": 64, "enable_prefix_caching": False, "kv_cache_dtype": "fp8_e4m3",
        "scheduling_policy": "fcfs", "dtype": "half", "max_model_len": 100,
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


@pytest.mark.parametrize("name", sorted({*EQUAL.values()}))
def test_every_name_of_ours_is_an_option(name: str) -> None:
    assert resolve({name: None}) == resolve({})


def test_what_changes_only_vllm_s_speed_is_taken_and_does_nothing() -> None:
    assert own_options(dict.fromkeys(WITHOUT_EFFECT, True)) == {}


def test_what_is_none_or_asks_for_nothing_is_as_not_given() -> None:
    given = {"tokenizer_mode": "auto", "pipeline_parallel_size": 1, "revision": None, "hf_overrides": {}, "model": "m"}
    more = {
        "tokenizer": "m",
        "runner": "pooling",
        "convert": "none",
        "load_format": "safetensors",
        "quantization": None,
    }
    assert own_options({**given, **more}) == {"model": "m"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size: 2 is not supported; use tensor_parallel_size"),
        ({"revision": "v2"}, "revision: 'v2' is not supported; download that revision, and give its folder as model"),
        ({"enable_lora": True}, "enable_lora: True is not supported; name the adapters: lora="),
        ({"max_num_seqs": 4, "max_running": 8}, "max_running: is max_running, which is given too"),
        ({"runner": "generate", "task": "embed"}, "task: is task, which is given too"),
    ],
)
def test_others_are_refused_with_the_way_out(given: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        own_options(given)
    assert str(caught.value).startswith(told)


def test_adapters_that_are_named_need_no_switch() -> None:
    assert own_options({"enable_lora": True, "lora_dir": "adapters"}) == {"lora_dir": "adapters"}


def test_old_names_of_tasks_are_known() -> None:
    assert own_options({"task": "score"}) == {"task": "rerank"}
    assert own_options({"convert": "embed"}) == {"task": "embed"}
