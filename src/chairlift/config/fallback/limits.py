"""Options that a model computed by transformers does not have."""

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig

_MODEL = "transformers computes this model"


def check_fallback(settings: Settings) -> None:
    """Refuses, by name and with the way out, what only models of our own do."""
    if settings.exact:
        raise InvalidConfig(f"exact: {_MODEL}, whose products add up by the number of rows; leave --exact out")
    if settings.tensor_parallel > 1:
        raise InvalidConfig(
            f"tensor_parallel {settings.tensor_parallel}: {_MODEL}, in one process; leave --tensor-parallel out"
        )
    if settings.quantize not in ("auto", "none"):
        raise InvalidConfig(f"quantize {settings.quantize}: {_MODEL}, with weights as they are; use --quantize none")
    if settings.is_mindspore:
        raise InvalidConfig(f"device {settings.device}: {_MODEL}, by torch; use --device cpu or cuda")
    if settings.kv_dtype == "int8":
        raise InvalidConfig(f"kv_dtype int8: {_MODEL}, with keys and values as they are; use --kv-dtype auto")
