"""Attention over gathered keys and values, by torch.

On a GPU cuDNN's kernel is left out: short of memory it fails without saying so, and a step that could be made smaller
would be lost.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from chairlift.models.mixers.attention import AttentionSpec

MAX_GATHERED = 1 << 26  # values of keys that decodes gather at once
_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def without_cudnn(device: torch.device) -> AbstractContextManager[None]:
    """A context: torch's global setting is restored at its end."""
    return sdpa_kernel(_BACKENDS) if device.type == "cuda" else nullcontext()


def weighted(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor, spec: AttentionSpec, sinks: Tensor | None = None
) -> Tensor:  # fmt: skip
    """q [..., N, D], k and v [..., L, D], seen [..., N or 1, L], sinks [..., N or 1, 1] -> [..., N, D]"""
    if not spec.cap and sinks is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=spec.scale)
    # Torch's kernels give no access to the scores.
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(wide) @ k.to(wide).transpose(-1, -2) * spec.scale
    if spec.cap:
        scores = scores.div_(spec.cap).tanh_().mul_(spec.cap)
    scores = scores.masked_fill_(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks.to(wide).expand(*scores.shape[:-1], 1)), dim=-1)
    return (scores.softmax(dim=-1)[..., : k.shape[-2]] @ v.to(wide)).to(q.dtype)


def gather(cache: Tensor, positions: Tensor, tables: Tensor) -> Tensor:
    """Keys or values at positions [D, L] of requests with these block tables. -> [D, kv_heads, L, head_dim]"""
    _, kv_heads, block_size, head_dim = cache.shape
    blocks = tables.gather(1, positions // block_size).long()
    heads = torch.arange(kv_heads, device=cache.device)[:, None]
    rows = (blocks[:, None] * kv_heads + heads) * block_size + (positions % block_size)[:, None]  # [D, kv_heads, L]
    return F.embedding(rows, cache.view(-1, head_dim))
