import argparse

import pytest

from chairlift.cli.inputs.sampling import add_sampling_flags, given
from chairlift.core.params import PARAMS, SamplingParams


def parser(**options: object) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(allow_abbrev=False)
    add_sampling_flags(made, **options)  # type: ignore[arg-type]
    return made


def test_flags_are_parsed_as_the_fields_of_the_parameters() -> None:
    flags = ["--top-k", "5", "--stop", "a", "--stop", "b", "--stop-token-ids", "7", "--ignore-eos", "--min-p", "0.5"]
    found = given(parser().parse_args(flags))
    assert found == {"top_k": 5, "stop": ["a", "b"], "stop_token_ids": [7], "ignore_eos": True, "min_p": 0.5}
    assert SamplingParams(**found).stop == ("a", "b")


def test_flags_not_given_are_left_to_the_model_except_max_tokens() -> None:
    assert given(parser().parse_args([])) == {}
    assert given(parser(max_tokens=256).parse_args([])) == {"max_tokens": 256}
    assert given(parser(max_tokens=256).parse_args(["--max-tokens", "3"])) == {"max_tokens": 3}


def test_every_parameter_has_a_flag_except_those_without_a_visible_effect() -> None:
    options = vars(parser(without=("n",)).parse_args([]))
    without = {
        "n",
        "logprobs",
        "prompt_logprobs",
        "logit_bias",
        "structured_outputs",
        "detokenize",
        "banned",
        "output_kind",
    }
    assert PARAMS.keys() - options.keys() == without


def test_help_says_what_a_flag_does_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"--top-k N {PARAMS['top_k'].help}" in shown
    assert "Longest answer in tokens (default: until the model stops or its context is full)" in shown
    assert f"{PARAMS['n'].help} (default: 1)" in shown
