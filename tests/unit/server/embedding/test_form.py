"""Fields that would change vectors and scores: what is taken, and what is refused by name."""

from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.models.embedding.declared import EMBED, RERANK, EmbeddingConfig
from chairlift.server.embedding.requests import EmbeddingRequest, check_form, normalizes

PLAIN = EmbeddingConfig(task=EMBED, max_len=9)
NORMALIZED = EmbeddingConfig(task=EMBED, max_len=9, is_normalized=True)
SCORES = EmbeddingConfig(task=RERANK, max_len=9, activation="sigmoid")
LOGITS = EmbeddingConfig(task=RERANK, max_len=9)


def asked(**fields: Any) -> EmbeddingRequest:
    return EmbeddingRequest(input="a", **fields)


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (NORMALIZED, {"normalize": True, "use_activation": True, "embed_dtype": "float32", "endianness": "native"}),
        (PLAIN, {"normalize": False, "use_activation": False, "endianness": "big"}),
        (SCORES, {"use_activation": True, "normalize": False}),
        (LOGITS, {"use_activation": False}),
    ],
)
def test_what_is_so_anyway_is_taken(config: EmbeddingConfig, fields: dict[str, Any]) -> None:
    check_form(asked(**fields), config)


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (NORMALIZED, {"normalize": False}, "normalize: must be true or left out: this model's vectors are always"),
        (NORMALIZED, {"use_activation": False}, "use_activation: must be true or left out: this model's vectors"),
        (SCORES, {"use_activation": False}, "use_activation: must be true or left out: scores go through a sigmoid"),
        (PLAIN, {"embed_dtype": "float16"}, "embed_dtype: must be float32, got 'float16'"),
        (SCORES, {"endianness": "odd"}, "endianness: must be one of native, little, big, got 'odd'"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(config: EmbeddingConfig, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_form(asked(**fields), config)
    assert str(refused.value).startswith(message)


def test_the_newer_name_of_normalising_counts_where_the_older_is_left_out() -> None:
    assert normalizes(asked()) is None
    assert normalizes(asked(use_activation=True)) is True
    assert normalizes(asked(use_activation=True, normalize=False)) is False
