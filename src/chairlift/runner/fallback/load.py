"""A model of transformers with its weights, by the library's own loading, straight to the device."""

import logging
from importlib.util import find_spec
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from chairlift.core.errors import InvalidConfig
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.runner.fallback.library import foreign, read_config
from chairlift.runner.fallback.model import TransformersModel
from chairlift.runner.fallback.products import use_own_products
from chairlift.runner.fallback.rotation import fix_rotations
from chairlift.runner.fallback.trial import check_pages, plain_logits
from chairlift.runner.ops import PagedOps

_log = logging.getLogger(__name__)


def load_fallback(
    config: ModelConfig, source: Source, ops: PagedOps, dtype: torch.dtype, device: torch.device, max_model_len: int,
    has_weights: bool,
) -> TransformersModel:  # fmt: skip
    """config: described. has_weights: otherwise they are random."""
    found = read_config(config)
    with foreign(config.architecture, "transformers cannot load it"):
        if has_weights:
            model = _read(config.architecture, found, source, dtype, device)
        else:
            with torch.device(device):
                model = AutoModelForCausalLM.from_config(found, dtype=dtype)
        if dtype is torch.float64 and model._can_set_experts_implementation():
            model.set_experts_implementation("eager")  # the others lack the type
        model = model.eval().requires_grad_(False)
        fix_rotations(model, max_model_len)
    with foreign(config.architecture, "transformers cannot compute it in pages"):
        expected = plain_logits(config, model)
        use_own_products(model, ops)
        check_pages(config, model, dtype, expected)
    return TransformersModel(config, model, ops, dtype)


def _read(architecture: str, found: Any, source: Source, dtype: torch.dtype, device: torch.device) -> Any:
    # Without accelerate weights go through host memory.
    device_map = {"": device} if device.type != "cpu" and find_spec("accelerate") else None
    model, report = AutoModelForCausalLM.from_pretrained(
        source.folder, config=found, dtype=dtype, device_map=device_map, use_safetensors=True, local_files_only=True,
        trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True,
    )  # fmt: skip
    for name, stored, expected in sorted(report["mismatched_keys"]):
        raise InvalidConfig(
            f"{source.path}: tensor {name} has shape {list(stored)}, the configuration says {list(expected)}"
        )
    if missing := sorted(report["missing_keys"]):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InvalidConfig(f"{source.path}: tensor {missing[0]}{more} is missing")
    if unexpected := sorted(report["unexpected_keys"]):
        _log.warning("%s: %d tensors are not used by %s: %s", source.path, len(unexpected), architecture, unexpected[0])
    return model.to(device)
