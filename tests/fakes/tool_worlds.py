"""Servers whose model writes calls and reasoning as a given family does, one character a token."""

import re
from typing import Any

from fakes.http_world import HttpWorld
from fakes.small_tokenizer import tokenizer_of

# Shows all that a template may be given; `<think>` makes it one of a model that reasons.
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}"
    "{% if message.tool_call_id %} {{ message.name }} {{ message.tool_call_id }}{% endif %}{{ '\n' }}"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content or '' }}{% for call in message.tool_calls or [] %}<tool_call>{{ call | tojson }}</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{% if reasoning_effort is defined %}({{ reasoning_effort }}){% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% if is_open is defined %}<think>\n{% endif %}"
)
MARKS = {
    "mistral": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
    "mistral-list": ("[TOOL_CALLS]",),
    "llama3-json": ("<|python_tag|>",),
    "gpt-oss": ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"),
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "exact": {"type": "boolean"},
                "where": {"type": "object", "properties": {"lat": {"type": "number"}}},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]
HI = [{"role": "user", "content": "Hi"}]


def tool_world(family: str, says: str, **settings: Any) -> HttpWorld:
    special = MARKS.get(family, ())
    world = HttpWorld(
        says,
        tokenizer=tokenizer_of(TEMPLATE, special),
        room=8192,
        max_body_bytes=100_000,
        tool_format=family,
        **settings,
    )
    world.answer = [*_by_character(world, says, special), world.eos_id]
    return world


def _by_character(world: HttpWorld, says: str, special: tuple[str, ...]) -> list[int]:
    """Special tokens are one token, and a character may be several."""
    pattern = "|".join([*map(re.escape, special), r"(?s:.)"])
    return [token for piece in re.findall(pattern, says) for token in world.tokenizer.encode(piece, add_special=False)]
