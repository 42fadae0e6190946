from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from chairlift.config.options.presets import PRESETS
from chairlift.config.options.resolve import OPTIONS, resolve
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig


def yaml_file(folder: Path, text: str) -> Path:
    path = folder / "chairlift.yaml"
    path.write_text(text)
    return path


def test_every_setting_is_an_option_and_the_other_way_round() -> None:
    assert {option.name for option in OPTIONS} == {field.name for field in fields(Settings)} - {
        "compat",
        "given",
        "takes_adapters",
        "warnings",
    }


def test_nothing_given_gives_the_defaults() -> None:
    assert resolve({}) == Settings()


def test_flag_wins_over_environment_wins_over_file(tmp_path: Path) -> None:
    config = yaml_file(tmp_path, "port: 2\nmax_running: 2\nblock_size: 2\n")
    environment = {"CHAIRLIFT_PORT": "3", "CHAIRLIFT_MAX_RUNNING": "3"}
    settings = resolve({"port": "1", "max_running": None}, config, environment)
    assert (settings.port, settings.max_running, settings.block_size) == (1, 3, 2)


def test_a_false_flag_wins_too(tmp_path: Path) -> None:
    assert not resolve({"prefix_cache": False}, yaml_file(tmp_path, "prefix_cache: true")).prefix_cache


def test_file_keys_may_have_dashes(tmp_path: Path) -> None:
    assert resolve({}, yaml_file(tmp_path, "max-model-len: 77\nkv-memory: 1GiB")).max_model_len == 77


def test_an_empty_environment_value_is_not_given() -> None:
    assert resolve({}, environment={"CHAIRLIFT_MODEL": "", "UNRELATED": "x"}).model is None


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert resolve({}, yaml_file(tmp_path, "# nothing\n")) == Settings()


@pytest.mark.parametrize(
    ("given", "expected"),
    [("256MiB", 256 * 2**20), ("2GB", 2 * 10**9), ("1.5g", 3 * 2**29), ("4096", 4096), (4096, 4096), ("1 KiB", 1024)],
)
def test_sizes(given: object, expected: int) -> None:
    assert resolve({"kv_memory": given}).kv_memory == expected


def test_a_share_of_the_memory_is_above_0_and_at_most_1() -> None:
    assert resolve({"memory": "0.25"}).memory == 0.25
    assert resolve({}, environment={"CHAIRLIFT_MEMORY": "1"}).memory == 1.0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"max_runing": 1}, "max_runing: unknown option (did you mean max_running?)"),
        (
            {"device": "tpu"},
            "one of auto, cpu, cuda, mindspore, mindspore:cpu, mindspore:ascend, mps, xpu, npu, got 'tpu'",
        ),
        ({"dtype": "int8"}, "--dtype must be one of auto, float32, bfloat16, float16, float64"),
        ({"port": "70000"}, "--port must be a whole number between 0 and 65535, got '70000'"),
        ({"port": "8e3"}, "--port must be a whole number"),
        ({"max_running": 0}, "--max-running must be a whole number between 1"),
        ({"max_running": True}, "--max-running must be a whole number"),
        ({"max_running": "9" * 30}, "--max-running must be a whole number"),
        ({"kv_memory": "lots"}, "--kv-memory must be a size"),
        ({"kv_memory": "3 parsecs"}, "--kv-memory must be a size"),
        ({"kv_memory": "-1GB"}, "--kv-memory must be a size"),
        ({"memory": 0}, "--memory must be a number above 0 and at most 1, got 0"),
        ({"memory": "1.01"}, "--memory must be a number above 0 and at most 1, got '1.01'"),
        ({"memory": "nan"}, "--memory must be a number, got 'nan'"),
        ({"max_running": [1]}, "--max-running must be a whole number between 1 and 65536, got [1]"),
        (
            {"override_generation_config": '{"max_new_tokens": 3}'},
            "alone; requests say max_new_tokens",
        ),
        ({"default_chat_template_kwargs": "x"}, "--default-chat-template-kwargs must be a JSON object"),
        (
            {"generation_config": "/no"},
            "--generation-config must be auto, vllm, or a folder with ",
        ),
        ({"memory": "90%"}, "--memory must be a number, got '90%'"),
        ({"prefix_cache": "perhaps"}, "--prefix-cache must be true or false"),
        ({"tokenizer": "/no/such/file"}, "--tokenizer must be an existing file or folder"),
        ({"model": " "}, "--model must be text"),
        ({"lora": ["a=/no/such/folder", "b=/nor/this"]}, "for a, got 'a=/no/such/folder', 'b=/nor/this'"),
        ({"num_blocks": 4, "kv_memory": "1GB"}, "num_blocks and kv_memory"),
        ({"max_step_tokens": 4, "max_running": 8}, "max_step_tokens 4 must be at least max_running 8"),
        ({"exact": True, "kv_dtype": "fp8"}, "use --kv-dtype auto, or leave --exact out"),
        ({"exact": True, "quantize": "fp8"}, "use --quantize auto, or leave --exact out"),
        ({"exact": True, "attention": "flashinfer"}, "use --attention auto or triton, or leave --exact out"),
    ],
)
def test_a_bad_value_names_the_option_and_what_is_allowed(flags: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        resolve(flags)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("max_runnning: 3", "chairlift.yaml: max_runnning: unknown option (did you mean max_running?)"),
        ("port: many", "chairlift.yaml: port must be a whole number"),
        ("[1, 2]", "must hold a map"),
        ("a: [", "not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("\0", "not valid YAML"),
        ("1: 2", "unknown option"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        resolve({}, yaml_file(tmp_path, text))
    assert complaint in str(refusal.value)
    assert "chairlift.yaml" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_key_twice_is_refused_where_one_value_would_be_lost(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("port: 1\nmax_running: 4\nmax_running: 5\n")
    with pytest.raises(InvalidConfig, match=r"c.yaml: max_running stands there twice, at line 3 again"):
        resolve({}, tmp_path / "c.yaml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"none\.yaml: cannot be read"):
        resolve({}, tmp_path / "none.yaml")


def test_a_bad_environment_value_names_the_variable() -> None:
    with pytest.raises(InvalidConfig, match="CHAIRLIFT_THREADS must be a whole number"):
        resolve({}, environment={"CHAIRLIFT_THREADS": "-1"})


def test_a_variable_that_names_no_option_is_warned_of() -> None:
    environment = {"CHAIRLIFT_PROT": "9", "CHAIRLIFT_XYZZY": "", "CHAIRLIFT_PORT": "7", "HOME": "/"}
    settings = resolve({}, environment=environment)
    assert settings.port == 7
    assert settings.warnings == (
        "the environment variable CHAIRLIFT_PROT names no option (did you mean CHAIRLIFT_PORT?)",
        "the environment variable CHAIRLIFT_XYZZY names no option",
    )


def test_vllm_s_key_is_read_where_no_other_is_given(tmp_path: Path) -> None:
    environment = {"VLLM_API_KEY": "secret"}
    settings = resolve({}, environment=environment)
    assert (settings.api_key, settings.warnings) == ("secret", ())
    keys = tmp_path / "keys.yaml"
    keys.touch()
    others: list[tuple[dict[str, object], dict[str, str], str | None]] = [
        ({"api_key": "flag"}, {}, "flag"),
        ({}, {"CHAIRLIFT_API_KEY": "ours"}, "ours"),
        ({"api_key_file": str(keys)}, {}, None),
    ]
    for flags, more, expected in others:
        settings = resolve(flags, environment=environment | more)
        assert settings.api_key == expected
        assert settings.warnings == ("VLLM_API_KEY: not read here; docs/coming-from-vllm.md says what to use",)


def test_other_variables_of_vllm_are_named_in_one_line() -> None:
    environment = {"VLLM_B": "1", "VLLM_A": "x", "VLLM_EMPTY": "", "VLLM_API_KEY": "secret"}
    assert resolve({}, environment=environment).warnings == (
        "VLLM_A, VLLM_B: not read here; docs/coming-from-vllm.md says what to use",
    )
    [warning] = resolve({}, environment={f"VLLM_{i}": "1" for i in range(10)}).warnings
    assert warning.startswith("VLLM_0, ") and "VLLM_7 and 2 more: not read" in warning


def test_the_nearer_of_two_excluding_options_wins(tmp_path: Path) -> None:
    settings = resolve({"kv_memory": "1GiB"}, yaml_file(tmp_path, "num_blocks: 10"))
    assert (settings.num_blocks, settings.kv_memory) == (None, 2**30)
    settings = resolve({"num_blocks": 10}, environment={"CHAIRLIFT_KV_MEMORY": "1GiB"})
    assert (settings.num_blocks, settings.kv_memory) == (10, None)


def test_everything_given_wins_over_the_preset(tmp_path: Path) -> None:
    config = yaml_file(tmp_path, "preset: llm-serving\nmax_running: 7\n")
    settings = resolve({"prefill": "mixed"}, config, {"CHAIRLIFT_REQUEUE": "fifo"})
    assert (settings.max_running, settings.prefill, settings.requeue) == (7, "mixed", "fifo")
    assert (settings.max_step_prompts, settings.prefix_cache, settings.policy) == (1, False, "fcfs:victim=shortest")


def test_a_flag_names_another_preset_than_the_file(tmp_path: Path) -> None:
    assert resolve({"preset": "none"}, yaml_file(tmp_path, "preset: llm-serving")) == Settings()


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidConfig, match="--preset must be one of none, llm-serving, got 'vllm'"):
        resolve({"preset": "vllm"})


@pytest.mark.parametrize("preset", PRESETS)
def test_the_values_of_a_preset_are_valid(preset: str) -> None:
    assert resolve({"preset": preset}).preset == preset


def test_names_may_be_a_list_or_have_commas(tmp_path: Path) -> None:
    assert resolve({"served_model_name": ["a", "b,c"]}).served_model_name == ("a", "b", "c")
    assert resolve({}, yaml_file(tmp_path, "served_model_name: [a, b]")).served_model_name == ("a", "b")
    assert resolve({}, environment={"CHAIRLIFT_SERVED_MODEL_NAME": "a, b"}).served_model_name == ("a", "b")
    with pytest.raises(InvalidConfig, match="--served-model-name must be names, each of them once"):
        resolve({"served_model_name": "a,a"})


def test_a_chat_template_is_a_file_or_its_text(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("{{ messages }}!")
    assert resolve({"chat_template": str(tmp_path / "chat.jinja")}).chat_template == "{{ messages }}!"
    assert resolve({"chat_template": "{% for m in messages %}{% endfor %}"}).chat_template is not None
    with pytest.raises(InvalidConfig, match="--chat-template must be a readable file with a Jinja template"):
        resolve({"chat_template": "chatml"})


@pytest.mark.parametrize(("given", "path"), [("llm", "/llm"), ("/a/b/", "/a/b")])
def test_a_root_path_begins_with_a_slash_and_ends_without(given: str, path: str) -> None:
    assert resolve({"root_path": given}).root_path == path


def test_a_root_path_is_a_path() -> None:
    with pytest.raises(InvalidConfig, match="--root-path must be a path such as /llm"):
        resolve({"root_path": "http://host/llm"})
