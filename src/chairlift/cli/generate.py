"""`chairlift generate`: completions of many prompts in one batch, without a server, in the order of the prompts."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from chairlift.cli.inputs.flags import add_option_flags, warned_settings
from chairlift.cli.inputs.prompts import Prompt, gather
from chairlift.cli.inputs.sampling import add_adapter_flag, add_sampling_flags, given, known_adapter
from chairlift.core.errors import InvalidConfig
from chairlift.core.structured import Structured

if TYPE_CHECKING:
    from chairlift.local.outputs import RequestOutput

HELP = "continue prompts given here or in a file"
DESCRIPTION = "Continue prompts, without a server; answers come in the order of the prompts."
USAGE = "[PROMPT ...] [options]"
_MAX_TOKENS = 256


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompts", nargs="*", metavar="PROMPT", help="text to continue (default: --file, else standard input)"
    )
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help='read prompts: one per line, or JSON lines with "prompt"'
    )
    parser.add_argument("--chat", action="store_true", help="ask each prompt as a question, in the model's chat format")
    parser.add_argument("--json", action="store_true", help="print one JSON object per answer instead of its text")
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument(
        "--json-schema", type=Path, metavar="FILE", help="hold each answer to the JSON schema in this file"
    )
    shapes.add_argument("--regex", metavar="PATTERN", help="hold each answer to this regular expression")
    add_adapter_flag(parser)
    add_sampling_flags(parser, max_tokens=_MAX_TOKENS)
    add_option_flags(parser, "model", "engine", "record")


def run(options: argparse.Namespace) -> int:
    prompts = gather(options.prompts, options.file)
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    if options.chat and len(texts) < len(prompts):
        raise InvalidConfig("--chat asks questions in words: leave it out for prompts that are token ids")
    shape = read_shape(options.json_schema, options.regex)
    settings = warned_settings(options)
    from chairlift.llm import LLM

    llm = LLM.from_settings(settings)
    params = llm.get_default_sampling_params(**given(options), structured_outputs=shape)
    adapter = known_adapter(options, llm)
    if options.chat:
        completions = llm.chat([[{"role": "user", "content": text}] for text in texts], params, lora_request=adapter)
    else:
        completions = llm.generate(prompts, params, lora_request=adapter)
    write(prompts, completions, options.json, sys.stdout)
    return 0


def read_shape(json_schema: Path | None, regex: str | None) -> Structured | None:
    """What answers are held to."""
    if regex is not None:
        return Structured.regex(regex)
    if json_schema is None:
        return None
    try:
        return Structured.json_schema(json.loads(json_schema.read_text()))
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"--json-schema {json_schema}: {error}") from error


def write(prompts: Sequence[Prompt], completions: "Sequence[RequestOutput]", is_json: bool, out: TextIO) -> None:
    """One answer after another: its text and a line break, or one JSON object per line."""
    for prompt, completion in zip(prompts, completions, strict=True):
        for sample in completion.outputs:
            if not is_json:
                out.write(sample.text + "\n")
                continue
            answer = {
                "prompt": prompt,
                "text": sample.text,
                **({"reasoning": sample.reasoning} if sample.reasoning else {}),
                "finish_reason": sample.finish_reason,
                "prompt_tokens": len(completion.prompt_token_ids),
                "output_tokens": len(sample.token_ids),
            }
            out.write(json.dumps(answer, ensure_ascii=False) + "\n")
