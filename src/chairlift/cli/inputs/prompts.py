"""Prompts for `generate` and `verify`: from arguments, a file or standard input.

A file holds one prompt per line, or JSON lines with "prompt" (text, or a list of token ids). Empty lines are skipped.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from chairlift.core.errors import InvalidConfig

Prompt = str | list[int]


def gather(arguments: Sequence[str], file: Path | None) -> list[Prompt]:
    prompts: list[Prompt] = list(arguments)
    if file is not None:
        try:
            prompts += parse_lines(file.read_text(encoding="utf-8").splitlines(), str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    elif not prompts and not sys.stdin.isatty():
        prompts += parse_lines(sys.stdin, "standard input")
    if not prompts:
        raise InvalidConfig("no prompts: give them as arguments, with --file, or on standard input")
    return prompts


def parse_lines(lines: Iterable[str], origin: str) -> list[Prompt]:
    numbered = [(number, line.rstrip("\r\n")) for number, line in enumerate(lines, 1) if line.strip()]
    # The first line decides: text that merely starts with a brace is not JSON with a "prompt".
    if not numbered or _json_prompt(numbered[0][1]) is None:
        return [line for _, line in numbered]
    prompts: list[Prompt] = []
    for number, line in numbered:
        prompt = _json_prompt(line)
        if prompt is None:
            raise InvalidConfig(f'{origin}, line {number}: not a JSON object with "prompt" (text or token ids)')
        prompts.append(prompt)
    return prompts


def _json_prompt(line: str) -> Prompt | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    prompt = value.get("prompt") if isinstance(value, dict) else None
    if isinstance(prompt, list) and all(type(token) is int for token in prompt):
        return prompt
    return prompt if isinstance(prompt, str) else None
