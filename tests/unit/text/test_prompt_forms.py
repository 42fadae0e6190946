from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from chairlift.core.errors import InvalidRequest
from chairlift.text.prompt_forms import is_chat, read_chat, read_prompt, read_prompts


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ("one", ["one"]),
        ({"prompt": "one"}, ["one"]),
        ({"prompt_token_ids": (1, 2)}, [[1, 2]]),
        ([], []),
        (("one", [1, 2], range(2), {"prompt": "x"}, {"prompt_token_ids": [3]}), ["one", [1, 2], [0, 1], "x", [3]]),
        ([np.array([1, 2]), torch.tensor([3])], [[1, 2], [3]]),
    ],
)
def test_each_form_is_read(prompts: Any, expected: list[Any]) -> None:
    found = read_prompts(prompts)
    assert found == expected
    assert all(type(token) is int for prompt in found if not isinstance(prompt, str) for token in prompt)


@pytest.mark.parametrize(
    ("read", "given", "field", "complaint"),
    [
        (read_prompts, 5, "prompts", "must be a list of prompts, each a text, "),
        (read_prompts, None, "prompts", "got NoneType"),
        (read_prompts, b"one", "prompts", "got bytes"),
        (read_prompts, {"one", "two"}, "prompts", "got set"),
        (read_prompts, [1, 2], "prompts", "write [token_ids]"),
        (read_prompts, ["one", None], "prompts[1]", "must be a text, a list of token ids, "),
        (read_prompts, [b"one"], "prompts[0]", "got bytes"),
        (read_prompts, [[1, "a"]], "prompts[0][1]", "must be a token id, a whole number, got str"),
        (read_prompts, [[1.5]], "prompts[0][0]", "got float"),
        (read_prompts, [[True]], "prompts[0][0]", "got bool"),
        (read_prompts, {"prompt": 5}, "prompts.prompt", "must be a text, got int"),
        (read_prompts, [{"prompt_token_ids": "ab"}], "prompts[0].prompt_token_ids", "must be a list of token ids"),
        (read_prompts, {"text": "x"}, "prompts", 'must hold "prompt" or "prompt_token_ids" and nothing else, got text'),
        (read_prompts, {"prompt": "x", "multi_modal_data": 1}, "prompts", "got prompt, multi_modal_data"),
        (read_prompts, {}, "prompts", "got nothing"),
        (read_prompts, [{"role": "user", "content": "x"}], "prompts[0]", "is a chat message; chat_prompt(messages)"),
        (read_prompt, ["one", "two"], "prompt", "for a list of prompts use generate"),
        (read_prompt, [{"role": "user", "content": "x"}], "prompt", "for a list of messages use stream_chat"),
        (read_prompt, 5, "prompt", "must be a text, "),
        (read_prompt, [[1]], "prompt[0]", "must be a token id"),
        (read_chat, [], "messages", "must be a list of messages, not empty"),
        (read_chat, [[{"role": "user", "content": "x"}]], "messages", "for several conversations use chat"),
    ],
)
def test_anything_else_is_refused_by_its_name_and_the_way_out(
    read: Callable[[object], object], given: object, field: str, complaint: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        read(given)
    assert refusal.value.field == field
    assert complaint in refusal.value.message


def test_a_list_of_dictionaries_is_a_conversation() -> None:
    assert is_chat([{"role": "user"}])
    assert not any(map(is_chat, ("text", [1], [], {"prompt": "x"}, None)))
