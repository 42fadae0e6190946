"""What adapter_config.json of peft says of the arithmetic: ranks and factors of each module.

Always: a key that changes the arithmetic and is not built is refused by name, and so is one that is not known and has a
value. Those that concern training alone are left unread. A pattern names modules, with choices and numbers in few
places: no expression of a file takes long.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import read_json

CONFIG_FILE = "adapter_config.json"
_MAX_BYTES = 2**20
_MAX_RANK = 65536
_MAX_PATTERNS = 4096
_PATTERN = re.compile(r"(?:[\w^$-]|\.\*?|\\\.|(?:\\d|\[[0-9-]+\])\+?|[(|)]){1,200}")
_MAX_CHOICES = 8  # of a pattern: `|`, `+` and `.*`, each of which may double what is tried
_MAX_WILD = 64  # patterns of a file with `.*`, which is tried at each sign of a name
# Values that ask for nothing.
_NEUTRAL: tuple[object, ...] = (None, False, "", [], {}, "none")
_REFUSED = {
    "use_dora": "DoRA is not supported",
    "modules_to_save": "whole matrices of an adapter are not supported",
    "bias": "biases of an adapter are not supported",
    "lora_bias": "biases of an adapter are not supported",
    "target_parameters": "adapters of parameters, such as experts, are not supported",
    "alora_invocation_tokens": "activated LoRA (aLoRA) is not supported",
    "layer_replication": "replicated layers are not supported",
    "trainable_token_indices": "trained embeddings are not supported",
    "fan_in_fan_out": "transposed matrices are not supported",
    "use_qalora": "QALoRA is not supported",
    "use_bdlora": "block-diagonal LoRA is not supported",
    "arrow_config": "Arrow is not supported",
    "monteclora_config": "MonteCLoRA is not supported",
    "kasa_config": "KaSA is not supported",
    "velora_config": "VeLoRA is not supported",
    "megatron_config": "Megatron's layers are not supported",
}
# Of training, or of what the tensors themselves show.
_UNREAD = frozenset((
    "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode", "task_type", "peft_type",
    "target_modules", "exclude_modules", "lora_dropout", "init_lora_weights", "layers_to_transform", "layers_pattern",
    "megatron_core", "loftq_config", "eva_config", "corda_config", "lora_ga_config", "qalora_group_size",
    "runtime_config", "ensure_weight_tying",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class PeftConfig:
    rank: int
    alpha: float
    ranks: Mapping[str, int]  # by pattern
    alphas: Mapping[str, float]
    uses_root: bool  # rsLoRA: alpha / sqrt(rank)

    def rank_of(self, module: str) -> int:
        return self.ranks.get(_pattern(self.ranks, module), self.rank)

    def factor_of(self, module: str) -> float:
        """Of the product of both matrices."""
        rank, alpha = self.rank_of(module), self.alphas.get(_pattern(self.alphas, module), self.alpha)
        return alpha / math.sqrt(rank) if self.uses_root else alpha / rank


def read_peft(folder: Path) -> PeftConfig:
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise InvalidConfig(f"{folder}: no {CONFIG_FILE} in this folder; an adapter is a folder that peft has saved")
    if path.stat().st_size > _MAX_BYTES:
        raise InvalidConfig(f"{path}: has {path.stat().st_size} bytes, the most is {_MAX_BYTES}")
    fields = Fields(str(path), read_json(path))
    if fields.get("peft_type", "LORA") != "LORA":
        raise fields.bad("peft_type", "must be LORA, the one kind that is supported")
    for key, why in _REFUSED.items():
        if fields.get(key) not in _NEUTRAL:
            raise InvalidConfig(f"{path}: {key}: {why}")
    found = PeftConfig(
        rank=fields.size("r", most=_MAX_RANK),
        alpha=fields.number("lora_alpha"),
        ranks={key: _rank(fields, key, value) for key, value in _patterns(fields, "rank_pattern").items()},
        alphas={key: _alpha(fields, key, value) for key, value in _patterns(fields, "alpha_pattern").items()},
        uses_root=fields.flag("use_rslora", False),
    )
    for key in fields.unread:
        if key not in _UNREAD and fields.values[key] not in _NEUTRAL:
            raise fields.bad(key, "is not understood and may change the arithmetic")
    return found


def _patterns(fields: Fields, key: str) -> dict[str, object]:
    found = fields.get(key) or {}
    if not isinstance(found, dict):
        raise fields.bad(key, "must map patterns of module names to numbers")
    if len(found) > _MAX_PATTERNS:
        raise fields.bad(key, f"has {len(found)} patterns, the most is {_MAX_PATTERNS}")
    if (num_wild := sum("*" in pattern for pattern in found)) > _MAX_WILD:
        raise fields.bad(key, f"has {num_wild} patterns with `.*`, the most is {_MAX_WILD}")
    for pattern in found:
        num_choices = pattern.count("|") + pattern.count("+") + pattern.count("*")
        is_few = num_choices <= _MAX_CHOICES and pattern.count("*") <= 1
        if not _PATTERN.fullmatch(pattern) or not is_few or not _is_expression(pattern):
            raise fields.bad(
                key,
                f"has {pattern[:100]!r}; a pattern ends a module's name, with `(a|b)`, a number or one `.*` in it",
            )
    return found


def _is_expression(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _rank(fields: Fields, pattern: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= _MAX_RANK:
        raise fields.bad("rank_pattern", f"must have a positive whole number for {pattern!r}")
    return value


def _alpha(fields: Fields, pattern: str, value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e300:  # type: ignore[operator]
        raise fields.bad("alpha_pattern", f"must have a number for {pattern!r}")
    return float(value)  # type: ignore[arg-type]


def _pattern(patterns: Mapping[str, object], module: str) -> str:
    """The first that names the module or ends its name, as peft looks for it."""
    return next((key for key in patterns if re.match(rf"(.*\.)?({key})$", module)), module)
