"""What configures vLLM beside its server's options: keywords of its `LLM`, whose value may ask for nothing, attributes
that scripts read, and variables of the environment.

Its other names are those of its server's options (`vllm.py`): an equal one of ours, one that is ignored with a warning,
or one that is refused with what to use instead.
"""

from collections.abc import Collection, Mapping
from typing import Any

from chairlift.config.model_words import POOLING
from chairlift.config.options.foreign.table import BY_NAME
from chairlift.core.errors import InvalidConfig

# Values of ours for values of vLLM's.
_VALUES: dict[str, dict[Any, Any]] = {
    "task": {"embedding": "embed", "score": "rerank"},
}
# Values that ask for nothing, most of them vLLM's defaults.
_NOTHING: dict[str, tuple[Any, ...]] = {
    "model_impl": ("vllm",),
    "runner": ("auto",),
    "convert": ("auto", "none"),
    "generation_config": ("auto",),
    "tokenizer_mode": ("auto",),
    "config_format": ("auto",),
    "hf_token": (True,),  # the one that is stored is always used
    "pipeline_parallel_size": (1,),
    "prefill_context_parallel_size": (1,),
    "decode_context_parallel_size": (1,),
    "nnodes": (1,),
    "cpu_offload_gb": (0,),
    "offload_backend": ("auto",),
    "offload_group_size": (0,),
    "offload_num_in_group": (1,),
    "offload_prefetch_step": (1,),
    "swap_space": (0, 4),
    "logprobs_mode": ("raw_logprobs",),
    "lora_dtype": ("auto",),
    "worker_cls": ("auto",),
    "enable_lora": (True, False),  # `LocalModel` sees to it
}
# Attributes of vLLM's `LLM`, `AsyncLLM` and `LLMEngine` that are not here.
_ATTRIBUTES = {
    "llm_engine": "an LLM is its own engine; `llm.stats()`, `llm.limits` and `llm.get_tokenizer()` tell of it",
    "engine": "an LLM is its own engine; `llm.stats()`, `llm.limits` and `llm.get_tokenizer()` tell of it",
    "model_config": "use `llm.limits`, `llm.sampling_defaults` and `llm.get_tokenizer()`",
    "collective_rpc": "code of your own is not run beside the engine",
    "apply_model": "code of your own is not run beside the engine",
    "sleep": "close the LLM; then its memory is free, and another may be made",
    "wake_up": "make another LLM",
    "get_metrics": "use `llm.stats()`, and `metrics` of outputs",
    "encode": "use `embed`, or `score`",
    "classify": "models with classes are not served",
    "reward": "reward models are not served",
    "start_profile": 'use LLM(trace="FILE"), and `chairlift trace`',
    "stop_profile": 'use LLM(trace="FILE"), and `chairlift trace`',
    "preprocess_chat": "use `chat_prompt`",
    "set_tokenizer": "use LLM(tokenizer=PATH)",
    "get_world_size": "use LLM(tensor_parallel=N)",
    "enqueue": "use LLMEngine.add_request, or AsyncLLM",
    "is_sleeping": "an LLM never sleeps; close it",
    "update_weights": "weights do not change; make another LLM",
    "init_weight_transfer_engine": "weights do not change; make another LLM",
}
_PREFIX = "VLLM_"
_KEY = "VLLM_API_KEY"
_MAX_SHOWN = 8
_TASKS = ("runner", "convert", "task")
_ON = ("enable_chunked_prefill", "async_scheduling")  # where False asks for something
_OF_PARSERS = ("option_names",)  # what a script's parser knows beside the options


def own_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None, or asks for nothing."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if not _asks_for_nothing(name, value, given):
            found[name] = _VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value
    tasks = [found.pop(name) for name in _TASKS if name in found]
    return found | ({"task": _task(tasks)} if tasks else {})


def no_attribute(owner: str, name: str) -> AttributeError:
    """With what to use instead of one of vLLM's."""
    advice = f": {_ATTRIBUTES[name]}" if name in _ATTRIBUTES else ""
    return AttributeError(f"{owner!r} object has no attribute {name!r}{advice}")


def _asks_for_nothing(name: str, value: Any, given: Mapping[str, Any]) -> bool:
    if value is None or name in _OF_PARSERS or (name == "tokenizer" and value == given.get("model")):
        return True
    if not isinstance(value, str | int | float):
        return not value
    foreign = BY_NAME.get(name)
    if value in (False, "") and foreign is not None and not foreign.option and name not in _ON:
        return True
    return value in _NOTHING.get(name, ())


def _task(said: list[Any]) -> Any:
    """The one that `runner`, `convert` and `task` say; pooling is made more exact by another."""
    exact = [task for task in dict.fromkeys(said) if task != POOLING]
    if len(exact) > 1 or (POOLING in said and "generate" in exact):
        told = " and ".join(map(str, dict.fromkeys(said)))
        raise InvalidConfig(f"task: runner, convert and task say {told}; give one of them")
    return exact[0] if exact else POOLING


def vllm_key(environment: Mapping[str, str], given: Collection[str]) -> dict[str, str]:
    """`given`: our options that have a value; keys among them win."""
    key = environment.get(_KEY, "")
    return {"api_key": key} if key and not _has_keys(given) else {}


def vllm_warnings(environment: Mapping[str, str], given: Collection[str]) -> list[str]:
    """Its key is read, for else a server that was closed would be open; the others are named."""
    names = sorted(name for name, value in environment.items() if name.startswith(_PREFIX) and value)
    unread = [name for name in names if name != _KEY or _has_keys(given)]
    if not unread:
        return []
    more = f" and {len(unread) - _MAX_SHOWN} more" if len(unread) > _MAX_SHOWN else ""
    return [f"{', '.join(unread[:_MAX_SHOWN])}{more}: not read here; docs/coming-from-vllm.md says what to use"]


def _has_keys(given: Collection[str]) -> bool:
    return "api_key" in given or "api_key_file" in given
