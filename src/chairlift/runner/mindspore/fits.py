"""Which declared models MindSpore's decoder computes."""

from chairlift.config.model import LayerSpec, ModelConfig
from chairlift.core.errors import InvalidConfig


def check_fits(config: ModelConfig, device: str) -> None:
    """Refuses what its layers do not have."""
    lacks = next(filter(None, map(_lacking, config.kinds_of_layers)), "")
    if config.has_centred_norms or config.has_norm_biases:
        lacks = "norms that subtract the mean or add a bias"
    if lacks:
        raise InvalidConfig(
            f"device {device}: {config.architecture} has {lacks}, which is not computed there; use --device cpu"
        )


def _lacking(layer: LayerSpec) -> str:
    attention, feed_forward = layer.attention, layer.feed_forward
    if attention.has_output_bias or feed_forward.has_bias:
        return "biases beside those of queries, keys and values"
    if attention.has_sinks:
        return "attention sinks"
    if feed_forward.experts is not None:
        return "experts"
    if attention.has_wide_qk_norm:
        return "norms over all heads"
    if attention.growth is not None:
        return "queries that grow with their position"
    if layer.is_parallel:
        return "branches in parallel"
    return "" if feed_forward.has_gate else "a feed-forward without a gate"
