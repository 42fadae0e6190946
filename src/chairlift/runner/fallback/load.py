"""A model of transformers with its weights, by the library's own loading, straight to the device.

Always: a position turns by the same angle in every step. Some rotations would follow the longest text of a step, which
other texts share; the choice is made once, by the context that is served: longrope's long factors where it exceeds the
length that the model was first trained with. Dynamic ones grow only beyond the model's context, which no text does.
"""

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


_FOLLOWING = ("dynamic", "longrope")
_FIXED = "default"  # a kind that is not looked at again


def fix_rotations(model: Any, max_model_len: int) -> None:
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, dict):
            for layer_type, kind in kinds.items():
                _fix(module, kind, max_model_len, layer_type)
            module.rope_type = {key: _FIXED if kind in _FOLLOWING else kind for key, kind in kinds.items()}
        elif kinds in _FOLLOWING:
            _fix(module, kinds, max_model_len)
            module.rope_type = _FIXED


def _fix(module: Any, kind: str, max_model_len: int, *layer_type: str) -> None:
    """Has the module choose its angles for the last position."""
    if kind not in _FOLLOWING:
        return
    device = next(module.buffers()).device
    last = torch.tensor([[max_model_len - 1]], device=device)
    with torch.no_grad():
        module(torch.zeros(1, 1, 1, device=device), last, *layer_type)
