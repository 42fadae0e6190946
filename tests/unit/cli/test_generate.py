import io
import json
import sys
from pathlib import Path

import pytest

from chairlift.cli.generate import read_shape, write
from chairlift.cli.inputs.prompts import gather, parse_lines
from chairlift.cli.main import main
from chairlift.core.errors import InvalidConfig
from chairlift.core.structured import Structured
from chairlift.llm import LLM
from chairlift.local.outputs import CompletionOutput, RequestOutput


def test_arguments_come_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("two\n\n three \r\n")
    assert gather(["one"], path) == ["one", "two", " three "]


def test_standard_input_is_read_when_nothing_else_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\n"))
    assert gather([], None) == ["one", "two"]
    assert gather(["zero"], None) == ["zero"]


def test_no_prompts_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(InvalidConfig, match="no prompts"):
        gather([], None)


def test_json_lines_hold_text_or_tokens() -> None:
    assert parse_lines(['{"prompt": "a\\nb", "id": 1}', '{"prompt": [1, 2]}'], "f") == ["a\nb", [1, 2]]


def test_text_that_looks_a_little_like_json_stays_text() -> None:
    assert parse_lines(["{", '{"text": "x"}', "[1]"], "f") == ["{", '{"text": "x"}', "[1]"]


@pytest.mark.parametrize("bad", ["plain", '{"prompt": 3}', '{"prompt": [1.5]}', '{"prompt": [true]}'])
def test_a_bad_json_line_is_named(bad: str) -> None:
    with pytest.raises(InvalidConfig, match="f, line 3"):
        parse_lines(['{"prompt": "a"}', "", bad], "f")


def answer(text: str, token_ids: list[int], finish_reason: str) -> CompletionOutput:
    return CompletionOutput(0, text, token_ids, finish_reason=finish_reason)


COMPLETIONS = [
    RequestOutput("1", "one", [1], [answer("erste", [5, 6], "stop"), answer("été", [7], "length")]),
    RequestOutput("2", None, [2, 3], [answer("zwei", [8], "length")]),
]


def test_texts_come_in_order() -> None:
    out = io.StringIO()
    write(["one", [2, 3]], COMPLETIONS, False, out)
    assert out.getvalue() == "erste\nété\nzwei\n"


def test_json_has_one_object_per_answer() -> None:
    out = io.StringIO()
    write(["one", [2, 3]], COMPLETIONS, True, out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["prompt"] for line in lines] == ["one", "one", [2, 3]]
    assert lines[0] == {
        "prompt": "one", "text": "erste", "finish_reason": "stop", "prompt_tokens": 1, "output_tokens": 2,
    }  # fmt: skip
    assert "été" in out.getvalue()


def test_questions_that_are_token_ids_are_refused_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LLM, "from_settings", lambda settings: pytest.fail("loaded"))
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": [1, 2]}\n')
    assert main(["generate", "--chat", "--file", str(path)]) == 2
    assert "--chat asks questions in words: leave it out for prompts that are token ids" in capsys.readouterr().err


def test_the_shape_of_answers_comes_from_a_file_or_an_expression(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"type": "integer"}')
    assert read_shape(path, None) == Structured.json_schema({"type": "integer"})
    assert read_shape(None, "[ab]") == Structured.regex("[ab]")
    assert read_shape(None, None) is None
    for bad in ("{", None):
        path.write_text(bad) if bad else path.unlink()
        with pytest.raises(InvalidConfig, match="--json-schema .*schema.json: "):
            read_shape(path, None)
