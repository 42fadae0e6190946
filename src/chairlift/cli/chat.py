"""`chairlift chat`: a conversation in the terminal, with streamed answers, and the model's reasoning apart from them.

Always: a question whose answer failed or never began is not kept in the conversation, so the next one can succeed.
Reasoning is shown and not kept: chat templates want the answers alone.
"""

import argparse
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from itertools import groupby
from typing import Protocol, TextIO

from chairlift.cli.inputs.adapter import add_adapter_flag, known_adapter
from chairlift.cli.inputs.flags import add_option_flags, warned_settings
from chairlift.cli.inputs.sampling import add_sampling_flags, given
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.text.responses.reading.events import Content, Reasoning
from chairlift.text.responses.reading.gathered import Piece

HELP = "hold a conversation in this terminal"
DESCRIPTION = "Hold a conversation in this terminal, without a server."
_PROMPT = "> "
_GREETING = "Ask away. /reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Streams(Protocol):
    def stream_chat(
        self, messages: list[dict[str, str]], params: SamplingParams, /, *, adapter: str | None
    ) -> Generator[Piece, None, None]: ...


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="system message before the conversation (default: none)")
    add_adapter_flag(parser)
    add_sampling_flags(parser, without=("n", "best_of"))  # there is one answer
    add_option_flags(parser, "model", "engine")


def run(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    from chairlift.llm import LLM

    if sys.stdin.isatty():
        import readline  # noqa: F401  (gives `input` line editing and recall)
    llm = LLM.from_settings(settings)
    adapter = known_adapter(options, llm)
    Conversation(llm, llm.default_params(**given(options)), options.system, sys.stdout, adapter).hold(input)
    return 0


class Conversation:
    def __init__(
        self, llm: Streams, params: SamplingParams, system: str | None, out: TextIO, adapter: str | None = None
    ) -> None:
        self._llm = llm
        self._adapter = adapter
        self._params = params
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)
        self._out = out

    def hold(self, ask: Callable[[str], str]) -> None:
        """Asks for lines until /exit, the end of input, or Ctrl-C at the prompt."""
        self._say(_GREETING + "\n")
        while True:
            try:
                line = ask(_PROMPT).strip()
            except (EOFError, KeyboardInterrupt):
                self._say("\n")
                return
            if line == "/exit":
                return
            if line == "/reset":
                self._messages = list(self._opening)
                self._say("The conversation starts anew.\n")
            elif line.startswith("/"):
                self._say(f"{line.split()[0]} is not a command; there are /reset and /exit.\n")
            elif line:
                self._answer(line)

    def _answer(self, question: str) -> None:
        asked = [*self._messages, {"role": "user", "content": question}]
        answer: list[str] = []
        try:
            # An answer that was stopped half-way frees its memory now, not when it is collected.
            with closing(self._llm.stream_chat(asked, self._params, adapter=self._adapter)) as pieces:
                self._show(pieces, answer)
        except KeyboardInterrupt:
            self._say(" [stopped]")
        except InvalidRequest as error:
            self._say(f"[{error}; /reset starts anew]\n")
            return
        self._say("\n")
        if answer:
            self._messages = [*asked, {"role": "assistant", "content": "".join(answer)}]
        else:
            self._say("[no answer; the question is forgotten]\n")

    def _show(self, pieces: Iterable[Piece], answer: list[str]) -> None:
        """Shows all, and adds the content to the answer as it comes."""
        begin, end = (_DIM, _PLAIN) if self._out.isatty() else ("thinking: ", "")
        for is_thought, run in groupby(pieces, lambda piece: isinstance(piece, Reasoning)):
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
