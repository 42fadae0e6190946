"""Names of other engines, as flags and in files."""

from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.cli.inputs.flags import flags_of, settings_from
from chairlift.cli.main import _parser, _spelled, main
from chairlift.config.options.foreign.llama_cpp import LLAMA_CPP_SAME
from chairlift.config.options.foreign.table import FOREIGN, by_flag
from chairlift.config.options.foreign.vllm import VLLM_SAME
from chairlift.config.options.resolve import OPTIONS, resolve
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.text.responses.templates.families import BY_NAME

OURS = {option.name for option in OPTIONS}


def settings(*arguments: str) -> Settings:
    return settings_from(_parser().parse_args(["serve", *arguments]))


def test_a_foreign_name_is_none_of_ours_and_means_one_thing() -> None:
    assert OURS.isdisjoint(foreign.name for foreign in FOREIGN)
    flags = [flag for foreign in FOREIGN for flag in foreign.flags]
    assert sorted(flags) == sorted(set(flags))
    assert {foreign.option for foreign in FOREIGN} - {""} <= OURS
    assert {*VLLM_SAME, *LLAMA_CPP_SAME} <= OURS | {"config"}
    assert all(foreign.note for foreign in FOREIGN if not foreign.option)


def test_a_constant_is_a_value_of_ours() -> None:
    for foreign in (each for each in FOREIGN if each.shape == "constant"):
        for flag in foreign.flags:
            assert getattr(settings(flag), foreign.option) == foreign.constant, flag


@pytest.mark.parametrize(
    ("arguments", "option", "value"),
    [
        (("--max-num-seqs", "64"), "max_running", 64),
        (("--max-num-batched-tokens=4096",), "max_step_tokens", 4096),
        (("--gpu-memory-utilization", "0.8"), "memory", 0.8),
        (("-tp", "2"), "tensor_parallel", 2),
        (("--no-enable-prefix-caching",), "prefix_cache", False),
        (("--kv-cache-dtype", "fp8_e4m3"), "kv_dtype", "fp8"),
        (("--tool-call-parser", "qwen3_coder"), "tool_format", "qwen3-coder"),
        (("--tool-call-parser", "llama4_json"), "tool_format", "llama3-json"),
        (("--tool-call-parser", "pythonic"), "tool_format", "llama4-pythonic"),
        (("--tool-call-parser", "hermes"), "tool_format", "hermes"),
        (("--data-parallel-size", "2"), "replicas", 2),
        (("--runner", "pooling"), "task", "pooling"),
        (("-m", "a/b"), "model", "a/b"),
        (("-hf", "a/b:Q4_K_M"), "model", "a/b:Q4_K_M"),
        (("-c", "4096"), "max_model_len", 4096),
        (("-c", "0"), "max_model_len", None),
        (("-np", "4"), "max_running", 4),
        (("-t", "-1"), "threads", 0),
        (("--served-model-name", "a", "b"), "served_model_name", ("a", "b")),
        (("--dtype", "half"), "dtype", "float16"),
        (("--load-format", "safetensors"), "load_format", "auto"),
        (("--max-model-len", "32k"), "max_model_len", 32000),
        (("--max-model-len", "1.5K"), "max_model_len", 1536),
        (("--max-model-len", "-1"), "max_model_len", None),
        (("--tokenizer", "org/name"), "tokenizer", Path("org/name")),
        (("--quantization", "gguf"), "quantize", "auto"),
        (("--quantization", "awq_marlin"), "quantize", "auto"),
        (("--generation-config", "vllm"), "generation_config", "vllm"),
        (("--context-length", "auto"), "max_model_len", None),
        (("--chunked-prefill-size", "-1"), "max_step_tokens", None),
        (("--disable-radix-cache",), "prefix_cache", False),
        (("--schedule-policy", "lpm"), "policy", "longest-prefix"),
        (("--tool-call-parser", "qwen25"), "tool_format", "hermes"),
        (("--preferred-sampling-params", '{"top_k": 3}'), "override_generation_config", {"top_k": 3}),
    ],
)
def test_an_alias_sets_our_option(arguments: tuple[str, ...], option: str, value: object) -> None:
    assert getattr(settings(*arguments), option) == value


def test_adapters_are_taken_by_their_name(tmp_path: Path) -> None:
    found = settings("--enable-lora", "--lora-modules", f"a={tmp_path}", f"b={tmp_path}")
    assert found.lora == (("a", tmp_path), ("b", tmp_path))
    assert found.warnings == (
        "--enable-lora is ignored: adapters are served where --lora or --lora-dir names them",
    )  # fmt: skip


def test_adapters_are_taken_as_json(tmp_path: Path) -> None:
    found = settings("--lora-modules", f'{{"name": "a", "path": "{tmp_path}", "base_model_name": "x"}}')
    assert found.lora == (("a", tmp_path),)


def test_all_that_is_refused_is_named_in_one_start(capsys: pytest.CaptureFixture[str]) -> None:
    known = [
        "--max-num-seqs=foo", "--ssl-ca-certs", "x", "--quantization", "quark", "--speculative_config.method", "x",
        "--dtype", "int3",
    ]  # fmt: skip
    expected = [
        "--ssl-ca-certs: clients' certificates are not asked for",
        "--speculative-config: there is no speculative decoding",
        "--dtype must be one of auto, ",
        "--quantization must be one of auto, none, stored, ",
        "--max-num-seqs must be a whole number",
    ]
    assert main(["serve", *known]) == 2
    told = capsys.readouterr().err.splitlines()
    assert [line[: len(start)] for line, start in zip(told, _lines(expected), strict=True)] == _lines(expected)
    with pytest.raises(SystemExit):
        main(["serve", "--foo", "7", "--speculative-num-steps", "3", *known])
    _, *told = capsys.readouterr().err.replace("chairlift serve: ", "chairlift: ").splitlines()
    unknown = ["unrecognized option: --foo", "--speculative-num-steps: there is no speculative decoding"]
    assert [line[: len(start)] for line, start in zip(told, _lines(unknown + expected), strict=True)] == _lines(
        unknown + expected
    )


def _lines(mistakes: list[str]) -> list[str]:
    return [f"chairlift: error: {mistake}" for mistake in mistakes]


def test_parts_of_an_option_are_taken_together() -> None:
    given = ["--override-generation-config", '{"top_k": 3}', "--override_generation_config.top_p=0.5"]
    more = ["--default-chat-template-kwargs.enable_thinking", "false", "--limit-mm-per-prompt.video", "0"]
    options = _parser().parse_args(["serve", *_spelled([*given, *more])])
    found = settings_from(options)
    assert found.override_generation_config == {"top_k": 3, "top_p": 0.5}
    assert found.default_chat_template_kwargs == {"enable_thinking": False}
    assert found.warnings == ("--limit-mm-per-prompt is ignored: models take text alone",)


def test_a_file_may_use_the_names_too(tmp_path: Path) -> None:
    (tmp_path / "vllm.yaml").write_text("max-num-seqs: 7\nenforce-eager: true\n")
    found = resolve({}, tmp_path / "vllm.yaml")
    assert found.max_running == 7
    assert "vllm.yaml: enforce-eager is ignored: " in found.warnings[0]
    (tmp_path / "other.yaml").write_text("worker_cls: a.B\n")
    with pytest.raises(InvalidConfig, match=r"other.yaml: worker_cls: code of your own is not run beside the engine"):
        resolve({}, tmp_path / "other.yaml")


def test_an_option_under_two_names_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="--max-num-seqs is --max-running here: give one of them"):
        settings("--max-num-seqs", "4", "--max-running", "4")
    with pytest.raises(InvalidConfig, match="--parallel is --max-running here: give one of them"):
        settings("--max-num-seqs", "4", "-np", "4")


def test_what_has_no_counterpart_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    for foreign in (each for each in FOREIGN if not each.option and not each.is_needless):
        for flag in foreign.flags:
            assert by_flag(flag) is foreign
            assert main(["serve", flag, "1"]) == 2
            assert capsys.readouterr().err == f"chairlift: error: {foreign.flags[0]}: {foreign.note}\n"


def test_what_is_not_needed_is_ignored_with_a_word() -> None:
    for foreign in (each for each in FOREIGN if each.is_needless):
        value = {"value": ["x"], "values": ["1", "2"]}.get(foreign.shape, [])
        given = settings(foreign.flags[-1], *value)
        assert given.warnings == (f"{foreign.flags[0]} is ignored: {foreign.note}",)
        assert replace(given, warnings=()) == Settings()


def test_aliases_are_ours_where_flags_are_asked_for() -> None:
    assert flags_of(_parser().parse_args(["serve", "--max-num-seqs", "4"]))["max_running"] == "4"


def test_every_parser_of_theirs_stands_for_a_format_that_there_is() -> None:
    parser = by_flag("--tool-call-parser")
    assert parser is not None and {*parser.values.values()} <= {*BY_NAME}


def test_an_alias_of_an_option_that_a_command_lacks_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--max-num-seqs", "4"])
    assert "--max-num-seqs: is --max-running, which this command has not" in capsys.readouterr().err
