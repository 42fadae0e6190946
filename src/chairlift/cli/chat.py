"""`chairlift chat`: a conversation in the terminal, with streamed answers.

Always: a question whose answer failed or never began is not kept in the conversation, so the next one can succeed.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, TextIO

from chairlift.cli.flags import add_option_flags, warned_settings
from chairlift.cli.sampling import add_sampling_flags, given
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams

HELP = "hold a conversation in this terminal"
DESCRIPTION = "Hold a conversation in this terminal, without a server."
_PROMPT = "> "
_GREETING = "Ask away. /reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


class Streams(Protocol):
    def stream(self, prompt: list[dict[str, str]], params: SamplingParams, /) -> Iterator[str]: ...


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="system message before the conversation (default: none)")
    add_sampling_flags(parser, without=("n", "best_of"))  # there is one answer
    add_option_flags(parser, "model", "engine")


def run(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    from chairlift.llm import LLM

    if sys.stdin.isatty():
        import readline  # noqa: F401  (gives `input` line editing and recall)
    llm = LLM.from_settings(settings)
    Conversation(llm, llm.default_params(**given(options)), options.system, sys.stdout).hold(input)
    return 0


class Conversation:
    def __init__(self, llm: Streams, params: SamplingParams, system: str | None, out: TextIO) -> None:
        self._llm = llm
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
        pieces: list[str] = []
        stream = self._llm.stream(asked, self._params)
        try:
            for piece in stream:
                pieces.append(piece)
                self._say(piece)
        except KeyboardInterrupt:
            self._say(" [stopped]")
        except InvalidRequest as error:
            self._say(f"[{error}; /reset starts anew]\n")
            return
        finally:
            # An answer that was stopped half-way frees its memory now, not when it is collected.
            if close := getattr(stream, "close", None):
                close()
        self._say("\n")
        if pieces:
            self._messages = [*asked, {"role": "assistant", "content": "".join(pieces)}]

    def _say(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
