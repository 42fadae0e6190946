"""An llm-serving YAML file, translated to options.

Always: a file that started llm-serving starts a server here. A key becomes what it did there, not what its name says:
`prefill_batch_size` did nothing while `page_attention` was on, `pa_config` nothing while it was off. What has no effect
or is misspelt is named in warnings. Static batching becomes the prefill rule `static`, FastServe the policy `mlfq`.
Weights are those that its model file names. Whether files that it names exist, and what it says of tokens, is judged
when the model is known (`models/source.py`, `text/agreed.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.config.fields import shown
from chairlift.config.mindformers import named_checkpoint
from chairlift.config.options.values import Parser, boolean, did_you_mean, number, one_of, text, whole
from chairlift.config.settings import LlmServing
from chairlift.core.errors import InvalidConfig

# The keys of each section, whether they become something here or not; any other is a mistake.
SECTIONS = {
    "model_path": ("prefill_model", "decode_model", "argmax_model", "topk_model", "prefill_ini", "decode_ini",
                   "post_model_ini"),
    "model_config": ("model_name", "max_generate_length", "end_token", "seq_length", "seq_type", "vocab_size",
                     "prefill_batch_size", "decode_batch_size", "zactivate_len", "model_type", "batch_waiting_time",
                     "decode_batch_waiting_time", "batching_strategy", "current_index", "page_attention",
                     "model_dtype", "pad_token_id", "backend", "model_cfg_path", "fastserve"),
    "serving_config": ("agent_ports", "agent_ip", "start_device_id", "server_ip", "server_port",
                       "enable_host_post_sampling", "prefill_batch_waiting_time", "decode_batch_waiting_time"),
    "pa_config": ("num_blocks", "block_size", "decode_seq_length"),
    "fa_config": ("time_slice", "rate", "starve_waiting_time", "use_predictor", "predictor_ckpt_path",
                  "prompt_weight", "decode_weight", "device_target", "device_id"),
    "tokenizer": ("type", "vocab_file"),
    "basic_inputs": ("type",),
    "extra_inputs": ("type", "max_length"),
    "warmup_inputs": ("type",),
}  # fmt: skip
# Keys without which llm-serving did not start, and which are used here.
_REQUIRED = {
    "model_config": ("model_name", "end_token", "decode_batch_size"),
    "serving_config": ("server_port",),
    "pa_config": ("num_blocks", "block_size"),
    "tokenizer": ("vocab_file",),
}
# Parameters of `mlfq` for FastServe's levels, and its defaults.
_FASTSERVE = {"fa_config.rate": ("rate", 1.5), "fa_config.starve_waiting_time": ("starve", 10.0)}
_TEMPLATES = {
    # Behind the <s> that every prompt begins with: two, as there.
    "internlm_7b": "<s><|User|>:{}<eoh>\n<|Bot|>:",
    "baichuan2pa": "<reserved_106>{}<reserved_107>",
}


@dataclass(frozen=True, slots=True)
class Translation:
    values: Mapping[str, Any]  # by option name
    compat: LlmServing
    warnings: tuple[str, ...]


def is_llm_serving(document: Mapping[str, Any]) -> bool:
    has_map = any(isinstance(document.get(section), dict) for section in SECTIONS)
    return has_map or "model_config" in document or "serving_config" in document


def translate(document: Mapping[str, Any], path: Path) -> Translation:
    file = _File(path, document)
    rules = file.rules()
    model_cfg = file.path("model_config.model_cfg_path")
    checkpoint = None if model_cfg is None or not model_cfg.is_file() else named_checkpoint(model_cfg)
    seq_length = file.last("model_config.seq_length", whole(2))
    limits = [seq_length, file.get("model_config.max_generate_length", whole(2))]
    name = file.get("model_config.model_name", text)
    values = {
        "host": file.get("serving_config.server_ip", text),
        "port": file.get("serving_config.server_port", whole(0, 65535)),
        "max_running": file.last("model_config.decode_batch_size", whole(1, 65536)),
        "model": None if checkpoint is None else str(checkpoint),
        **rules,
    }
    if file.is_paged:
        blocks = file.get("pa_config.num_blocks", whole(2))
        limits.append(file.get("pa_config.decode_seq_length", whole(2)))
        values["block_size"] = file.get("pa_config.block_size", whole(1, 65536))
        values["num_blocks"] = None if blocks is None else blocks - 1  # block 0 was reserved and held no tokens
    else:
        values["max_step_prompts"] = next(iter(file.every("model_config.prefill_batch_size", whole(1))), None)
    values["max_model_len"] = min((limit for limit in limits if limit is not None), default=None)
    compat = LlmServing(
        file=path,
        model_name=name,
        model_dtype=file.get("model_config.model_dtype", text),
        seq_length=seq_length,
        end_token=file.get("model_config.end_token", whole(0)),
        vocab_file=file.path("tokenizer.vocab_file"),
        model_cfg=model_cfg,
        prompt_template=_TEMPLATES.get(name or "", "{}"),
    )
    given = {key: value for key, value in values.items() if value is not None}
    return Translation(
        given, compat, (*file.unknown(), *file.devices(), *file.ignored(), *file.unread(), *file.lacking())
    )


def _batching(value: object) -> Any:
    if value == "fastserve":
        raise ValueError("must be continuous or static; FastServe is chosen with model_config.fastserve: True")
    return one_of("continuous", "static")(value)


class _File:
    """The sections of one file, read by dotted key; an absent section, an absent key and null are the same."""

    def __init__(self, path: Path, document: Mapping[str, Any]) -> None:
        self._path = path
        self._read: set[str] = set()
        self._values: dict[str, Any] = {}
        self._sections = [str(section) for section in document]
        self._unknown: list[str] = []
        for section, content in document.items():
            if section not in SECTIONS:
                self._unknown.append(f"{section}{did_you_mean(str(section), SECTIONS)}")
            elif content is not None:
                self._add(section, content)

    def _add(self, section: str, content: object) -> None:
        if not isinstance(content, dict):
            raise InvalidConfig(f"{self._path}: {section} must be a map")
        for key, value in content.items():
            if key in SECTIONS[section]:
                self._values[f"{section}.{key}"] = value
            else:
                self._unknown.append(f"{section}.{key}{did_you_mean(str(key), SECTIONS[section])}")

    def get(self, key: str, parse: Parser) -> Any:
        self._read.add(key)
        value = self._values.get(key)
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise InvalidConfig(f"{self._path}: {key} {error}, got {shown(value)}") from error

    def every(self, key: str, parse: Parser) -> list[Any]:
        """The values of a list; one value alone counts as a list of one."""
        values = self._values.get(key)
        if isinstance(values, list):
            return list(self.get(key, lambda _: [parse(value) for value in values]))
        value = self.get(key, parse)
        return [] if value is None else [value]

    def last(self, key: str, parse: Parser) -> Any:
        """The largest tier."""
        return next(reversed(self.every(key, parse)), None)

    @property
    def is_paged(self) -> bool:
        return bool(self.get("model_config.page_attention", boolean)) or self._is_fastserve()

    def rules(self) -> dict[str, str]:
        """The scheduling rules that the file sets."""
        rules: dict[str, str] = {}
        if self.get("model_config.batching_strategy", _batching) == "static":
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

    def unknown(self) -> list[str]:
        """A warning that names sections and keys that llm-serving does not have."""
        said = f"{self._path}: ignored, since llm-serving has no such keys: {', '.join(self._unknown)}"
        return [said] if self._unknown else []

    def devices(self) -> list[str]:
        """An agent each of several devices, which shared the model."""
        count = len(self.every("serving_config.agent_ports", whole(0, 65535)))
        said = f"{self._path}: serving_config.agent_ports names {count} devices: --tensor-parallel {count} uses as many"
        return [said] if count > 1 else []

    def ignored(self) -> list[str]:
        """A warning that names the keys that llm-serving did not use with paging as it is set."""
        state, section, why = (
            ("on", "model_config.prefill_batch_size", "a step takes as many prompts as fit, or --max-step-prompts")
            if self.is_paged
            else ("off", "pa_config.", "memory is sized by --kv-memory or --num-blocks")
        )
        keys = [key for key in self._values if key.startswith(section)]
        self._read.update(keys)
        said = f"{self._path}: ignored, as llm-serving did with page_attention {state}: {', '.join(keys)} ({why})"
        return [said] if keys else []

    def lacking(self) -> list[str]:
        """A warning that names the keys that halves of sections lack."""
        sections = [name for name in self._sections if name != "pa_config" or self.is_paged]
        keys = [f"{section}.{key}" for section in sections for key in _REQUIRED.get(section, ())]
        lacking = [key for key in keys if self._values.get(key) in (None, [])]
        said = f"{self._path}: defaults are used for keys that llm-serving requires: {', '.join(lacking)}"
        return [said] if lacking else []

    def unread(self) -> list[str]:
        """One warning that names every key that has not been read; none if all have."""
        dead = [key for key in self._values if key not in self._read]
        if self._is_fastserve() and "fa_config.time_slice" in dead:
            dead[dead.index("fa_config.time_slice")] = "fa_config.time_slice (levels are counted in tokens)"
        if self.get("model_config.page_attention", boolean) is False:
            dead.append("model_config.page_attention (always on)")
        return [f"{self._path}: these keys have no effect here: {', '.join(dead)}"] if dead else []

    def path(self, key: str) -> Path | None:
        """A file that it names, from the YAML's folder too; whether it exists is judged where it is used."""
        name = self.get(key, text)
        if name is None:
            return None
        given, beside = Path(name).expanduser(), self._path.parent / name
        return beside if not given.is_file() and beside.is_file() else given
