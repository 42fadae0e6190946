"""What we use of transformers: its configurations, its classes of causal models, and a model of one.

Always: nothing is fetched, and no code of a model's folder runs.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.fallback import refuse_memories
from chairlift.models.spec import ModelConfig

transformers.logging.disable_progress_bar()
OLDEST, NEWEST = (5, 10), (6, 0)  # the first that is too new
_MAX_SAID = 300  # characters of an error
_STATIC_EXPERTS = "batched_mm"  # that have no shapes which depend on numbers


def read_config(config: ModelConfig) -> Any:
    """The configuration as transformers has it. Models that cannot be computed in pages are refused."""
    _check_version()
    assert config.fallback is not None
    values = json.loads(config.fallback.config_json)
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise InvalidConfig(
            f"{config.architecture}: transformers {transformers.__version__} has no model_type {model_type!r}, and "
            "code of a model's folder is not run"
        )
    with foreign(config.architecture, "its config.json is not taken by transformers"):
        found = AutoConfig.for_model(**values)
    # Keys that the file leaves out have the values of the class now.
    refuse_memories(Fields(config.architecture, found.to_dict()))
    _check_class(config.architecture, found)
    return found


@contextmanager
def foreign(architecture: str, what: str) -> Iterator[None]:
    """Any error of the library, or of what a file makes it do, is one line that names the model. The library itself
    prints nothing."""
    loudness = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    except (InvalidConfig, torch.OutOfMemoryError):
        raise
    except Exception as error:
        said = repr(error) if isinstance(error, KeyError) or not str(error) else " ".join(str(error).split())
        raise InvalidConfig(f"{architecture}: {what}: {said[:_MAX_SAID]}") from error
    finally:
        transformers.logging.set_verbosity(loudness)


def empty_model(found: Any, attention: str) -> Any:
    """The model without memory for its weights."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(found, attn_implementation=attention)
    if model._can_set_experts_implementation():
        model.set_experts_implementation(_STATIC_EXPERTS)
    return model.eval()


def base_name(model: Any) -> str:
    """Of the module that is the model without its head."""
    name: str = model.base_model_prefix
    return name if name in model._modules else "model"


def base_of(model: Any) -> Any:
    return getattr(model, base_name(model))


def _check_class(architecture: str, found: Any) -> None:
    made = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(found), None)
    if made is None or made.__name__ != architecture:
        name = "none" if made is None else made.__name__
        raise InvalidConfig(
            f"{architecture}: not a causal model of transformers (of model_type {found.model_type!r} that is {name})"
        )
    if not made._supports_attention_backend:
        raise InvalidConfig(
            f"{architecture}: its attention cannot be replaced in transformers {transformers.__version__}, so its keys "
            "and values cannot be kept in pages"
        )


def _check_version() -> None:
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    if not OLDEST <= version < NEWEST:
        raise InvalidConfig(
            f"transformers {transformers.__version__} is not one that our models of it are tested with: "
            "pip install 'chairlift[transformers]'"
        )
