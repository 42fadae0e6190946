"""Structured answers on a GPU: what the CUDA runner says has its shape, alone, in a crowd, and with `exact` alike."""

import json
import re
from pathlib import Path

import pytest
import torch

from chairlift import LLM, SamplingParams
from chairlift.core.structured import Structured
from fakes.tiny_model import write_tiny_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": -9, "maximum": 99}, "to": {"enum": ["up", "down", None]}},
    "required": ["x", "to"],
    "additionalProperties": False,
}
SHAPES = [
    Structured.json_schema(POINT),
    Structured.regex("(ab|c){2,5}d[0-9]{3}"),
    Structured.choice(["the fox", "hello"]),
]


def is_right(structured: Structured, text: str) -> bool:
    if structured.kind == "json_schema":
        found = json.loads(text)
        return set(found) == {"x", "to"} and -9 <= found["x"] <= 99 and found["to"] in ("up", "down", None)
    return (
        text in json.loads(structured.source)
        if structured.kind == "choice"
        else bool(re.fullmatch(structured.source, text))
    )


def test_answers_have_their_shapes_and_are_the_same_in_any_crowd(tmp_path: Path) -> None:
    llm = LLM(str(write_tiny_model(tmp_path)), dtype="bfloat16", exact=True, max_running=32, max_model_len=512)
    prompts = [{"prompt_token_ids": [5 + i, 9, 40 + i]} for i in range(48)]
    params = [
        SamplingParams(
            structured=SHAPES[i % 3], temperature=(i % 2) * 1.0, seed=i, max_tokens=200, logprobs=(None, 2)[i % 5 == 0]
        )
        for i in range(48)
    ]
    together = [each.samples[0] for each in llm.generate(prompts, params)]
    assert all(is_right(SHAPES[i % 3], sample.text) for i, sample in enumerate(together))
    alone = [llm.generate([prompts[i]], params[i])[0].samples[0].tokens for i in (0, 1, 2, 3, 10, 47)]
    assert alone == [together[i].tokens for i in (0, 1, 2, 3, 10, 47)]
