"""Which kernels serve a model of transformers, and the model's description for them."""

import torch

from chairlift.models.spec import ModelConfig
from chairlift.runner.fallback.describe import describe
from chairlift.runner.kernels import pick_kernels


def describe_for(
    config: ModelConfig, kernels: str, device: torch.device, dtype: torch.dtype
) -> tuple[ModelConfig, str]:  # fmt: skip
    """The device's own kernels, on a GPU with heads padded to what they take; torch's where they lack something."""
    described = describe(config, is_padded=device.type == "cuda")
    picked = pick_kernels(kernels, device, dtype, described)
    return (describe(config, is_padded=False) if picked == "torch" else described), picked
