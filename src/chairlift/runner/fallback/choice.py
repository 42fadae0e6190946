"""Which kernels serve a model of transformers, and the model's description for them."""

import logging

import torch

from chairlift.config.model import ModelConfig
from chairlift.runner.fallback.describe import describe
from chairlift.runner.kernels import pick_kernels

_log = logging.getLogger(__name__)


def describe_for(
    config: ModelConfig, kernels: str, device: torch.device, dtype: torch.dtype
) -> tuple[ModelConfig, str]:  # fmt: skip
    """The device's own kernels, on a GPU with heads padded to what they take; torch's where they lack something."""
    described = describe(config, is_padded=device.type == "cuda")
    picked = pick_kernels(kernels, device, dtype, described)
    if picked != "torch" and any(layer.attention.has_sinks for layer in described.layers):
        line = "%s: its attention has sinks, which only torch's operations have: they are slower"
        _log.warning(line, config.architecture)
        picked = "torch"
    return (describe(config, is_padded=False) if picked == "torch" else described), picked
