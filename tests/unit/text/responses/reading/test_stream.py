"""One sample as its tokens arrive: what the model wrote is told once."""

import pytest

from chairlift.core.params import SamplingParams
from chairlift.text.detokenize import Detokenizer
from chairlift.text.responses.reading.stream import ResponseStream
from chairlift.text.responses.templates.families import BY_NAME
from chairlift.text.responses.templates.model_format import format_of
from chairlift.text.responses.turn import ReadAs
from fakes.copied_text import CopiedText
from fakes.small_tokenizer import small_tokenizer

TEXT = "<think>Hm.</think>Yes."
TOKENIZER = small_tokenizer()


def new_stream() -> ResponseStream:
    format = format_of(TOKENIZER, BY_NAME["hermes"].name)
    assert format is not None
    return ReadAs(format, (), False).stream(TOKENIZER, b"", SamplingParams(), frozenset())


def test_what_was_written_is_told_once() -> None:
    stream, told = new_stream(), []
    for token in TOKENIZER.encode(TEXT, add_special=False):
        stream.push(token)
        told.append(stream.take_written())
    stream.finish()
    assert "".join([*told, stream.take_written()]) == TEXT


def test_what_was_written_is_not_copied_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    push = Detokenizer.push
    monkeypatch.setattr(Detokenizer, "push", lambda detokenizer, token: CopiedText(push(detokenizer, token)))
    monkeypatch.setattr(CopiedText, "num_copied", 0)
    stream, text = new_stream(), "Hello there. " * 200
    for token in TOKENIZER.encode(text, add_special=False):
        stream.push(token)
    assert stream.take_written() == text
    assert CopiedText.num_copied < 20 * len(text)
