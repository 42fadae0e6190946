import io
from collections.abc import Callable, Generator

from chairlift.cli.chat import Conversation
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.text.responses.reading.events import Content, Reasoning

Messages = list[dict[str, str]]


class Parrot:
    """Answers with the last question, word by word, and thinks the words with a capital; on "long" it is refused, on
    "stop" interrupted after a word."""

    def __init__(self) -> None:
        self.seen: list[Messages] = []
        self.adapters: list[str | None] = []
        self.num_closed = 0

    def stream_chat(
        self, messages: Messages, params: SamplingParams, *, adapter: str | None
    ) -> Generator[Content | Reasoning, None, None]:
        self.seen.append(messages)
        self.adapters.append(adapter)
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def hold(*lines: str, system: str | None = None, is_terminal: bool = False) -> tuple[Parrot, str]:
    parrot, out = Parrot(), Terminal() if is_terminal else io.StringIO()
    Conversation(parrot, SamplingParams(), system, out).hold(ask_from(*lines))
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


def test_exit_leaves_at_once() -> None:
    assert hold("/exit", "one")[0].seen == []


def test_empty_lines_and_unknown_commands_ask_nothing() -> None:
    parrot, text = hold("", "  ", "/help me")
    assert parrot.seen == []
    assert "/help is not a command" in text


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


def test_every_question_is_asked_with_the_adapter() -> None:
    parrot = Parrot()
    Conversation(parrot, SamplingParams(), None, io.StringIO(), "sql").hold(ask_from("one", "two"))
    assert parrot.adapters == ["sql", "sql"]
