"""The prompts of a completion's body as token ids."""

from collections.abc import Sequence
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.server.context import ServerContext
from chairlift.server.encoder import TokenLimit
from chairlift.server.openai.requests import CompletionRequest

MAX_PROMPTS = 1024


async def completion_prompts(context: ServerContext, request: CompletionRequest, limit: TokenLimit) -> list[list[int]]:
    prompt = request.prompt
    items: Sequence[Any] = [prompt] if isinstance(prompt, str) else prompt
    if len(items) > max(MAX_PROMPTS, limit.num_tokens) and isinstance(items[0], int):  # before reading all
        raise limit.refusal(f"{len(items)} tokens {limit.why}", len(items))
    if items and all(isinstance(item, int) for item in items):
        items = [items]
    if not items:
        raise InvalidRequest("prompt", "must not be empty")
    if len(items) > MAX_PROMPTS:
        raise InvalidRequest("prompt", f"must hold at most {MAX_PROMPTS} prompts, got {len(items)}")
    if len({type(item) for item in items}) > 1 or isinstance(items[0], int):
        raise InvalidRequest("prompt", "must be text, a list of texts, token ids or a list of token-id lists")
    if not all(items):
        raise InvalidRequest("prompt", "must not be empty")
    if isinstance(items[0], list):
        return list(items)
    add_special = request.add_special_tokens is not False
    return await context.encoder.encode_all(items, add_special, limit)
