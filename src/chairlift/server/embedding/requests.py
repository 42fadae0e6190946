"""The bodies of the routes of vectors and scores, field by field. Types only: values are checked elsewhere."""

import msgspec

from chairlift.core.errors import InvalidRequest
from chairlift.models.embedding.declared import EmbeddingConfig
from chairlift.server.openai.fields import Body, Int


class InputRequest(Body, frozen=True, kw_only=True):
    """The fields common to all."""

    truncate_prompt_tokens: Int | None = None  # cut longer inputs to so many tokens; -1: to as many as fit
    normalize: bool | None = None
    use_activation: bool | None = None  # of scores; of vectors the same as `normalize`
    embed_dtype: str | None = None
    endianness: str | None = None  # of numbers in base64
    user: str | None = None
    priority: Int | None = None
    timeout: float | None = None

    @property
    def cuts(self) -> bool:
        """Whether longer inputs are not refused."""
        return self.truncate_prompt_tokens is not None


class EmbeddingRequest(InputRequest, frozen=True, kw_only=True):
    input: str | list[str | Int | list[Int]]
    encoding_format: str | None = None
    dimensions: Int | None = None
    prompt_name: str | None = None  # one of the model's prompts, put before each text


class Document(msgspec.Struct, frozen=True):
    text: str


class RerankRequest(InputRequest, frozen=True, kw_only=True):
    query: str | Document
    documents: list[str | Document]
    top_n: Int | None = None
    max_tokens_per_doc: Int | None = None  # cut longer documents to so many tokens
    return_documents: bool | None = None
    instruction: str | None = None  # of models whose prompt has one

    @property
    def cuts(self) -> bool:
        return self.truncate_prompt_tokens is not None or self.max_tokens_per_doc is not None


class ScoreRequest(InputRequest, frozen=True, kw_only=True):
    """The two sides by one of several names."""

    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    data_1: str | list[str] | None = None
    data_2: str | list[str] | None = None
    queries: str | list[str] | None = None
    items: str | list[str] | None = None
    documents: str | list[str] | None = None
    instruction: str | None = None


_ORDERS = ("native", "little", "big")  # of bytes


def check_form(request: InputRequest, config: EmbeddingConfig) -> None:
    """The form in which a body asks for vectors and scores: what would change the numbers is honoured or refused."""
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
