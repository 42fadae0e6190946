"""Completions of a batch, put together as their outputs arrive."""

import pytest

from chairlift.core.params import SamplingParams
from chairlift.live.wire.messages import Output
from chairlift.live.wire.shared_switchboard import Request
from chairlift.local.completing import Completing
from chairlift.text.detokenize import Detokenizer
from chairlift.text.stream import TextStream
from fakes.copied_text import CopiedText
from fakes.small_tokenizer import small_tokenizer

TOKENIZER = small_tokenizer()


def text_stream(request: Request) -> TextStream:
    return TextStream(TOKENIZER, b"", request[1])


def test_a_text_is_not_copied_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    push = Detokenizer.push
    monkeypatch.setattr(Detokenizer, "push", lambda detokenizer, token: CopiedText(push(detokenizer, token)))
    monkeypatch.setattr(CopiedText, "num_copied", 0)
    text = "Hello there. " * 200
    ids = TOKENIZER.encode(text, add_special=False)
    request = ([1], SamplingParams(max_tokens=len(ids)), len(ids))
    completing = Completing(["Hi"], [request], [7], [text_stream], TOKENIZER, lambda key, sample: None)
    for i, token in enumerate(ids):
        is_complete = completing.take(Output(7, 0, token, "length" if i == len(ids) - 1 else None))
        assert is_complete == completing.is_over == (i == len(ids) - 1)
    [completion] = completing.outputs()
    assert (completion.text, completion.outputs[0].finish_reason) == (text, "length")
    assert CopiedText.num_copied < 20 * len(text)
