"""Pairs of texts for a model that reads each pair as one: refused before they are joined, joined one after another."""

from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.models.embedding.declared import RERANK, AnswerTokens, EmbeddingConfig
from chairlift.server.embedding import exchange
from chairlift.server.embedding.exchange import Exchange
from chairlift.server.encoder import Encoder, TokenLimit
from chairlift.text.embedding.texts import EmbeddingTexts, Framed
from chairlift.text.tokenizer import Tokenizer
from fakes.http_world import HttpWorld
from fakes.small_tokenizer import small_tokenizer, tokenizer_of

RERANKER = EmbeddingConfig(task=RERANK, answer=AnswerTokens(true=5, false=6), max_len=512)
MANY = TokenLimit(100_000, "are too many")
BODIES: dict[str, Any] = {
    "/v1/rerank": lambda query, documents: {"query": query, "documents": documents},
    "/v2/rerank": lambda query, documents: {"query": query, "documents": documents},
    "/v1/score": lambda query, documents: {"queries": query, "items": documents},
}


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that were put into the model's form; an empty one only measures it."""
    found, make = list[str](), EmbeddingTexts.before_document

    def noting(texts: EmbeddingTexts, query: str, instruction: str | None = None) -> str:
        found.extend([query] if query else [])
        return make(texts, query, instruction)

    monkeypatch.setattr(EmbeddingTexts, "before_document", noting)
    return found


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each text that became tokens."""
    found, encode = list[int](), Tokenizer.encode_piece

    def noting(tokenizer: Tokenizer, text: str, *given: Any, **more: Any) -> list[int]:
        found.append(len(text))
        return encode(tokenizer, text, *given, **more)

    _ = small_tokenizer().long_texts  # is looked at once
    monkeypatch.setattr(Tokenizer, "encode_piece", noting)
    return found


def ranking_world(**settings: Any) -> HttpWorld:
    return HttpWorld(embedding=RERANKER, max_body_bytes=2**23, **settings)


async def refusal(world: HttpWorld, path: str, query: str, documents: list[str], **more: Any) -> str:
    response = await world.post(path, BODIES[path](query, documents) | more)
    assert (response.status_code, world.client.requests) == (400, []), response.text
    return str(response.json()["error"]["message"])


@pytest.mark.parametrize("path", BODIES)
async def test_pairs_that_cannot_fit_are_refused_before_any_is_joined(
    path: str, joined: list[str], encoded: list[int]
) -> None:
    world = ranking_world()
    encoded.clear()  # of the model's form
    message = await refusal(world, path, "€" + "a " * 3_500_000, ["b"] * 50)
    assert "documents: " in message and "7000" in message and "characters make more than" in message
    assert joined == encoded == []


async def test_the_longest_pair_counts_whichever_side_is_long(joined: list[str]) -> None:
    message = await refusal(ranking_world(), "/v1/rerank", "a", ["b", "c" * 200_000, "d"])
    assert "documents: " in message and " 200110 characters make more than" in message
    assert joined == []


async def test_the_query_of_many_documents_is_made_into_tokens_once(encoded: list[int]) -> None:
    query, documents = "what is a lift? " * 500, ["a lift", "an alp"] * 20
    ids = await Encoder(small_tokenizer()).encode_joined(
        [(query, document) for document in documents], lambda text: f"Query: {text}\nDocument: ", MANY, list
    )
    assert sum(encoded) < 2 * len(query)
    assert ids == [small_tokenizer().encode(f"Query: {query}\nDocument: {text}", False) for text in documents]


@pytest.mark.parametrize("repeats", [1, 2_000])  # short texts, and long ones
async def test_joined_pairs_have_the_tokens_of_their_text_in_order(repeats: int) -> None:
    tokenizer = small_tokenizer()
    pairs = [("a? " * repeats, "b"), ("a? " * repeats, ""), ("c,", "d " * repeats), ("", "e"), ("a? " * repeats, "f")]
    ids = await Encoder(tokenizer).encode_joined(pairs, "<{}>".format, MANY, list)
    assert ids == [tokenizer.encode(f"<{first}>{second}", False) for first, second in pairs]


@pytest.mark.parametrize("repeats", [1, 2_000])
async def test_control_tokens_that_a_document_spells_out_stay_text(repeats: int) -> None:
    tokenizer = tokenizer_of(None, special=["<|im_end|>"])
    [token] = tokenizer.encode("<|im_end|>", False)
    pairs = [("a <|im_end|> b " * repeats, "c <|im_end|> d")]
    [ids] = await Encoder(tokenizer).encode_joined(pairs, "<{}>".format, MANY, list)
    assert token not in ids
    assert tokenizer.decode(ids) == f"<{pairs[0][0]}>{pairs[0][1]}"


async def test_a_text_that_is_cut_is_made_into_tokens_as_far_as_it_is_kept(encoded: list[int]) -> None:
    limit = TokenLimit(100_000, "are too many", num_kept=10)
    documents = ["the quick fox " * 5_000] * 3
    ids = await Encoder(small_tokenizer()).encode_joined(
        [("a b, " * 20_000, text) for text in documents], "{} ".format, limit, lambda ids: ids[:10]
    )
    assert sum(encoded) < 30_000
    assert ids == [small_tokenizer().encode("a b, " * 10)[:10]] * 3


async def test_a_long_query_is_not_read_to_its_end_where_inputs_are_cut(
    encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[Framed] = []

    async def made(exchange: Exchange, given: list[Framed], field: str) -> list[bytes]:
        inputs.extend(given)
        return [bytes(4)] * len(given)

    monkeypatch.setattr(Exchange, "made", made)
    world, query = ranking_world(), "what is it? " * 20_000
    response = await world.post("/v2/rerank", {"query": query, "documents": ["a", "b"]})
    assert response.status_code == 200, response.text
    assert sum(encoded) < len(query) / 2
    assert [len(each.tokens) for each in inputs] == [world.client.limits.max_model_len - 1] * 2


async def test_pairs_with_more_tokens_than_a_body_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_PAIR_TOKENS", 3_000)
    message = await refusal(ranking_world(), "/v1/rerank", "a b, c. " * 10, ["d"] * 20)
    assert "documents: each with its query, make more than 3000 tokens" in message


async def test_the_first_pair_with_a_token_too_many_ends_the_work(encoded: list[int]) -> None:
    limit = TokenLimit(1_000, "are too many")
    with pytest.raises(InvalidRequest, match="more than 1000 tokens are too many"):
        await Encoder(small_tokenizer()).encode_joined([("a, " * 5_000, "b")] * 50, str, limit, list)
    assert sum(encoded) < 50_000
