import io
from collections.abc import Callable, Iterator

from chairlift.cli.chat import Conversation
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams

Messages = list[dict[str, str]]


class Parrot:
    """Answers with the last question, word by word; on "long" it is refused, on "stop" interrupted after a word."""

    def __init__(self) -> None:
        self.seen: list[Messages] = []
        self.num_closed = 0

    def stream(self, prompt: Messages, params: SamplingParams) -> Iterator[str]:
        self.seen.append(prompt)
        question = prompt[-1]["content"]
        try:
            if question == "long":
                raise InvalidRequest("prompt", "too long")
            for word in question.split():
                if word == "stop":
                    raise KeyboardInterrupt
                yield word + " "
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


def hold(*lines: str, system: str | None = None) -> tuple[Parrot, str]:
    parrot, out = Parrot(), io.StringIO()
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
