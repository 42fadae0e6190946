"""Vectors and scores from whole servers: HTTP, engine process, scheduler, real (tiny) encoders."""

import base64
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from chairlift import LLM
from fakes.encoders import WORDS, write_encoder
from fakes.patience import HANG_S
from fakes.served import Served, serve

pytestmark = pytest.mark.slow

LONG = " ".join(WORDS * 4)  # more than 48 tokens
TEXTS = [" ".join(WORDS[i : i + 2 + i % 7]) for i in range(12)]
NUMBERS = ("--kernels", "torch", "--dtype", "float32", "--exact")


@pytest.fixture(scope="module")
def client(embedder: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{embedder.url}/v1", api_key="none", max_retries=0, timeout=HANG_S) as client:
        yield client


@pytest.fixture(scope="module")
def wanted(encoder: Path) -> np.ndarray:
    return np.asarray(LLM(str(encoder), kernels="torch", dtype="float32", exact=True).embed(TEXTS))


def post(served: Served, path: str, **body: Any) -> httpx.Response:
    return httpx.post(served.url + path, json=body, timeout=HANG_S)


def test_the_client_gets_the_vectors_of_the_python_interface_in_order(
    client: openai.OpenAI, wanted: np.ndarray
) -> None:
    made = client.embeddings.create(model="encoder", input=TEXTS)  # in base64, as it asks by itself
    assert np.array_equal(np.array([each.embedding for each in made.data], np.float32), wanted)
    assert [each.index for each in made.data] == list(range(len(TEXTS)))
    assert made.usage.total_tokens == made.usage.prompt_tokens == sum(len(text.split()) + 2 for text in TEXTS)
    floats = client.embeddings.create(model="encoder", input=TEXTS[0], encoding_format="float")
    assert np.array_equal(np.array(floats.data[0].embedding, np.float32), wanted[0])


def test_token_ids_are_taken_as_they_are(client: openai.OpenAI, embedder: Served, wanted: np.ndarray) -> None:
    words = {
        word: index for index, word in enumerate(dict.fromkeys(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b", *WORDS]))
    }
    ids = [1, *(words[word] for word in TEXTS[3].split()), 2]
    for given in (ids, [ids]):
        made = client.embeddings.create(model="encoder", input=given)
        assert np.array_equal(np.array(made.data[0].embedding, np.float32), wanted[3])


def test_vectors_are_cut_and_normalised_again(client: openai.OpenAI, wanted: np.ndarray) -> None:
    made = client.embeddings.create(model="encoder", input=TEXTS[:2], dimensions=5)
    cut = wanted[:2, :5] / np.linalg.norm(wanted[:2, :5], axis=1, keepdims=True)
    np.testing.assert_allclose([each.embedding for each in made.data], cut, atol=1e-6)


def test_a_prompt_goes_before_the_text(embedder: Served) -> None:
    one = post(embedder, "/v1/embeddings", input="alps", prompt_name="query", encoding_format="base64").json()
    other = post(embedder, "/v1/embeddings", input="what are alps", encoding_format="base64").json()
    assert one["data"] == other["data"]
    assert len(base64.b64decode(one["data"][0]["embedding"])) == 4 * 32


def test_documents_are_ranked_by_the_similarity_of_vectors(embedder: Served, encoder: Path) -> None:
    ranked = post(embedder, "/v1/rerank", query="alps", documents=[*TEXTS, {"text": "what are alps"}]).json()["results"]
    assert ranked[0] == {"index": 12, "document": {"text": "what are alps"}, "relevance_score": pytest.approx(1.0)}
    scores = [each["relevance_score"] for each in ranked]
    assert scores == sorted(scores, reverse=True) and len(scores) == 13
    short = post(embedder, "/v2/rerank", query="alps", documents=[*TEXTS, LONG], top_n=3).json()["results"]
    assert [each.keys() for each in short] == [{"index", "relevance_score"}] * 3


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/embeddings", {"input": LONG}, "input: This model's maximum context length is 48 tokens; 78 tokens are"),
        ("/v1/embeddings", {"input": LONG}, "set truncate_prompt_tokens to -1 to cut it"),
        ("/v1/embeddings", {"input": []}, "input: must not be empty"),
        ("/v1/embeddings", {"input": ["the", ""]}, "input: must not be empty"),
        ("/v1/embeddings", {"input": ["the", 3]}, "input: must be a text, a list of texts, token ids"),
        ("/v1/embeddings", {"input": [3, 99]}, "input: token id 99 is outside the vocabulary of 60"),
        ("/v1/embeddings", {"input": ["the"] * 2049}, "input: must hold at most 2048 inputs, got 2049"),
        ("/v1/embeddings", {"input": "the", "dimensions": 33}, "dimensions: must be 1 to 32"),
        ("/v1/embeddings", {"input": "the", "encoding_format": "int8"}, "encoding_format: must be float or base64"),
        ("/v1/embeddings", {"input": "the", "prompt_name": "x"}, "prompt_name: must be one of query"),
        ("/v1/embeddings", {"input": "the", "truncate_prompt_tokens": 99}, "truncate_prompt_tokens: must be 1 to 48"),
        ("/v1/rerank", {"query": "the", "documents": []}, "documents: must not be empty"),
        ("/v1/rerank", {"query": "the", "documents": ["a"], "top_n": 0}, "top_n: must be at least 1, got 0"),
        ("/v1/embeddings", {"input": "the", "normalize": False}, "normalize: must be true or left out"),
        ("/v1/rerank", {"query": "the", "documents": ["a"], "max_tokens_per_doc": 0}, "max_tokens_per_doc: must be at"),
        (
            "/v1/rerank",
            {"query": LONG, "documents": ["a"], "max_tokens_per_doc": 1},
            "query: This model's maximum context",
        ),
        ("/v1/score", {"text_1": "the", "text_2": "a", "embed_dtype": "fp8_e4m3"}, "embed_dtype: must be float32"),
        ("/v1/score", {"text_1": "the"}, "text_1: give text_1 and text_2, or queries and items"),
        ("/v1/score", {"queries": ["a", "b"], "items": ["a"]}, "queries: must be one text, or 1 as items has, got 2"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, "model: encoder makes vectors"),
        ("/v1/completions", {"prompt": "a"}, "and no text; use /v1/embeddings"),
    ],
)
def test_mistakes_are_refused_by_field(embedder: Served, path: str, body: dict[str, Any], message: str) -> None:
    refused = post(embedder, path, **body)
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert message in error["message"]
    assert error["code"] == ("context_length_exceeded" if LONG in body.values() else "400")


def test_a_long_text_is_cut_where_the_body_asks(embedder: Served) -> None:
    made = post(embedder, "/v1/embeddings", input=LONG, truncate_prompt_tokens=-1).json()
    assert made["usage"]["prompt_tokens"] == 48


def test_long_documents_are_cut_where_the_body_says_how_long(embedder: Served) -> None:
    asked = {"query": "alps", "return_documents": False}
    cut = post(embedder, "/v1/rerank", documents=[LONG, TEXTS[0]], max_tokens_per_doc=2, **asked).json()
    short = [" ".join(text.split()[:2]) for text in (LONG, TEXTS[0])]
    assert cut["results"] == post(embedder, "/v1/rerank", documents=short, **asked).json()["results"]


def test_small_routes_know_the_model(embedder: Served) -> None:
    card = httpx.get(f"{embedder.url}/v1/models", timeout=HANG_S).json()["data"][0]
    assert (card["id"], card["max_model_len"]) == ("encoder", 48)
    assert httpx.get(f"{embedder.url}/health/generate", timeout=HANG_S).json() == {"status": "ok"}
    assert 'route="/v1/embeddings"' in httpx.get(f"{embedder.url}/metrics", timeout=HANG_S).text


def test_an_embedding_route_of_a_model_that_makes_text_says_how(server: Served) -> None:
    refused = post(server, "/v1/embeddings", input="a")
    assert refused.status_code == 400
    assert "tiny makes text; start the server with --task embed" in refused.json()["error"]["message"]


@pytest.mark.nightly
def test_pairs_are_scored_and_outlive_the_engine(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "ranker", has_head=True)
    pairs = [(TEXTS[i % 5], TEXTS[i % 12]) for i in range(400)]
    model = LLM(str(folder), kernels="torch", dtype="float32", exact=True)
    scores = [each.outputs.score for each in model.score(*map(list, zip(*pairs, strict=True)))]
    with serve(tmp_path / "log", "--model", folder, *NUMBERS) as served, ThreadPoolExecutor(8) as pool:
        body = {"text_1": [first for first, _ in pairs], "text_2": [second for _, second in pairs]}
        asked = [pool.submit(post, served, "/v1/score", **body) for _ in range(8)]
        os.kill(served.pids()[0], signal.SIGKILL)
        for each in asked:
            assert [row["score"] for row in each.result().json()["data"]] == scores
        refused = post(served, "/v1/embeddings", input="a")
        assert "scores pairs and makes no vectors; use /v1/rerank" in refused.json()["error"]["message"]
        ranked = post(served, "/rerank", query=TEXTS[0], documents=TEXTS, return_documents=False).json()["results"]
        wanted = model.score(TEXTS[0], TEXTS)
        assert [each["relevance_score"] for each in ranked] == sorted(map(float, wanted), reverse=True)
