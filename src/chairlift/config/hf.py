"""A model description from a Hugging Face folder: config.json and generation_config.json.

Always: an unknown architecture or quantisation is refused by name, and so is a key that changes the arithmetic of some
family, was not read here and is not neutral; other keys that are neither read nor known to be harmless are named in one
warning (`unread.py`). Does not look at weights or tokenizers.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from chairlift.config.families.family import Family
from chairlift.config.families.known import BY_ARCHITECTURE, BY_MODEL_TYPE
from chairlift.config.families.reading import read_sampling
from chairlift.config.families.unread import check_unread
from chairlift.config.fields import Fields
from chairlift.config.model import ModelConfig
from chairlift.core.errors import InvalidConfig

DTYPES = ("float32", "bfloat16", "float16", "float64")


def load_hf(path: Path) -> ModelConfig:
    """From a folder, or from a configuration file of any name."""
    path = path / "config.json" if path.is_dir() else path
    return load_values(path, read_json(path), path.parent)


def load_values(origin: Path, values: dict[str, Any], folder: Path) -> ModelConfig:
    """From what a configuration file says, and from generation_config.json in the model's folder."""
    config = Fields(str(origin), values)
    family = _family(config)
    _refuse_quantised(config)
    generation_path = folder / "generation_config.json"
    generation = Fields(str(generation_path), read_json(generation_path) if generation_path.exists() else {})
    model = replace(
        family.model(config),
        dtype=read_dtype(config),
        bos_id=config.token_id("bos_token_id"),
        eos_ids=tuple(dict.fromkeys(generation.token_ids("eos_token_id") + config.token_ids("eos_token_id"))),
        sampling=read_sampling(generation),
    )
    return replace(model, warnings=check_unread(config, family.architecture))


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidConfig(f"{path}: must hold a JSON object")
    return value


def _family(config: Fields) -> Family:
    named, found, known = config.get("architectures"), config.get("model_type"), BY_MODEL_TYPE
    if named:
        found, known = named[0] if isinstance(named, list) else named, BY_ARCHITECTURE
    if found is None:
        raise InvalidConfig(f"{config.origin}: architectures is missing")
    family = known.get(found) if isinstance(found, str) else None
    if family is None:
        supported = ", ".join(BY_ARCHITECTURE)
        raise InvalidConfig(f"{config.origin}: architecture {found!r} is not supported; supported: {supported}")
    return family


def _refuse_quantised(config: Fields) -> None:
    quantization = config.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method", "unnamed") if isinstance(quantization, dict) else quantization
        raise InvalidConfig(f"{config.origin}: quantization_config ({method}) is not supported")


def read_dtype(config: Fields) -> str:
    given, older = config.get("dtype"), config.get("torch_dtype")
    key, name = ("dtype", given) if given is not None else ("torch_dtype", older)
    name = str(name or "float32").removeprefix("torch.")
    if name not in DTYPES:
        raise config.bad(key, f"must be one of {', '.join(DTYPES)}")
    return name
