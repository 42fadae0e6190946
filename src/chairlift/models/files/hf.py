"""A model description from a Hugging Face folder: config.json and generation_config.json.

Always: an unknown quantisation is refused by name, an unknown architecture too or left to transformers, and so is a key
that changes the arithmetic of some family, was not read here and is not neutral; other keys that are neither read nor
known to be harmless are named in one warning (`unread.py`). Does not look at weights or tokenizers.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from chairlift.config.extras import check_extra
from chairlift.config.fields import Fields
from chairlift.config.model_words import AUTO, DTYPES, OWN, TRANSFORMERS
from chairlift.core.errors import InvalidConfig
from chairlift.models.fallback import read_fallback
from chairlift.models.families.family import Family
from chairlift.models.families.known import BY_ARCHITECTURE, BY_MODEL_TYPE
from chairlift.models.families.reading import read_sampling
from chairlift.models.families.unread import check_unread
from chairlift.models.families.wrapped import TOWERS, WRAPPERS, text_values
from chairlift.models.files.left_out import left_out
from chairlift.models.files.quantisation import read_quantisation
from chairlift.models.spec import ModelConfig, Quantisation
from chairlift.models.tensors import MXFP4_GROUP, float_weights, integer_weights, mxfp4_weights, quantised_size

MXFP4 = "mxfp4"  # a method of quantization_config
_CAUSAL = ("ForCausalLM", "LMHeadModel")  # ends of architectures that go on with a text


def load_hf(path: Path, model_impl: str = OWN) -> ModelConfig:
    """From a folder, or from a configuration file of any name."""
    path = path / "config.json" if path.is_dir() else path
    return load_values(path, read_json(path), path.parent, model_impl)


def load_values(origin: Path, values: dict[str, Any], folder: Path, model_impl: str = OWN) -> ModelConfig:
    """From what a configuration file says, and from generation_config.json in the model's folder."""
    values = values | _quantised_apart(folder) if values.get("quantization_config") is None else values
    text = text_values(str(origin), values) if model_impl != TRANSFORMERS else None
    config = Fields(str(origin), values if text is None else text)
    family = _family(config, model_impl)
    said = _quantisation(config, family)
    generation_path = folder / "generation_config.json"
    generation = Fields(str(generation_path), read_json(generation_path) if generation_path.exists() else {})
    model = replace(
        family.model(config) if isinstance(family, Family) else read_fallback(config, family),
        dtype=read_dtype(config),
        bos_id=config.token_id("bos_token_id"),
        eos_ids=tuple(dict.fromkeys(generation.token_ids("eos_token_id") + config.token_ids("eos_token_id"))),
        sampling=read_sampling(generation),
    )
    if said is not None and said.method == MXFP4:
        model = _in_mxfp4(config, model)
    elif said is not None:
        count = quantised_size(model, left_out(config.get("quantization_config")))
        kept = integer_weights(model, count, *said.integers) if said.integers else None
        packed = float_weights(count, said.floats) if said.floats else kept
        model = replace(model, quantisation=said, blocks=kept, packed=packed)
    if isinstance(family, Family):
        model = replace(model, warnings=(*_widened(origin, model), *check_unread(config, family.architecture)))
        return model if text is None else _of_wrapper(model, f"{origin}: {values['architectures'][0]}")
    chosen = f"{origin}: {family} is not one of our models: transformers computes it, slower than ours are"
    return replace(model, warnings=(chosen,) if model_impl == AUTO else ())


def _quantised_apart(folder: Path) -> dict[str, Any]:
    """quantization_config as modelopt writes it where config.json has none."""
    path = folder / "hf_quant_config.json"
    given = read_json(path).get("quantization") if path.is_file() else None
    return {"quantization_config": {"quant_method": "modelopt", **given}} if isinstance(given, dict) else {}


def _quantisation(config: Fields, family: Family | str) -> Quantisation | None:
    if isinstance(family, Family):
        return read_quantisation(config, family.quantised)
    if config.get("quantization_config") is not None:
        raise InvalidConfig(
            f"{config.origin}: quantization_config is for our own models, and transformers computes {family}; take one "
            "without"
        )
    return None


def _widened(origin: Path, model: ModelConfig) -> tuple[str, ...]:
    if model.quantisation is None:
        return ()
    on_cpu = "are widened to --dtype" if model.blocks is None else f"stay integers ({model.blocks.type_name})"
    return (
        f"{origin}: {model.quantisation.method} weights stay as they are on a GPU, where steps that widen them are "
        f"slow, and {on_cpu} on a CPU; scales of activations, keys and values are not used",
    )


def _of_wrapper(model: ModelConfig, what: str) -> ModelConfig:
    line = f"{what} takes images too: its text alone is served, as {model.architecture}"
    return replace(model, towers=TOWERS, warnings=(line, *model.warnings))


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


def _family(config: Fields, model_impl: str) -> Family | str:
    """The family, or the name of an architecture that is left to transformers."""
    named, found, known = config.get("architectures"), config.get("model_type"), BY_MODEL_TYPE
    if named:
        found, known = named[0] if isinstance(named, list) else named, BY_ARCHITECTURE
    if found is None:
        raise InvalidConfig(f"{config.origin}: architectures is missing")
    family = known.get(found) if isinstance(found, str) else None
    if family is not None and model_impl != TRANSFORMERS:
        return family
    refused = f"{config.origin}: architecture {found!r} is not supported"
    is_causal = isinstance(found, str) and found.endswith(_CAUSAL)
    if not isinstance(found, str) or model_impl == OWN or (model_impl == AUTO and not is_causal and family is None):
        hint = "; --model-impl transformers may run it" if is_causal else ""
        raise InvalidConfig(f"{refused}; supported: {', '.join((*BY_ARCHITECTURE, *WRAPPERS))}{hint}")
    what = f"{config.origin}: architecture {found!r} is not one of our models, and computing it by transformers"
    check_extra(what if family is None else "--model-impl transformers", "transformers")
    return found


def _in_mxfp4(config: Fields, model: ModelConfig) -> ModelConfig:
    """The model with its experts in blocks of four bits."""
    for key in ("hidden_size", "intermediate_size"):
        if config.size(key) % MXFP4_GROUP:
            raise config.bad(key, f"must be a multiple of {MXFP4_GROUP} for mxfp4")
    model = replace(model, names=replace(model.names, expert_form="mxfp4"))
    return replace(model, four_bits=mxfp4_weights(model))


def read_dtype(config: Fields) -> str:
    given, older = config.get("dtype"), config.get("torch_dtype")
    key, name = ("dtype", given) if given is not None else ("torch_dtype", older)
    name = str(name or "float32").removeprefix("torch.")
    if name not in DTYPES:
        raise config.bad(key, f"must be one of {', '.join(DTYPES)}")
    return name
