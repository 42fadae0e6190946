"""An llm-serving YAML file, translated to options.

Always: the file starts a server if the system it was written for could be started with it. Keys that mean nothing here
are named in one warning. Static batching becomes the prefill rule `static`, FastServe the policy `mlfq`. Does not load
anything; weights are not named by such a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.config.settings import LlmServing
from chairlift.config.values import Parser, boolean, number, one_of, text, whole
from chairlift.core.errors import InvalidConfig

_SECTIONS = (
    "model_path",
    "model_config",
    "serving_config",
    "pa_config",
    "fa_config",
    "tokenizer",
    "basic_inputs",
    "extra_inputs",
    "warmup_inputs",
)
_USED = frozenset(
    {
        "model_config.model_name",
        "model_config.max_generate_length",
        "model_config.end_token",
        "model_config.seq_length",
        "model_config.prefill_batch_size",
        "model_config.decode_batch_size",
        "model_config.batching_strategy",
        "model_config.page_attention",
        "model_config.model_dtype",
        "model_config.fastserve",
        "serving_config.server_ip",
        "serving_config.server_port",
        "pa_config.num_blocks",
        "pa_config.block_size",
        "pa_config.decode_seq_length",
        "tokenizer.vocab_file",
    }
)
# FastServe's levels in our words, and its defaults.
_FASTSERVE = {"fa_config.rate": ("rate", 1.5), "fa_config.starve_waiting_time": ("starve", 10.0)}
_TEMPLATES = {
    "internlm_7b": "<s><s><|User|>:{}<eoh>\n<|Bot|>:",
    "baichuan2pa": "<reserved_106>{}<reserved_107>",
}


@dataclass(frozen=True, slots=True)
class Translation:
    values: Mapping[str, Any]  # by option name
    compat: LlmServing
    warnings: tuple[str, ...]


def is_llm_serving(document: Mapping[str, Any]) -> bool:
    return "model_config" in document or "serving_config" in document


def translate(document: Mapping[str, Any], path: Path) -> Translation:
    file = _File(path, document)
    rules = file.rules()
    warnings = list(file.dead_keys())
    tokenizer = file.tokenizer(warnings)
    seq_length = file.last("model_config.seq_length", whole(2))
    limits = (
        seq_length,
        file.get("model_config.max_generate_length", whole(2)),
        file.get("pa_config.decode_seq_length", whole(2)),
    )
    name = file.get("model_config.model_name", text)
    blocks = file.get("pa_config.num_blocks", whole(2))
    values = {
        "host": file.get("serving_config.server_ip", text),
        "port": file.get("serving_config.server_port", whole(0, 65535)),
        "max_running": file.last("model_config.decode_batch_size", whole(1, 65536)),
        "max_step_prompts": file.last("model_config.prefill_batch_size", whole(1)),
        "max_model_len": min((limit for limit in limits if limit is not None), default=None),
        "block_size": file.get("pa_config.block_size", whole(1, 65536)),
        "num_blocks": None if blocks is None else blocks - 1,  # block 0 was reserved and held no tokens
        "tokenizer": tokenizer,
        **rules,
    }
    compat = LlmServing(
        model_name=name,
        model_dtype=file.get("model_config.model_dtype", text),
        seq_length=seq_length,
        end_token=file.get("model_config.end_token", whole(0)),
        prompt_template=_TEMPLATES.get(name or "", "{}"),
    )
    return Translation({key: value for key, value in values.items() if value is not None}, compat, tuple(warnings))


class _File:
    """The sections of one file, read by dotted key; an absent section, an absent key and null are the same."""

    def __init__(self, path: Path, document: Mapping[str, Any]) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        for section, content in document.items():
            if isinstance(content, dict):
                self._values |= {f"{section}.{key}": value for key, value in content.items()}
            elif section in _SECTIONS and content is not None:
                raise InvalidConfig(f"{path}: {section} must be a map")
            elif section not in _SECTIONS:
                self._values[str(section)] = content

    def get(self, key: str, parse: Parser) -> Any:
        value = self._values.get(key)
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise InvalidConfig(f"{self._path}: {key} {error}, got {value!r}") from error

    def last(self, key: str, parse: Parser) -> Any:
        """The last of a list, which is the largest tier; one value alone counts as a list of one."""
        values = self._values.get(key)
        if not isinstance(values, list):
            return self.get(key, parse)
        if not values:
            return None
        try:
            return [parse(value) for value in values][-1]
        except ValueError as error:
            raise InvalidConfig(f"{self._path}: {key} {error}, got {values!r}") from error

    def rules(self) -> dict[str, str]:
        """The scheduling rules that the file asks for; those it says nothing of stay as they are."""
        rules: dict[str, str] = {}
        if self.get("model_config.batching_strategy", one_of("continuous", "static")) == "static":
            rules["prefill"] = "static"
        if self._is_fastserve():
            values = {key: self.get(key, number) for key in _FASTSERVE}
            given = [
                f"{name}={default if values[key] is None else values[key]}"
                for key, (name, default) in _FASTSERVE.items()
            ]
            rules["policy"] = f"mlfq:{','.join(given)}"
        return rules

    def _is_fastserve(self) -> bool:
        return bool(self.get("model_config.fastserve", boolean))

    def dead_keys(self) -> list[str]:
        """One warning that names every key without effect; an empty list when all have one."""
        used = _USED | set(_FASTSERVE) if self._is_fastserve() else _USED
        dead = [key for key in self._values if key not in used]
        if self._is_fastserve() and "fa_config.time_slice" in dead:
            dead[dead.index("fa_config.time_slice")] = "fa_config.time_slice (levels are counted in tokens)"
        if self.get("model_config.page_attention", boolean) is False:
            dead.append("model_config.page_attention (always on)")
        return [f"{self._path}: these keys have no effect here: {', '.join(dead)}"] if dead else []

    def tokenizer(self, warnings: list[str]) -> Path | None:
        """The tokenizer file that was named, if it is there; a relative path counts from the YAML's folder too."""
        name = self.get("tokenizer.vocab_file", text)
        if name is None:
            return None
        for candidate in (Path(name).expanduser(), self._path.parent / name):
            if candidate.is_file():
                return candidate
        warnings.append(f"{self._path}: tokenizer.vocab_file {name} does not exist: using the model's own tokenizer")
        return None
