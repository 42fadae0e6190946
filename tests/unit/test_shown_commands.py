"""Commands that README and docs show are ones that there are: known, with flags and values that are accepted."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from chairlift.cli.inputs.flags import flags_of
from chairlift.cli.main import _parser
from chairlift.config.options.resolve import OPTIONS
from chairlift.config.options.values import existing_folder, existing_path, named_folders, tokenizer_path
from chairlift.core.errors import InvalidConfig
from fakes.shown_commands import ROOT, Command, all_commands, inline_commands
from fakes.shown_reasons import OWN_TESTS, REASONS, own_test, reason

COMMANDS = all_commands()
OURS = [command for command in COMMANDS if command.words[0] == "chairlift"]
# In tests/e2e/test_shown_examples.py.
RUN = {"curl"} | {
    f"chairlift {each}"
    for each in (
        "cluster-key", "compare", "completion", "doctor", "generate", "list", "models", "plan", "policies", "simulate",
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return _parser()


def test_commands_are_accepted(
    parser: argparse.ArgumentParser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, command in enumerate(OURS):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        fault = _fault(parser, command)
        assert fault is None, f"{command.block.place}: {command.text}: {fault}"


def _fault(parser: argparse.ArgumentParser, command: Command) -> object:
    words = [word for word in command.words[1:] if word != "..."]
    try:
        options, unknown = parser.parse_known_args(words)
        if words[0] in ("serve", "node") and own_test(command.block) is None:
            _check_values(flags_of(options))
    except (InvalidConfig, SystemExit) as error:  # the parser has told why
        return error
    return unknown or None


def _check_values(given: Mapping[str, object]) -> None:
    for option in OPTIONS:
        value = given.get(option.name)
        if value is not None and "package.module:" not in str(value):  # a class of the reader's
            _make(option.parse, value)
            option.parse(value)


def _make(parse: object, value: object) -> None:
    """The files that an option has to find."""
    if parse in (existing_path, tokenizer_path):
        Path(str(value)).touch()
    elif parse is existing_folder:
        Path(str(value)).mkdir()
    elif parse is named_folders:
        assert isinstance(value, list)
        for each in value:
            Path(each.partition("=")[2]).mkdir(parents=True)


def test_commands_in_sentences_have_flags_that_there_are(parser: argparse.ArgumentParser) -> None:
    [choices] = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for place, text in inline_commands():
        flags = set(re.findall(r"--[a-z][a-z-]*", text))
        for word in text.split()[1].split("|"):
            assert word in choices, f"{place}: {text}"
            assert flags <= set(choices[word]._option_string_actions), f"{place}: {text}"


def test_a_command_is_run_or_says_why_not() -> None:
    def is_told(command: Command) -> bool:
        return bool(reason(command) or {command.words[0], " ".join(command.words[:2])} & RUN)

    untold = [f"{command.block.place}: {command.text}" for command in COMMANDS if not is_told(command)]
    assert untold == [], "run it in tests/e2e/test_shown_examples.py, or say why not"


def test_reasons_name_tests_that_there_are() -> None:
    for text in (*REASONS.values(), *OWN_TESTS.values()):
        for path in re.findall(r"tests/[\w/]+\.py", text):
            assert (ROOT / path).is_file(), path
