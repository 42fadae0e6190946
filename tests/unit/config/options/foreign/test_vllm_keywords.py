"""vLLM's keywords of an `LLM`."""

import pytest

from chairlift.config.options.foreign.table import BY_NAME
from chairlift.config.options.foreign.vllm_keywords import own_options
from chairlift.config.options.resolve import OPTIONS, resolve
from chairlift.core.errors import InvalidConfig


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
        "runner": "auto",
        "convert": "none",
        "quantization": None,
    }
    rest = {"swap_space": 4, "cpu_offload_gb": 0, "skip_tokenizer_init": False, "generation_config": "auto"}
    off = {
        "trust_remote_code": False,
        "enable_expert_parallel": False,
        "hf_token": True,
        "nnodes": 1,
    }
    assert own_options({**given, **more, **rest, **off}) == {"model": "m"}


def test_what_is_always_on_cannot_be_switched_off_in_silence() -> None:
    (warning,) = resolve(own_options({"enable_chunked_prefill": False})).warnings
    assert warning.startswith("--enable-chunked-prefill is ignored: prompts are always computed in chunks")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size: use --tensor-parallel"),
        ({"hf_overrides": {"a": 1}}, "--hf-overrides: edit the model's config.json"),
        ({"skip_tokenizer_init": True}, "--skip-tokenizer-init: the tokenizer is always loaded"),
        ({"max_num_seqs": 4, "max_running": 8}, "--max-num-seqs is --max-running here: give one of them"),
        ({"runner": "generate", "task": "embed"}, "task: runner, convert and task say generate and embed; give one"),
        (
            {"runner": "pooling", "task": "generate"},
            "task: runner, convert and task say pooling and generate; give one",
        ),
        ({"convert": "classify"}, "--task must be one of auto, generate, pooling, embed, rerank, got 'classify'"),
        ({"spec_method": "ngram"}, "--spec-method: there is no speculative decoding; leave it out"),
        ({"attention_config": {"backend": "x"}}, "--attention-config: use --attention triton or flashinfer"),
        ({"offload_group_size": 2}, "--offload-group-size: weights stay on the device; use --quantize"),
        ({"enable_sleep_mode": True}, "--enable-sleep-mode: close the LLM"),
        ({"quantization": "x"}, "--quantization must be one of auto, none, stored, int8, int4, fp8, got 'x'"),
        ({"prefill_schedule_interval": 1}, "prefill_schedule_interval: unknown option; `chairlift serve --help` has"),
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


def test_pooling_is_made_more_exact_by_another_word() -> None:
    assert own_options({"runner": "pooling"}) == {"task": "pooling"}
    assert own_options({"runner": "pooling", "convert": "embed"}) == {"task": "embed"}
    assert own_options({"task": "score", "runner": "pooling"}) == {"task": "rerank"}
    assert own_options({"task": "embed", "convert": "embed", "runner": "auto"}) == {"task": "embed"}


def test_vllm_s_own_keywords_are_all_known() -> None:
    """Those that its constructor spells out."""
    names = (
        "model", "runner", "convert", "tokenizer", "tokenizer_mode", "skip_tokenizer_init", "trust_remote_code",
        "allowed_local_media_path", "allowed_media_domains", "tensor_parallel_size", "dtype", "quantization",
        "revision", "tokenizer_revision", "chat_template", "seed", "gpu_memory_utilization", "cpu_offload_gb",
        "offload_group_size", "offload_num_in_group", "offload_prefetch_step", "offload_params", "enforce_eager",
        "enable_return_routed_experts", "return_sampling_mask", "disable_custom_all_reduce", "hf_token", "hf_overrides",
        "mm_processor_kwargs", "pooler_config", "structured_outputs_config", "profiler_config", "attention_config",
        "kv_cache_memory_bytes", "compilation_config", "quantization_config", "logits_processors", "spec_method",
        "spec_model", "spec_tokens", "enable_lora",
    )  # fmt: skip
    assert set(names) <= BY_NAME.keys() | {option.name for option in OPTIONS}


def test_old_names_of_tasks_are_known() -> None:
    assert own_options({"task": "score"}) == {"task": "rerank"}
