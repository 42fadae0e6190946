"""vLLM's names for what an `LLM` is made with, as our options.

Always: a name with an equal meaning is taken; one that changes only how fast vLLM is, is taken and does nothing; any
other is refused with what to do instead. Names that vLLM has not are left as they are.
"""

from collections.abc import Mapping
from typing import Any

from chairlift.core.errors import InvalidConfig

EQUAL = {
    "tensor_parallel_size": "tensor_parallel",
    "gpu_memory_utilization": "memory",
    "max_num_seqs": "max_running",
    "max_num_batched_tokens": "max_step_tokens",
    "enable_prefix_caching": "prefix_cache",
    "num_gpu_blocks_override": "num_blocks",
    "kv_cache_memory_bytes": "kv_memory",
    "kv_cache_dtype": "kv_dtype",
    "quantization": "quantize",
    "scheduling_policy": "policy",
    "runner": "task",
    "convert": "task",
}
# Values of ours for values of vLLM's, by vLLM's name of the option; None: as without it.
_VALUES: dict[str, dict[Any, Any]] = {
    "dtype": {"half": "float16", "float": "float32"},
    "kv_cache_dtype": {"fp8_e4m3": "fp8"},
    "quantization": {"gguf": None},
    "load_format": {"safetensors": None, "hf": None, "gguf": None},
    "runner": {"auto": None, "pooling": None},  # by the model's files
    "convert": {"auto": None, "none": None},
    "task": {"embedding": "embed", "score": "rerank"},
}
WITHOUT_EFFECT = frozenset((
    "async_scheduling", "compilation_config", "disable_cascade_attn", "disable_custom_all_reduce",
    "disable_log_requests", "disable_log_stats", "enable_chunked_prefill", "enforce_eager",
    "long_prefill_token_threshold", "max_num_partial_prefills",
    "max_parallel_loading_workers", "max_seq_len_to_capture", "optimization_level",
    "swap_space", "trust_remote_code", "use_tqdm_on_load",
))  # fmt: skip
# The values that ask for nothing, and what to do instead of giving another.
_NEUTRAL: dict[str, tuple[tuple[Any, ...], str]] = {
    "tokenizer_mode": (("auto", "hf"), "the tokenizer is read from the model's files; leave it out"),
    "skip_tokenizer_init": ((False,), "use SamplingParams(detokenize=False) for tokens alone"),
    "generation_config": (("auto",), "give SamplingParams of your own"),
    "override_generation_config": (({},), "give SamplingParams of your own"),
    "revision": ((), "download that revision, and give its folder as model"),
    "tokenizer_revision": ((), "download that revision, and give its folder as tokenizer"),
    "code_revision": ((), "no code of a model is run; leave it out"),
    "hf_token": ((), "set HF_TOKEN in the environment"),
    "download_dir": ((), "set HF_HOME in the environment"),
    "hf_overrides": (({},), "change config.json in a copy of the model's folder"),
    "pipeline_parallel_size": ((1,), "use tensor_parallel_size"),
    "data_parallel_size": ((1,), "use chairlift serve --replicas N"),
    "distributed_executor_backend": (("mp", "uni"), "leave it out, or use chairlift serve --cluster"),
    "cpu_offload_gb": ((0,), "use a quantised model, or tensor_parallel_size"),
    "enable_lora": ((False,), 'name the adapters: lora={"sql": "adapters/sql"}, or lora_dir="adapters"'),
    "speculative_config": (({},), "nothing is drafted; leave it out"),
    "pooler_config": ((), "pooling is read from the model's files"),
    "limit_mm_per_prompt": (({},), "prompts are text; leave it out"),
    "mm_processor_kwargs": (({},), "prompts are text; leave it out"),
    "logits_processors": (([],), "use logit_bias or structured_outputs in SamplingParams"),
}  # fmt: skip


def own_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same by our names. What is None was not given."""
    found: dict[str, Any] = {}
    has_adapters = given.get("lora") is not None or given.get("lora_dir") is not None
    for name, value in given.items():
        if value is None or name in WITHOUT_EFFECT or (name == "enable_lora" and has_adapters):
            continue
        if name in _NEUTRAL:
            neutral, way_out = _NEUTRAL[name]
            if value not in neutral:
                raise InvalidConfig(f"{name}: {value!r} is not supported; {way_out}")
            continue
        if name == "tokenizer" and value == given.get("model"):  # its own
            continue
        _add(found, name, value)
    return found


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    values = _VALUES.get(name, {})
    own = values.get(value, value) if isinstance(value, str) else value
    if own is None:
        return
    option = EQUAL.get(name, name)
    if option in found:
        raise InvalidConfig(f"{name}: is {option}, which is given too; give one of them")
    found[option] = own
