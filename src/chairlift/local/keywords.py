"""Keywords of vLLM's `LLM` that are no option of its server, or whose value may ask for nothing.

Its other names are those of its server's options, which `config/options/foreign` knows: an equal one of ours, one that
is ignored with a warning, or one that is refused with what to use instead.
"""

from collections.abc import Mapping
from typing import Any

from chairlift.core.errors import InvalidConfig

# Values of ours for values of vLLM's; None: as not given.
_VALUES: dict[str, dict[Any, Any]] = {
    "dtype": {"half": "float16", "float": "float32"},
    "quantization": {"gguf": None},
    "load_format": {"safetensors": None, "hf": None, "gguf": None},
    "task": {"embedding": "embed", "score": "rerank"},
    "runner": {"auto": None, "pooling": None},  # by the model's files
    "convert": {"auto": None, "none": None},
    "generation_config": {"auto": None},
    "tokenizer_mode": {"auto": None},
    "skip_tokenizer_init": {False: None},
    "pipeline_parallel_size": {1: None},
    "cpu_offload_gb": {0: None},
    "swap_space": {0: None, 4: None},  # its default
    "enable_lora": {True: None, False: None},  # `LocalModel` sees to it
}
_TASKS = ("runner", "convert")  # where they say anything
_OF_PARSERS = ("option_names",)  # what a script's parser knows beside the options


def own_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None, or asks for nothing."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in _OF_PARSERS or (name == "tokenizer" and value == given.get("model")):
            continue
        is_plain = isinstance(value, str | int | float)
        own = _VALUES.get(name, {}).get(value, value) if is_plain else value or None
        if own is None:
            continue
        option = "task" if name in _TASKS else name
        if option in found:
            raise InvalidConfig(f"{name}: runner, convert and task say the same; give one of them")
        found[option] = own
    return found
