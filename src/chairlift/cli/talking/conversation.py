"""A conversation in the terminal: lines in, streamed answers out, and the commands that begin with a slash.

Always: a question whose answer failed or never began is not kept in the conversation, so the next one can succeed.
Reasoning is shown and not kept: chat templates want the answers alone.
"""

import json
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TextIO

from chairlift.config.options.values import did_you_mean
from chairlift.core.errors import ChairliftError, InvalidRequest
from chairlift.core.params import PARAMS
from chairlift.text.responses.reading.events import Content, Reasoning
from chairlift.text.responses.reading.gathered import Piece

Ask = Callable[[str], str]  # a line for a prompt
_PROMPT, _MORE = "> ", ". "
_QUOTES = '"""'
_LEAVING = ("/exit", "/quit", "/bye")
_GREETING = "Ask away. /help lists the commands, /exit or Ctrl-D leaves, Ctrl-C stops an answer."
_HELP = """\
/system [TEXT]      show the system message, or set it; /system none removes it
/set [NAME VALUE]   show the sampling parameters, or set one; VALUE none removes it
/save FILE          write the conversation to a new file, as JSON
/reset              forget the conversation, but not the system message
/load FILE          go on with a conversation that was saved
/exit, /bye         leave
A line that ends in \\ goes on in the next one, and so does what stands between
two \"\"\"."""
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_ANSWERS = ("n", "best_of")  # there is one


class Talks(Protocol):
    def stream_chat(
        self, messages: list[dict[str, str]], changes: dict[str, Any], /
    ) -> Generator[Piece, None, None]: ...


class Conversation:
    def __init__(
        self, model: Talks, changes: dict[str, Any], system: str | None, out: TextIO, errors: TextIO | None = None
    ) -> None:
        """`changes`: of the model's suggested sampling parameters. `errors`: where all but answers goes, of lines from
        a pipe; None: a person asks, who is greeted."""
        self._model = model
        self._changes = dict(changes)
        self._system = system
        self._messages: list[dict[str, str]] = []
        self._out = out
        self._errors = errors
        self._has_failed = False
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: self._say(_HELP + "\n"),
            "/system": self._set_system,
            "/set": self._set,
            "/save": self._save,
            "/load": self._load,
            "/reset": self._reset,
        }

    def hold(self, ask: Ask) -> bool:
        """Asks for lines until /exit, the end of input, or Ctrl-C at the prompt; whether every one was answered."""
        if self._errors is None:
            self._tell(_GREETING)
        while True:
            try:
                line = _whole(ask).strip()
            except (EOFError, KeyboardInterrupt):
                self._say("\n" if self._errors is None else "")
                break
            if line in _LEAVING:
                break
            if line.startswith("/"):
                self._obey(*line.partition(" ")[::2])
            elif line:
                self._answer(line)
        return not self._has_failed

    def _obey(self, name: str, rest: str) -> None:
        if name in self._commands:
            self._commands[name](rest.strip())
        else:
            self._say(f"{name} is not a command{did_you_mean(name, self._commands, '/')}; /help lists them.\n")

    def _reset(self, _: str) -> None:
        self._messages = []
        self._say("The conversation starts anew.\n")

    def _set_system(self, text: str) -> None:
        if text:
            self._system = None if text == "none" else text
        self._say(f"system: {self._system}\n" if self._system else "There is no system message.\n")

    def _set(self, rest: str) -> None:
        name, _, value = rest.removeprefix("parameter ").partition(" ")
        try:
            if rest:
                self._change(name, value.strip())
        except InvalidRequest as error:
            self._say(f"{error}\n")
            return
        shown = ", ".join(f"{name} {value}" for name, value in self._changes.items())
        self._say(f"{shown or 'as the model suggests'}\n")

    def _change(self, name: str, value: str) -> None:
        known = [each for each in PARAMS if PARAMS[each].is_public and each not in _ANSWERS]
        if name not in known:
            raise InvalidRequest(name, f"is no sampling parameter{did_you_mean(name, known)}; try temperature or top_p")
        if value in ("", "none"):
            self._changes.pop(name, None)
            return
        try:
            given = json.loads(value)
        except ValueError:
            given = value
        self._changes[name] = PARAMS[name].read(given)

    def _save(self, name: str) -> None:
        if not name:
            self._say("Name a new file: /save FILE\n")
            return
        try:
            with Path(name).expanduser().open("x", encoding="utf-8") as file:
                json.dump({"messages": self._all()}, file, ensure_ascii=False, indent=1)
        except FileExistsError:
            self._say(f"{name} is there already; name a new file.\n")
        except OSError as error:
            self._say(f"{name}: cannot be written: {error.strerror or error}; name a new file.\n")
        else:
            self._say(f"wrote {name}\n")

    def _load(self, name: str) -> None:
        try:
            found = json.loads(Path(name).expanduser().read_text(encoding="utf-8"))["messages"]
            messages = [{"role": each["role"], "content": each["content"]} for each in found]
        except (OSError, ValueError, KeyError, TypeError):
            self._tell(f"{name or 'FILE'} is no file that /save wrote.")
            return
        self._system = next((each["content"] for each in messages if each["role"] == "system"), self._system)
        self._messages = [each for each in messages if each["role"] != "system"]
        self._tell(f"{len(self._messages)} messages")

    def _tell(self, text: str) -> None:
        """What is no answer."""
        print(text, file=self._errors or self._out, flush=True)

    def _all(self, *more: dict[str, str]) -> list[dict[str, str]]:
        opening = [{"role": "system", "content": self._system}] if self._system else []
        return [*opening, *self._messages, *more]

    def _answer(self, question: str) -> None:
        asked = {"role": "user", "content": question}
        answer: list[str] = []
        try:
            # An answer that was stopped half-way frees its memory now, not when it is collected.
            with closing(self._model.stream_chat(self._all(asked), self._changes)) as pieces:
                self._show(pieces, answer)
        except KeyboardInterrupt:
            self._say(" [stopped]")
        except ChairliftError as error:
            self._has_failed = True
            self._tell(f"[{error}; /reset starts anew]")
            return
        self._say("\n")
        if answer:
            self._messages += [asked, {"role": "assistant", "content": "".join(answer)}]
        else:
            self._tell("[no answer; the question is forgotten]")

    def _show(self, pieces: Iterable[Piece], answer: list[str]) -> None:
        """Shows all, and adds the content to the answer as it comes."""
        begin, end = (_DIM, _PLAIN) if self._out.isatty() else ("thinking: ", "")
        for is_thought, run in groupby(pieces, lambda piece: isinstance(piece, Reasoning)):
            if is_thought and self._errors is not None:
                continue
            self._say(begin if is_thought else "")
            try:
                for piece in run:
                    assert isinstance(piece, Reasoning | Content)  # no tools were given
                    self._say(piece.text)
                    answer += [] if is_thought else [piece.text]
            finally:
                self._say(end if is_thought else "")
            self._say("\n\n" if is_thought else "")

    def _say(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _whole(ask: Ask) -> str:
    """A line, with those that it goes on in."""
    line = ask(_PROMPT)
    if line.strip().startswith(_QUOTES):
        lines = [line.strip().removeprefix(_QUOTES)]
        while not lines[-1].rstrip().endswith(_QUOTES):
            lines.append(ask(_MORE))
        lines[-1] = lines[-1].rstrip().removesuffix(_QUOTES)
        return "\n".join(lines)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(ask(_MORE))
    return "\n".join(lines)
