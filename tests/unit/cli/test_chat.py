import io
import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from chairlift.cli.main import main
from chairlift.cli.talking.conversation import Conversation
from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.reading.events import Content, Reasoning
from fakes.tiny_model import write_tiny_model

Messages = list[dict[str, str]]


class Parrot:
    """Answers with the last question, word by word, and thinks the words with a capital; on "long" it is refused, on
    "stop" interrupted after a word."""

    def __init__(self) -> None:
        self.seen: list[Messages] = []
        self.num_closed = 0

    def stream_chat(self, messages: Messages, changes: dict[str, Any]) -> Generator[Content | Reasoning, None, None]:
        self.seen.append(messages)
        self.changes = dict(changes)
        question = messages[-1]["content"]
        try:
            if question == "long":
                raise InvalidRequest("prompt", "too long")
            for word in question.split():
                if word == "stop":
                    raise KeyboardInterrupt
                yield (Reasoning if word.istitle() else Content)(word + " ")
        finally:
            self.num_closed += 1


def ask_from(*lines: str) -> Callable[[str], str]:
    remaining = iter(lines)

    def ask(_: str) -> str:
        line = next(remaining, None)
        if line is None:
            raise EOFError
        return line

    return ask


def test_a_pipe_gets_the_answers_alone(tmp_path: Path) -> None:
    out, errors = io.StringIO(), io.StringIO()
    talk = Conversation(Parrot(), {}, None, out, errors)
    assert not talk.hold(ask_from("one two", "Hmm three", "long"))
    assert out.getvalue() == "one two \nthree \n"
    assert errors.getvalue() == "[prompt: too long; /reset starts anew]\n"


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    hold("hello", f"/save {saved}", system="Be brief.")
    parrot, _ = hold(f"/load {saved}", "again", "/set parameter temperature 0.5", "more")
    assert [message["content"] for message in parrot.seen[0]] == ["Be brief.", "hello", "hello ", "again"]
    assert parrot.changes == {"temperature": 0.5}
    assert "is no file that /save wrote" in hold("/load /no/such")[1]


def test_a_question_in_the_place_of_the_model_is_told_from_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "What is 2+2?", "--url", "http://127.0.0.1:9"]) == 2
    assert "MODEL 'What is 2+2?' is no name; for one answer: echo" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def hold(*lines: str, system: str | None = None, is_terminal: bool = False) -> tuple[Parrot, str]:
    parrot, out = Parrot(), Terminal() if is_terminal else io.StringIO()
    Conversation(parrot, {}, system, out).hold(ask_from(*lines))
    return parrot, out.getvalue()


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_answers_are_remembered() -> None:
    parrot, text = hold("one two", "three")
    assert parrot.seen[1] == [user("one two"), assistant("one two "), user("three")]
    assert "one two \nthree" in text


def test_the_system_message_survives_a_reset() -> None:
    parrot, _ = hold("one", "/reset", "two", system="be kind")
    assert parrot.seen[1] == [{"role": "system", "content": "be kind"}, user("two")]


@pytest.mark.parametrize("word", ["/exit", "/quit", "/bye"])
def test_exit_leaves_at_once(word: str) -> None:
    assert hold(word, "one")[0].seen == []


def test_empty_lines_and_unknown_commands_ask_nothing() -> None:
    parrot, text = hold("", "  ", "/rest")
    assert parrot.seen == []
    assert "/rest is not a command (did you mean /reset?); /help lists them." in text


def test_an_interrupt_keeps_what_was_said_and_goes_on() -> None:
    parrot, text = hold("one stop two", "three")
    assert parrot.seen[1][:2] == [user("one stop two"), assistant("one ")]
    assert "[stopped]" in text
    assert parrot.num_closed == 2


def test_a_refused_question_is_forgotten() -> None:
    parrot, text = hold("long", "three")
    assert parrot.seen[1] == [user("three")]
    assert "[prompt: too long" in text


def test_reasoning_is_shown_apart_and_not_kept() -> None:
    parrot, text = hold("Hm Well one two", "three")
    assert "thinking: Hm Well \n\none two \n" in text
    assert "\x1b" not in text
    assert parrot.seen[1] == [user("Hm Well one two"), assistant("one two "), user("three")]


def test_reasoning_is_dim_on_a_terminal() -> None:
    _, text = hold("Hm Well one two", is_terminal=True)
    assert "\x1b[2mHm Well \x1b[0m\n\none two \n" in text
    assert "thinking" not in text


def test_an_interrupt_while_it_thinks_leaves_the_terminal_as_it_was() -> None:
    parrot, text = hold("Hm stop", "three", is_terminal=True)
    assert "\x1b[2mHm \x1b[0m [stopped]\n[no answer; the question is forgotten]\n" in text
    assert parrot.seen[1] == [user("three")]
    assert parrot.num_closed == 2


def test_the_system_message_can_be_changed_while_talking() -> None:
    parrot, text = hold("/system", "/system be brief", "one", "/system none", "two")
    assert parrot.seen[0] == [{"role": "system", "content": "be brief"}, user("one")]
    assert parrot.seen[1] == [user("one"), assistant("one "), user("two")]
    assert "There is no system message." in text
    assert "system: be brief" in text


def test_sampling_parameters_can_be_set_and_removed() -> None:
    parrot, text = hold("/set temperature 0.5", "/set stop end", "/set top_p 1", "/set top_p none", "one")
    assert parrot.changes == {"temperature": 0.5, "stop": ("end",)}
    assert "temperature 0.5, stop ('end',), top_p 1\n" in text


def test_a_wrong_parameter_is_refused_in_a_line() -> None:
    parrot, text = hold("/set temprature 1", "/set top_p high", "/set", "one")
    assert "temprature: is no sampling parameter (did you mean temperature?)" in text
    assert "top_p: must be a number, got 'high'" in text
    assert "as the model suggests" in text
    assert parrot.changes == {}


def test_lines_go_on_after_a_backslash_and_between_quotes() -> None:
    parrot, _ = hold("one\\", "two", '"""three', "", 'four"""')
    assert [seen[-1] for seen in parrot.seen] == [user("one\ntwo"), user("three\n\nfour")]


def test_a_conversation_is_saved_in_a_new_file_only(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    _, text = hold("one", f"/save {path}", f"/save {path}", f"/save {tmp_path}/no/file", "/save", system="be kind")
    said = [{"role": "system", "content": "be kind"}, user("one"), assistant("one ")]
    assert json.loads(path.read_text()) == {"messages": said}
    assert f"wrote {path}" in text
    assert f"{path} is there already; name a new file." in text
    assert f"{tmp_path}/no/file: cannot be written: No such file or directory" in text
    assert "Name a new file: /save FILE" in text


def test_help_names_every_command() -> None:
    _, text = hold("/help")
    for name in ("/system", "/set", "/save", "/reset", "/exit"):
        assert f"\n{name}" in text


def test_a_servers_adapter_is_named_as_its_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "base", "--url", "http://127.0.0.1:9", "--adapter", "sql"]) == 2
    assert "--adapter: with --url, give the adapter's name as MODEL" in capsys.readouterr().err


def test_a_model_without_a_chat_template_is_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_tiny_model(tmp_path / "plain")
    (model / "tokenizer_config.json").unlink()
    (model / "model.safetensors").write_bytes(b"refused before this is read")
    assert main(["chat", str(model), "--device", "cpu", "--max-model-len", "64", "--num-blocks", "8"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        "chairlift: error: the model has no chat template: give one with --chat-template, or use `chairlift "
        "generate`\n",
    )
