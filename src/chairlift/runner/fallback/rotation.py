"""Rotations of transformers that would follow the longest text of a step, which other texts share.

Always: after `fix_rotations` a position turns by the same angle in every step. The choice is made once, by the context
that is served: longrope's long factors where it exceeds the length that the model was first trained with. Dynamic ones
grow only beyond the model's context, which no text does.
"""

from typing import Any

import torch

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
