"""Large bodies that people send: each passes every bound."""

from typing import Any

import pytest

from chairlift.models.embedding.declared import RERANK, AnswerTokens, EmbeddingConfig
from fakes.http_world import HttpWorld

CONTEXT = 131_072
RULES = 1_800
COMPLETION: dict[str, Any] = {"max_tokens": 2, "prompt": "Hello"}
CHAT: dict[str, Any] = {"max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}
GRAMMAR = "start: " + " | ".join(f"rule{i}" for i in range(RULES)) + "\n"
GRAMMAR += "\n".join(f'rule{i}: "name {i}" /[a-z]+/? ("," /[0-9]+/)*' for i in range(RULES))
SCHEMA = {
    "type": "object",
    "properties": {f"p{i}": {"type": "string", "pattern": "^[a-z]?[0-9]*$"} for i in range(1_000)},
    "required": [f"p{i}" for i in range(1_000)],
}
TOOL = {"type": "object", "properties": {"path": {"type": "string", "description": "Where it is. " * 20}}}
TOOLS = [{"type": "function", "function": {"name": f"tool_{i}", "parameters": TOOL}} for i in range(100)]
RERANKER = EmbeddingConfig(task=RERANK, answer=AnswerTokens(true=5, false=6), max_len=512)
BODIES: dict[str, dict[str, Any]] = {
    "128 samples": COMPLETION | {"n": 128},
    "128 samples with the scores of 2,000 tokens each": COMPLETION | {"n": 128, "max_tokens": 2_000, "logprobs": 5},
    "a prompt of the whole context": COMPLETION | {"prompt": [5] * (CONTEXT - 2)},
    "scores of a long prompt": COMPLETION | {"prompt": [5] * 20_000, "echo": True, "logprobs": 1, "max_tokens": 0},
    "64 prompts of 8,000 tokens": COMPLETION | {"prompt": [[5] * 8_000] * 64},
    "a text of the whole context": COMPLETION | {"prompt": "Hello there. " * (CONTEXT // 14)},
    "1,000 messages": CHAT | {"messages": CHAT["messages"] * 1_000},
    "scores of a long answer": CHAT | {"max_tokens": 100_000, "logprobs": True, "top_logprobs": 20},
    "scores without a limit": CHAT | {"n": 8, "max_tokens": None, "logprobs": True, "top_logprobs": 20},
    "a grammar of 100 kB": COMPLETION | {"guided_grammar": GRAMMAR, "max_tokens": 100},
    "a schema of 1,000 properties": CHAT | {"guided_json": SCHEMA, "max_tokens": 60_000},
    "5,000 choices": COMPLETION | {"guided_choice": [f"choice {i}" for i in range(5_000)]},
    "100 tools": CHAT | {"tools": TOOLS},
    "200 biases": COMPLETION | {"logit_bias": {str(i): 1.0 for i in range(200)}},
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_large_body_is_answered(name: str) -> None:
    world = HttpWorld("Hello", room=CONTEXT, max_running=128, max_body_bytes=2**23)
    response = await world.post(
        "/v1/chat/completions" if "messages" in BODIES[name] else "/v1/completions", BODIES[name]
    )
    assert response.status_code == 200, response.text[:500]
    assert "grammar" not in name or len(GRAMMAR) > 100_000


async def test_2047_documents_are_all_read() -> None:
    world = HttpWorld(embedding=RERANKER, max_body_bytes=2**23)
    await world.post("/v1/rerank", {"query": "Hello", "documents": ["Hello there."] * 2_047})
    assert len(world.client.requests) == 2_047
