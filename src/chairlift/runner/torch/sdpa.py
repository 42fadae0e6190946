"""Attention of queries over keys and values that have been gathered, by torch.

On a GPU all of its kernels but cuDNN's may answer: where memory is short that one fails without a word of memory, and a
step that could be made smaller would be lost.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from chairlift.config.model import AttentionSpec

_ANSWERING = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def without_cudnn(device: torch.device) -> AbstractContextManager[None]:
    """While it is entered; nothing is changed for good, as the process may be somebody else's."""
    return sdpa_kernel(_ANSWERING) if device.type == "cuda" else nullcontext()


def weighted(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, spec: AttentionSpec) -> Tensor:
    """q [..., N, D], k and v [..., L, D], seen [..., N or 1, L] -> [..., N, D]"""
    if not spec.cap:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=spec.scale)
    # Scores are not at hand there to be capped.
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    scores = q.to(wide) @ k.to(wide).transpose(-1, -2) * spec.scale
    scores = scores.div_(spec.cap).tanh_().mul_(spec.cap).masked_fill_(~seen, -torch.inf)
    return (scores.softmax(dim=-1) @ v.to(wide)).to(q.dtype)
