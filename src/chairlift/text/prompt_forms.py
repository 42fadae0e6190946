"""The forms of a prompt in Python: text, token ids, or vLLM's dictionary with either. Others are refused by the name of
the argument, with the valid forms."""

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, TypedDict, TypeGuard

from chairlift.core.errors import InvalidRequest

TokenIds = list[int]


class TextPrompt(TypedDict):
    prompt: str


class TokensPrompt(TypedDict):
    prompt_token_ids: Sequence[int]


_FORMS = 'a text, a list of token ids, {"prompt": text} or {"prompt_token_ids": ids}'
_NO_IDS = (str, bytes, bytearray, Mapping, set, frozenset)  # iterable too


def read_prompts(prompts: object) -> list[str | TokenIds]:
    """One prompt, or a list of them."""
    if isinstance(prompts, str | Mapping):
        return [_prompt("prompts", prompts)]
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
        raise InvalidRequest("prompts", f"must be a list of prompts, each {_FORMS}, got {_kind(prompts)}")
    if prompts and _is_id(prompts[0]):
        raise InvalidRequest("prompts", "is a list of token ids, not of prompts; for one prompt write [token_ids]")
    return [_prompt(f"prompts[{i}]", prompt) for i, prompt in enumerate(prompts)]


def read_prompt(prompt: object) -> str | TokenIds:
    if isinstance(prompt, list | tuple) and prompt and isinstance(prompt[0], str):
        raise InvalidRequest("prompt", f"must be one prompt, {_FORMS}; for a list of prompts use generate")
    if is_chat(prompt):
        raise InvalidRequest("prompt", f"must be one prompt, {_FORMS}; for a list of messages use stream_chat")
    return _prompt("prompt", prompt)


def read_texts(texts: object, name: str) -> list[str]:
    """A list of texts, not empty."""
    if not isinstance(texts, Sequence) or isinstance(texts, str | bytes) or not texts:
        raise InvalidRequest(name, f"must be a text or a list of texts, not empty, got {_kind(texts)}")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidRequest(f"{name}[{i}]", f"must be a text, got {_kind(text)}")
    return list(texts)


def is_chat(prompt: object) -> TypeGuard[list[dict[str, Any]]]:
    """Whether it is a list of messages, for a chat template."""
    return isinstance(prompt, list | tuple) and bool(prompt) and isinstance(prompt[0], Mapping)


def read_chat(messages: object) -> Sequence[Mapping[str, Any]]:
    if not is_chat(messages):
        raise InvalidRequest("messages", "must be a list of messages, not empty; for several conversations use chat")
    return messages


def read_chats(messages: object) -> list[Sequence[Mapping[str, Any]]]:
    """One conversation, or a list of them."""
    if is_chat(messages):
        return [messages]
    if not isinstance(messages, list | tuple) or not messages or not all(map(is_chat, messages)):
        raise InvalidRequest("messages", "must be a list of messages, or a list of such lists, none of them empty")
    return list(messages)


def _prompt(name: str, prompt: object) -> str | TokenIds:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Mapping):
        return _from_mapping(name, prompt)
    return _token_ids(name, prompt, _FORMS)


def _from_mapping(name: str, prompt: Mapping[Any, Any]) -> str | TokenIds:
    if "role" in prompt:
        raise InvalidRequest(name, "is a chat message; chat_prompt(messages) makes token ids of a list of messages")
    if prompt.keys() in ({"prompt_token_ids"}, {"prompt_token_ids", "prompt"}):
        return _token_ids(f"{name}.prompt_token_ids", prompt["prompt_token_ids"], "a list of token ids")
    if prompt.keys() != {"prompt"}:
        found = ", ".join(map(str, prompt))[:80] or "nothing"
        raise InvalidRequest(name, f'must hold "prompt" or "prompt_token_ids" and nothing else, got {found}')
    if not isinstance(prompt["prompt"], str):
        raise InvalidRequest(f"{name}.prompt", f"must be a text, got {_kind(prompt['prompt'])}")
    return prompt["prompt"]


def _token_ids(name: str, ids: Any, forms: str) -> TokenIds:
    if isinstance(ids, _NO_IDS) or not hasattr(ids, "__iter__"):
        raise InvalidRequest(name, f"must be {forms}, got {_kind(ids)}")
    found: TokenIds = list(ids)
    for i, token in enumerate(found):
        if type(token) is not int:  # of numpy or torch, perhaps
            if not _is_id(token):
                raise InvalidRequest(f"{name}[{i}]", f"must be a token id, a whole number, got {_kind(token)}")
            found[i] = index(token)
    return found


def _is_id(value: Any) -> bool:
    try:
        index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def _kind(value: object) -> str:
    return type(value).__name__
