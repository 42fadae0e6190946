"""The prompts of a body as token ids: texts, token ids or a conversation."""

from collections.abc import Sequence
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.server.context import ServerContext
from chairlift.server.encoder import TokenLimit
from chairlift.server.openai.requests import ChatRequest, CompletionRequest, ContentPart, Message, TokenizeRequest
from chairlift.text.chat import render

MAX_PROMPTS = 1024
MAX_MESSAGES = 4096  # a template takes microseconds for each, in which other requests wait
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


async def completion_prompts(context: ServerContext, request: CompletionRequest, limit: TokenLimit) -> list[list[int]]:
    prompt = request.prompt
    items: Sequence[Any] = [prompt] if isinstance(prompt, str) else prompt
    if len(items) > max(MAX_PROMPTS, limit.num_tokens) and isinstance(items[0], int):  # before reading all
        raise InvalidRequest("prompt", f"{len(items)} tokens {limit.why}")
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


async def chat_prompt(context: ServerContext, request: ChatRequest | TokenizeRequest, limit: TokenLimit) -> list[int]:
    messages = request.messages or []
    if not messages:
        raise InvalidRequest("messages", "must not be empty")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequest("messages", f"must hold at most {MAX_MESSAGES} messages, got {len(messages)}")
    continues = bool(request.continue_final_message)
    adds = request.add_generation_prompt
    if continues and adds:
        raise InvalidRequest("continue_final_message", "cannot be combined with add_generation_prompt")
    chat = [_message(index, message) for index, message in enumerate(messages)]
    await context.encoder.check(sum(len(message["content"]) for message in chat), limit)
    text = render(
        context.tokenizer,
        chat,
        add_generation_prompt=not continues if adds is None else adds,
        continue_final_message=continues,
        template_kwargs=request.chat_template_kwargs or {},
        escape_special_tokens=context.settings.escape_special_tokens,
    )
    [ids] = await context.encoder.encode_all([text], False, limit)
    return ids


def _message(index: int, message: Message) -> dict[str, Any]:
    where = f"messages[{index}]"
    for name in ("tool_calls", "tool_call_id", "function_call", "audio"):
        if getattr(message, name):
            raise InvalidRequest(f"{where}.{name}", "is not supported by this server; leave it out")
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequest(f"{where}.role", f"must be one of {', '.join(_ROLES)}, got {message.role[:40]!r}")
    if message.content is None:
        raise InvalidRequest(f"{where}.content", "is required")
    content = message.content if isinstance(message.content, str) else _joined(where, message.content)
    rendered = {"role": role, "content": content}
    return rendered if message.name is None else rendered | {"name": message.name}


def _joined(where: str, parts: list[ContentPart]) -> str:
    for index, part in enumerate(parts):
        if part.type != "text":
            raise InvalidRequest(f"{where}.content[{index}].type", f"{part.type[:40]!r} is not supported; send text")
        if part.text is None:
            raise InvalidRequest(f"{where}.content[{index}].text", "is required")
    return "".join(part.text or "" for part in parts)
