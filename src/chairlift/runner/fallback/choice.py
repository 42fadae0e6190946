"""Which kernels attend for a model of transformers, and the model's description for them."""

import logging

import torch

from chairlift.config.model import ModelConfig
from chairlift.runner.fallback.describe import describe
from chairlift.runner.kernels import pick_kernels

_log = logging.getLogger(__name__)


def describe_for(
    config: ModelConfig, kernels: str, device: torch.device, dtype: torch.dtype
) -> tuple[ModelConfig, str]:  # fmt: skip
    """Triton's on a GPU, with heads padded to what they take; torch's elsewhere and where they lack something."""
    picked = pick_kernels(kernels, device, dtype) if device.type == "cuda" else "torch"
    described = describe(config, is_padded=picked == "triton")
    if picked == "triton" and any(layer.attention.has_sinks for layer in described.layers):
        _log.warning(
            "%s: its attention has sinks, which take torch's operations: no steps are captured", config.architecture
        )
        return describe(config, is_padded=False), "torch"
    return described, picked
