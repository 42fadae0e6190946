"""Whether MindSpore can be used, found without importing it: that takes seconds.

Which declared models MindSpore's decoder computes.
"""

from importlib.metadata import PackageNotFoundError, version

from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import LayerSpec, ModelConfig

_MAJOR = "2"


def check_installed(device: str) -> None:
    """Refuses the device where MindSpore is missing, or is not the one its operations were written for."""
    if why_not := why_not_mindspore():
        raise InvalidConfig(f"device {device} {why_not}: pip install 'chairlift[mindspore]'")


def why_not_mindspore() -> str:
    """In words that follow the device; empty where it can be used."""
    try:
        found = version("mindspore")
    except PackageNotFoundError:
        return "needs mindspore"
    return "" if found.split(".")[0] == _MAJOR else f"needs mindspore {_MAJOR}, and {found} is installed"


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
    if not isinstance(layer.mixer, AttentionSpec):
        return f"layers of {layer.mixer.name}"
    attention, feed_forward = layer.attention, layer.feed_forward
    if attention.has_output_bias or feed_forward.has_bias:
        return "biases beside those of queries, keys and values"
    if attention.has_sinks:
        return "attention sinks"
    if feed_forward.experts is not None:
        return "experts"
    if attention.has_wide_qk_norm:
        return "norms over all heads"
    if attention.has_value_norm or attention.has_keys_as_values or not attention.has_own_rows:
        return "values that are normalised, are keys, or are another layer's"
    if attention.growth is not None:
        return "queries that grow with their position"
    if layer.has_scalar:
        return "a factor of the residual"
    if layer.is_parallel:
        return "branches in parallel"
    return "" if feed_forward.has_gate else "a feed-forward without a gate"
