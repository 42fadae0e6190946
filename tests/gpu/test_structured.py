"""Structured answers on a GPU: what the CUDA runner says has its shape, alone, in a crowd, and with `exact` alike."""

from pathlib import Path

import pytest
import torch

from chairlift import LLM, SamplingParams
from fakes.shapes import SHAPES, has_shape
from fakes.tiny_model import write_tiny_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def test_answers_have_their_shapes_and_are_the_same_in_any_crowd(tmp_path: Path) -> None:
    llm = LLM(str(write_tiny_model(tmp_path)), dtype="bfloat16", exact=True, max_running=32, max_model_len=512)
    prompts = [{"prompt_token_ids": [5 + i, 9, 40 + i]} for i in range(48)]
    params = [
        SamplingParams(
            structured_outputs=SHAPES[i % 5],
            temperature=(i % 2) * 1.0,
            seed=i,
            max_tokens=200,
            logprobs=(None, 2)[i % 5 == 0],
        )
        for i in range(48)
    ]
    together = [each.outputs[0] for each in llm.generate(prompts, params)]
    assert all(has_shape(SHAPES[i % 5], sample.text) for i, sample in enumerate(together))
    alone = [llm.generate([prompts[i]], params[i])[0].outputs[0].token_ids for i in (0, 1, 2, 3, 10, 47)]
    assert alone == [together[i].token_ids for i in (0, 1, 2, 3, 10, 47)]
