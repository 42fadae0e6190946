"""Latent attention of the reference, from its definition: each token's row gives keys and values of every head."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from chairlift.lab.verify.feed_forward import Linear, linear
from chairlift.models.mixers.latent import LatentSpec
from chairlift.models.parts import MixerTensors, Part


def latent_of(
    spec: LatentSpec, tensors: MixerTensors, turned: Linear, read: Callable[[Part], Tensor]
) -> Linear:  # fmt: skip
    """[T, E] -> [T, E]. turned: what turns, [T, D] whose pairs are half of it apart, by positions."""
    matrices = {role: linear(matrix, read) for role, matrix in tensors.matrices.items()}
    gains = {role: read(part) + part.offset for role, part in tensors.norms.items()}
    output, up = linear(tensors.output, read), read(tensors.further["row_up"])
    halves = [*range(0, spec.turned_dim, 2), *range(1, spec.turned_dim, 2)]  # pairs are neighbours in the files

    def norm(role: str, x: Tensor) -> Tensor:
        return x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + spec.eps) * gains[role]

    def through(x: Tensor) -> Tensor:
        inputs = matrices["inputs"](x)
        first, latent, key = torch.split(inputs, [inputs.shape[1] - spec.row_dim, spec.rank, spec.turned_dim], dim=1)
        queries = matrices["queries"](norm("query_norm", first)) if spec.query_rank else first
        both, key = norm("row_norm", latent) @ up.T, turned(key[:, halves])
        is_hidden = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).triu(1)
        outs = []
        for q, kv in zip(queries.chunk(spec.num_heads, 1), both.chunk(spec.num_heads, 1), strict=True):
            query = torch.cat((q[:, : spec.still_dim], turned(q[:, spec.still_dim :][:, halves])), dim=1)
            scores = query @ torch.cat((kv[:, : spec.still_dim], key), dim=1).T * spec.scale
            weights = torch.exp(scores.masked_fill(is_hidden, -math.inf) - scores.max(dim=1, keepdim=True).values)
            outs.append(weights / weights.sum(dim=1, keepdim=True) @ kv[:, spec.still_dim :])
        return output(torch.cat(outs, dim=1))

    return through
