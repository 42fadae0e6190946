"""What a command line of `vllm bench serve` becomes."""

import argparse
from pathlib import Path

import pytest

from chairlift.cli.inputs.vllm_bench import take_vllm_flags
from chairlift.cli.main import _parser, main
from chairlift.config.options.foreign.names import Foreign
from chairlift.config.options.foreign.vllm_bench import VLLM_BENCH, VLLM_BENCH_SAME
from chairlift.core.errors import InvalidConfig


def taken(*arguments: str) -> argparse.Namespace:
    options = _parser().parse_args(["bench", *arguments])
    take_vllm_flags(options)
    return options


def test_their_names_are_none_of_ours_and_stand_for_flags_that_there_are() -> None:
    ours = _parser().parse_args(["bench"]).command.shown_flags
    names = {flag.removeprefix("--").replace("-", "_") for flag in ours}
    flags = [flag for each in VLLM_BENCH for flag in each.flags]
    assert sorted(flags) == sorted(set(flags))
    assert not set(flags) & set(ours)
    assert {each.option for each in VLLM_BENCH} - {""} <= names
    assert set(VLLM_BENCH_SAME) <= names


def test_nothing_of_theirs_changes_nothing() -> None:
    options = _parser().parse_args(["bench"])
    before = dict(vars(options))
    take_vllm_flags(options)
    assert vars(options) == before


def test_the_word_that_vllm_has_there_may_stand() -> None:
    assert taken("serve", "--num-prompts", "7", "--dataset-name", "random").workload.endswith("count=7")
    with pytest.raises(InvalidConfig, match="^latency: .* only the word `serve` may follow it; `chairlift serve` a"):
        taken("latency", "--model", "m")
    with pytest.raises(InvalidConfig, match="`serve` may follow it$"):
        taken("sweep")


def test_a_usual_command_line_is_taken_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    options = taken(
        "--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--model", "m", "--served-model-name", "n",
        "--host", "::1", "--port", "9", "--dataset-name", "random", "--random-input-len", "100",
        "--random-output-len", "20", "--random-range-ratio", "0.5", "--num-prompts", "7", "--request-rate", "2.5",
        "--burstiness", "0.25", "--goodput", "ttft:500", "e2el:2000", "--save-result", "--result-dir", "r",
        "--percentile-metrics", "ttft,tpot", "--ignore-eos", "--seed", "3", "--num-warmups", "4", "--label", "a title",
    )  # fmt: skip
    assert (options.api, options.model, options.url) == ("chat", "n", "http://[::1]:9")
    assert (options.workload, options.limit) == ("lengths:prompt=50-150,output=10-30,count=7", None)
    assert options.arrivals == "gamma:rate=2.5,cv=2"
    assert (options.slo, options.out, options.warmup) == ("ttft=500ms,e2e=2000ms", Path("r"), "4")
    assert (options.title, options.seed, options.ignore_eos) == ("a title", "3", True)
    assert capsys.readouterr().err == (
        "chairlift: warning: --percentile-metrics is ignored: mean, p50, p90, p99 and max of every figure are always "
        "shown\n"
    )


@pytest.mark.parametrize(
    ("arguments", "workload", "limit", "arrivals"),
    [
        ("--dataset-name random", "lengths:prompt=1024,output=128,count=1000", None, "none"),
        ("--input-len 5 --num-prompts 2", "lengths:prompt=5,output=128,count=2", None, "none"),
        ("--dataset-name sharegpt --dataset-path s.json --num-prompts 9", "s.json", "9", "none"),
        ("--dataset-path s.json --arrivals constant:rate=3", "s.json", None, "constant:rate=3"),
        ("--workload contest --num-prompts 9", "contest", "9", "trace"),
        ("--workload contest --request-rate inf", "contest", None, "none"),
        ("--workload contest --request-rate 4", "contest", None, "poisson:rate=4"),
        ("--workload contest --max-concurrency 8", "contest", None, "closed:concurrency=8"),
        ("--workload contest --max-concurrency 8 --request-rate inf", "contest", None, "closed:concurrency=8"),
    ],
)
def test_requests_and_arrivals(arguments: str, workload: str, limit: str | None, arrivals: str) -> None:
    options = taken(*arguments.split())
    assert (options.workload, options.limit, options.arrivals) == (workload, limit, arrivals)


def test_results_may_be_saved_to_a_folder_of_ours() -> None:
    assert taken("--save-result", "--out", "o").out == Path("o")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--base-url http://a --url http://b", "--base-url is --url here: give one of them"),
        ("--base-url http://a --port 1", "--base-url: has host and port; leave --host and --port out"),
        ("--random-input-len 5 --workload contest", "--random-input-len is --workload here: give one of them"),
        ("--random-input-len many", "--random-input-len must be a whole number"),
        ("--dataset-name random --random-range-ratio 1", "--random-range-ratio must be a number from 0 to below 1"),
        ("--dataset-name random --dataset-path f", "--dataset-path: --dataset-name random draws its requests"),
        ("--dataset-name sonnet", "--dataset-name must be random, sharegpt, burstgpt, custom, got 'sonnet'"),
        ("--dataset-name sharegpt", "--dataset-path is missing: the file of --dataset-name sharegpt"),
        ("--request-rate 3 --max-concurrency 4", "--max-concurrency: --request-rate sets the arrivals already"),
        ("--request-rate fast", "--request-rate must be a number above 0, got 'fast'"),
        ("--max-concurrency 0", "--max-concurrency must be a whole number"),
        ("--backend tgi", "--backend must be vllm, openai or openai-chat, got 'tgi'"),
        ("--endpoint /v2", "--endpoint must be /v1/completions or /v1/chat/completions, got '/v2'"),
        (
            "--backend openai --endpoint /v1/chat/completions",
            "--backend openai and --endpoint /v1/chat/completions are different APIs: give one of them",
        ),
        ("--goodput p99:3", "--goodput must be such as ttft:500 tpot:50 e2el:2000, in milliseconds, got 'p99:3'"),
        ("--save-result", "--save-result: use --out FOLDER"),
        ("--temperature 0.7", "--temperature: requests ask for greedy answers"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_the_way_out(arguments: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        taken(*arguments.split())
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "foreign", [each for each in VLLM_BENCH if not each.option and not each.is_needless], ids=lambda each: each.name
)
def test_what_has_no_counterpart_says_what_to_do(foreign: Foreign, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", foreign.flags[0], "1"]) == 2
    assert capsys.readouterr().err == f"chairlift: error: {foreign.flags[0]}: {foreign.note}\n"
