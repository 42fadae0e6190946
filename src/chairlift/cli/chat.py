"""`chairlift chat`: a conversation in the terminal, with a model that is loaded here or with a server's."""

import argparse
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.inputs.flags import add_model_argument, add_option_flags, warned_settings
from chairlift.cli.inputs.sampling import add_adapter_flag, add_sampling_flags, given, known_adapter
from chairlift.cli.talking.conversation import Conversation, Talks
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.llm import LLM
    from chairlift.text.responses.reading.gathered import Piece
    from chairlift.text.tokenizer import Tokenizer

HELP = "hold a conversation in this terminal"
DESCRIPTION = (
    "Hold a conversation in this terminal: with MODEL, which is loaded here, or with the server at --url, whose model "
    "MODEL then names."
)
USAGE = "[MODEL] [options]"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument(
        "--url", metavar="URL", help="address of a server with OpenAI's API (default: none, load MODEL)"
    )
    parser.add_argument("--api-key", metavar="KEY", help="key for --url (default: the variable OPENAI_API_KEY)")
    parser.add_argument("--system", metavar="TEXT", help="system message before the conversation (default: none)")
    add_adapter_flag(parser)
    add_sampling_flags(parser, without=("n", "best_of"))  # there is one answer
    add_option_flags(parser, "model", "engine")


def run(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    if settings.model is not None and " " in settings.model and not Path(settings.model).exists():
        raise InvalidConfig(f"MODEL {settings.model!r} is no name; for one answer: echo QUESTION | chairlift chat")
    if sys.stdin.isatty():
        import readline  # noqa: F401  (gives `input` line editing and recall)
    model: Talks
    if options.url is not None:
        if options.adapter is not None:
            raise InvalidConfig("--adapter: with --url, give the adapter's name as MODEL")
        from chairlift.cli.talking.remote import RemoteChat

        model = RemoteChat(options.url, settings.model, options.api_key or os.environ.get("OPENAI_API_KEY", ""))
        print(f"{model.model} at {options.url}", file=sys.stderr)
    else:
        if sys.stderr.isatty():
            print(f"loading {settings.model or 'the embedded model'} ...", file=sys.stderr, flush=True)
        from chairlift.llm import LLM

        llm = LLM.from_settings(settings, _check_template)
        model = _Local(llm, known_adapter(options, llm))
    if sys.stdin.isatty():
        Conversation(model, given(options), options.system, sys.stdout).hold(input)
        return 0
    piped = Conversation(model, given(options), options.system, sys.stdout, sys.stderr)
    return 0 if piped.hold(lambda _: input()) else 1


def _check_template(tokenizer: "Tokenizer") -> None:
    if tokenizer.chat_template is None:
        raise InvalidConfig(
            "the model has no chat template: give one with --chat-template, or use `chairlift generate`"
        )


@dataclass(frozen=True, slots=True)
class _Local:
    llm: "LLM"
    adapter: str | None

    def stream_chat(self, messages: list[dict[str, str]], changes: dict[str, Any]) -> "Generator[Piece, None, None]":
        params = self.llm.get_default_sampling_params(**{"max_tokens": None, **changes})
        return self.llm.stream_chat(messages, params, lora_request=self.adapter)
