"""Which declared models MindSpore's decoder computes."""

from chairlift.config.model import LayerSpec, ModelConfig
from chairlift.core.errors import InvalidConfig


def check_fits(config: ModelConfig, device: str) -> None:
    """Refuses what its layers do not have."""
    for layer in config.kinds_of_layers:
        if lacks := _lacking(layer):
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
    return ""
