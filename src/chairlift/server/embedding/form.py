"""The form in which a body asks for vectors and scores: what would change the numbers is honoured or refused."""

from chairlift.config.embedding.declared import EmbeddingConfig
from chairlift.core.errors import InvalidRequest
from chairlift.server.embedding.requests import InputRequest

_ORDERS = ("native", "little", "big")  # of bytes


def check_form(request: InputRequest, config: EmbeddingConfig) -> None:
    if config.makes_scores and config.activation != "identity" and request.use_activation is False:
        raise InvalidRequest(
            "use_activation", f"must be true or left out: scores go through a {config.activation} here"
        )
    for name in ("normalize", "use_activation"):
        if config.is_normalized and getattr(request, name) is False:
            raise InvalidRequest(name, "must be true or left out: this model's vectors are always normalised")
    if request.embed_dtype not in (None, "float32"):
        raise InvalidRequest("embed_dtype", f"must be float32, got {request.embed_dtype[:40]!r}")
    if request.endianness not in (None, *_ORDERS):
        raise InvalidRequest("endianness", f"must be one of {', '.join(_ORDERS)}, got {request.endianness[:40]!r}")


def normalizes(request: InputRequest) -> bool | None:
    """None: the body does not say."""
    return request.use_activation if request.normalize is None else request.normalize
