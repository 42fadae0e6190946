"""One sample as its tokens arrive: what the model wrote is told once."""

from chairlift.core.params import SamplingParams
from chairlift.text.responses.templates.families import BY_NAME
from chairlift.text.responses.templates.model_format import format_of
from chairlift.text.responses.turn import ReadAs
from fakes.small_tokenizer import small_tokenizer

TEXT = "<think>Hm.</think>Yes."


def test_what_was_written_is_told_once() -> None:
    tokenizer = small_tokenizer()
    format = format_of(tokenizer, BY_NAME["hermes"].name)
    assert format is not None
    stream = ReadAs(format, (), False).stream(tokenizer, [], SamplingParams(), frozenset())
    told = []
    for token in tokenizer.encode(TEXT, add_special=False):
        stream.push(token)
        told.append(stream.take_written())
    stream.finish()
    assert "".join([*told, stream.take_written()]) == TEXT
