"""What mixtures of experts have in common: their counts, checked, and which layers have them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from chairlift.config.fields import Fields
from chairlift.models.spec import ExpertsSpec, FeedForwardSpec, ModelConfig

_MAX_EXPERTS = 4096
_TWO_BEST = 2  # scores that a group is chosen by


def read_experts(config: Fields, count_keys: Sequence[str], chosen_key: str, **more: Any) -> ExpertsSpec:
    """count_keys: of the number of experts, newest first; more: other fields of `ExpertsSpec`."""
    key = next((key for key in count_keys if config.get(key) is not None), count_keys[0])
    count, num_chosen = config.size(key, most=_MAX_EXPERTS), config.size(chosen_key)
    if num_chosen > count:
        raise config.bad(chosen_key, f"must be at most {key} {count}")
    return ExpertsSpec(count=count, num_chosen=num_chosen, **more)


def with_groups(config: Fields, spec: ExpertsSpec, count_key: str, chosen_key: str) -> ExpertsSpec:
    """The same with groups of experts under these keys."""
    groups, chosen = config.size(count_key, 1), config.size(chosen_key, 1)
    if spec.count % groups:
        raise config.bad(count_key, f"must divide the {spec.count} experts")
    if chosen > groups:
        raise config.bad(chosen_key, f"must be at most {count_key} {groups}")
    size = spec.count // groups
    if groups > 1 and size < _TWO_BEST:
        raise config.bad(count_key, f"must leave groups of at least {_TWO_BEST} of the {spec.count} experts")
    if chosen * size < spec.num_chosen:
        raise config.bad(chosen_key, f"must leave the {spec.num_chosen} experts that a token chooses")
    return replace(spec, num_groups=groups, num_chosen_groups=chosen)


def with_experts(model: ModelConfig, width: int, experts: ExpertsSpec, is_sparse: Sequence[bool]) -> ModelConfig:
    """The model with experts of this width in these layers."""
    layers = []
    for layer, has_experts in zip(model.layers, is_sparse, strict=True):
        mixture = FeedForwardSpec(width=width, activation=layer.feed_forward.activation, experts=experts)
        layers.append(replace(layer, feed_forward=mixture) if has_experts else layer)
    return replace(model, layers=tuple(layers))


def require_scores(metadata: Fields, number: int) -> None:
    """Refuses a GGUF file whose scores are made in another way than the family's; they have numbers there."""
    key = "expert_gating_func"
    if metadata.number(key, number) != number:
        raise metadata.bad(key, f"must be {number}")


def experts_of_gguf(metadata: Fields, model: ModelConfig) -> ModelConfig:
    """The model with the experts of a GGUF file in every layer, or as it is; weights are always normalised there."""
    if not metadata.number("expert_count", 0):
        return model
    experts = read_experts(metadata, ("expert_count",), "expert_used_count", is_normalised=True)
    width = metadata.size("expert_feed_forward_length", model.layers[0].feed_forward.width)
    return with_experts(model, width, experts, [True] * model.num_layers)
