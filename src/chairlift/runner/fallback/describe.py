"""What a model of transformers is, found by running it without numbers: the attention of each layer, and its size.

The model is made on torch's meta device and computes a few tokens there. Each of its attention calls tells the heads,
the scale, the cap; the mask that comes with the call tells the window, as it does in transformers' own attention:

    mask function -> a tensor whose last side is 1 + window -> attention call

Always: what a call says and is not understood here is refused by name.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import FeedForwardSpec, LayerSpec, ModelConfig
from chairlift.runner.fallback.library import base_of, empty_model, foreign, read_config
from chairlift.runner.kernels import pick_kernels

NOTING = "chairlift_noting"
STEP = "chairlift_step"  # the keyword argument that is handed down to attention
_NUM_TOKENS = 5
_SMALLEST = 16  # heads that our kernels take
# What does not change what attention computes.
_HARMLESS = frozenset({
    "position_ids", "cache_position", "use_cache", "output_attentions", "output_hidden_states", "return_dict",
    "position_embeddings", "output_router_logits", "num_items_in_batch", "logits_to_keep",
})  # fmt: skip
_UNDERSTOOD = frozenset({"scaling", "sliding_window", "softcap", "s_aux", "dropout", "is_causal", STEP})
_WIDTHS = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")


@dataclass(slots=True)
class Noted:
    """Of one pass: the attention calls, and what they say that is not understood."""

    architecture: str
    specs: list[AttentionSpec]

    def note(self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> None:
        self._check(module, query, key, value, mask, options)
        assert mask is not None
        head_dim = query.shape[-1]
        scale = options.get("scaling")
        self.specs.append(
            AttentionSpec(
                num_heads=query.shape[1],
                num_kv_heads=key.shape[1],
                head_dim=max(head_dim, value.shape[-1]),
                scale=head_dim**-0.5 if scale is None else float(scale),
                rotation=None,
                window=mask.shape[-1] - 1,
                cap=float(options.get("softcap") or 0.0),
                has_sinks=options.get("s_aux") is not None,
            )
        )

    def _check(self, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> None:
        given = {name for name, option in options.items() if option is not None}
        if unknown := sorted(given - _HARMLESS - _UNDERSTOOD):
            raise self._refused(f"its attention takes {', '.join(unknown)}, which is not understood")
        if options.get("is_causal") is False or getattr(module, "is_causal", True) is False:
            raise self._refused("its attention is not causal")
        if options.get("dropout"):
            raise self._refused("its attention has dropout")
        if query.dim() != 4 or query.shape[2] != _NUM_TOKENS or key.shape[2] != _NUM_TOKENS or query.shape[0] != 1:
            raise self._refused(f"its attention gets queries of {list(query.shape)} and keys of {list(key.shape)}")
        if query.shape[1] % key.shape[1] or key.shape[:3] != value.shape[:3] or query.shape[3] != key.shape[3]:
            raise self._refused(f"its heads do not fit: {list(query.shape)}, {list(key.shape)}, {list(value.shape)}")
        if mask is None:
            raise self._refused("its attention gets no mask, so that what it sees is not known")
        told = [options.get("sliding_window"), *(getattr(x, "sliding_window", None) for x in (module, module.config))]
        if mask.shape[-1] - 1 not in (0, *told):
            raise self._refused("it changes its mask on the way to its attention")

    def _refused(self, why: str) -> InvalidConfig:
        return InvalidConfig(f"{self.architecture}: transformers cannot compute it in pages: {why}")


def describe(config: ModelConfig, is_padded: bool) -> ModelConfig:
    """With a layer for each attention call. is_padded: heads are padded to what kernels of ours take."""
    found = read_config(config)
    noted = Noted(config.architecture, [])
    with foreign(config.architecture, "transformers cannot compute it in pages"):
        model = empty_model(found, NOTING)
        _run(model, noted)
    if not noted.specs:
        raise InvalidConfig(f"{config.architecture}: its layers do not call the attention that transformers hands them")
    assert config.fallback is not None
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    feed_forward = FeedForwardSpec(width=_width(found, config.hidden_size))
    return replace(
        config,
        layers=tuple(
            LayerSpec(mixer=_padded(spec) if is_padded else spec, feed_forward=feed_forward) for spec in noted.specs
        ),
        fallback=replace(config.fallback, num_parameters=num_parameters),
    )


def _run(model: Any, noted: Noted) -> None:
    """One pass over a few tokens, whose attention only takes notes."""
    tokens = torch.zeros(1, _NUM_TOKENS, dtype=torch.int64, device=model.device)
    positions = torch.arange(_NUM_TOKENS, device=model.device)[None]
    # With a mask of its own transformers does not look for packed texts, which would take numbers.
    inputs = {"input_ids": tokens, "position_ids": positions, "attention_mask": torch.ones_like(tokens)}
    with torch.inference_mode():
        base_of(model)(**inputs, use_cache=False, **{STEP: noted})


def _note(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    noted = options.get(STEP)
    if not isinstance(noted, Noted):
        raise TypeError("its layers do not hand keyword arguments down to their attention")
    noted.note(module, query, key, value, attention_mask, options)
    return query.new_empty(1, query.shape[2], query.shape[1], value.shape[-1]), None


def _mask(mask_function: Any, config: Any, q_length: int, **_: Any) -> Tensor:
    """A tensor that tells the window of a mask."""
    window = window_of(mask_function, _longest(config))
    return torch.empty(1, 1, q_length, 1 + window, device="meta")


def window_of(mask_function: Any, longest: int) -> int:
    """Positions that each one sees, by a mask of transformers; 0: all before it."""
    zero, places, last = torch.tensor(0), torch.arange(longest), longest - 1

    def seen(place: int) -> Tensor:
        return torch.as_tensor(mask_function(zero, zero, torch.tensor(place), places)).expand(longest)

    window = int(seen(last).sum())
    for place in sorted({0, last // 3, last // 2, 2 * last // 3, last}):
        if not torch.equal(seen(place), (places <= place) & (places > place - window)):
            raise ValueError("its mask is neither causal nor causal with a window")
    return 0 if window == longest else window


def _longest(config: Any) -> int:
    return int(getattr(config, "max_position_embeddings", None) or 1 << 16)


def _width(found: Any, hidden_size: int) -> int:
    """Numbers of a token between the products of a feed-forward, of experts too."""
    dense = max((int(getattr(found, key, None) or 0) for key in _WIDTHS), default=0)
    chosen = int(getattr(found, "num_experts_per_tok", None) or 0) * int(
        getattr(found, "moe_intermediate_size", None) or dense
    )
    return max(dense, chosen) or 4 * hidden_size


def _padded(spec: AttentionSpec) -> AttentionSpec:
    return replace(spec, head_dim=max(_SMALLEST, 1 << (spec.head_dim - 1).bit_length()))


AttentionInterface.register(NOTING, _note)
AttentionMaskInterface.register(NOTING, _mask)


def describe_for(
    config: ModelConfig, kernels: str, device: torch.device, dtype: torch.dtype
) -> tuple[ModelConfig, str]:  # fmt: skip
    """With the name of its kernels: the device's own, on a GPU with heads padded to what they take; torch's where
    they lack something."""
    described = describe(config, is_padded=device.type == "cuda")
    picked = pick_kernels(kernels, device, dtype, described)
    return (describe(config, is_padded=False) if picked == "torch" else described), picked
