"""Whole llm-serving files: as its manual and the contest's reports have them, and cut off anywhere."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from chairlift.build import ResolvedModel, find_model
from chairlift.config.options.resolve import resolve
from chairlift.core.errors import InvalidConfig

FILES = Path(__file__).parents[3] / "data" / "llm_serving"
# What becomes of each: max_running, max_step_prompts, num_blocks, max_model_len, prefill, policy.
EXPECTED: dict[str, tuple[object, ...]] = {
    "contest_baseline": (1, 0, 1023, 4096, "mixed", "fcfs"),
    "slots_20": (20, 0, 1023, 4096, "mixed", "fcfs"),
    "slots_50": (50, 0, 1023, 4096, "mixed", "fcfs"),
    "slots_100": (100, 0, 1023, 4096, "mixed", "fcfs"),
    "slots_96": (96, 0, 2047, 4096, "mixed", "fcfs"),
    "prefill_6": (64, 0, 1023, 4096, "mixed", "fcfs"),
    "prefill_8": (128, 0, 1023, 4096, "mixed", "fcfs"),
    "short_lengths": (64, 0, 1023, 1024, "mixed", "fcfs"),
    "graphs": (16, 4, None, 4096, "mixed", "fcfs"),
    "dynamic_tiers": (16, 1, None, 2048, "mixed", "fcfs"),
    "static": (8, 8, None, 4096, "static", "fcfs"),
    "fastserve": (64, 0, 1023, 4096, "mixed", "mlfq:rate=1.5,starve=10.0"),
    "internlm": (16, 0, None, 4096, "mixed", "fcfs"),
    "baichuan": (32, 0, 1023, 4096, "mixed", "fcfs"),
}
# Keys that become something, whatever their values are.
READ = {
    "model_config": {"model_name", "max_generate_length", "end_token", "seq_length", "decode_batch_size", "model_dtype",
                     "batching_strategy", "page_attention", "fastserve"},
    "serving_config": {"server_ip", "server_port", "agent_ports"},
    "fa_config": {"rate", "starve_waiting_time"},
}  # fmt: skip


@cache
def found(name: str) -> ResolvedModel:
    return find_model(resolve({}, FILES / f"{name}.yaml"))


def test_every_file_is_here() -> None:
    assert {path.stem for path in FILES.iterdir()} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_starts_a_server_that_does_what_it_did(name: str) -> None:
    settings = found(name).settings
    assert (settings.host, settings.port) == ("127.0.0.1", 8835)
    assert EXPECTED[name] == (
        settings.max_running, settings.max_step_prompts, settings.num_blocks, settings.max_model_len, settings.prefill,
        settings.policy,
    )  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_each_key_becomes_something_or_is_named(name: str) -> None:
    path = FILES / f"{name}.yaml"
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    settings = resolve({}, path)
    said = "\n".join((*settings.warnings, *found(name).config.warnings))
    is_paged = document["model_config"]["page_attention"]
    read = {
        **READ,
        "pa_config": {"num_blocks", "block_size", "decode_seq_length"},
        "model_config": READ["model_config"] | (set() if is_paged else {"prefill_batch_size"}),
    }
    silent = [
        f"{section}.{key}"
        for section, content in document.items()
        for key in content
        if f"{section}.{key}" not in said and key not in read.get(section, ())
    ]
    assert silent == []
    assert "requires" not in said
    assert "no such keys" not in said


@pytest.mark.slow
def test_a_file_that_is_cut_off_anywhere_is_taken_or_refused_in_one_line(tmp_path: Path) -> None:
    text, path = (FILES / "fastserve.yaml").read_text(), tmp_path / "cut.yaml"
    refused = []
    for end in range(0, len(text), 3):
        path.write_text(text[:end])
        try:
            lines = resolve({}, path).warnings
        except InvalidConfig as error:
            lines = (str(error),)
            refused.append(str(error))
        assert not any("\n" in line for line in lines)
    assert 0 < len(refused) < len(text) and all("cut.yaml" in line for line in refused)


@pytest.mark.parametrize(
    ("half", "lacking"),
    [
        ("pa_config: {num_blocks: 1024}", "pa_config.block_size"),
        ("pa_config:", "pa_config.num_blocks, pa_config.block_size"),
        ("tokenizer: {type: LlamaTokenizer}", "tokenizer.vocab_file"),
        ("serving_config: {agent_ports: [16002]}", "serving_config.server_port"),
        ("model_config: {model_name: llama_7b}", "model_config.end_token, model_config.decode_batch_size"),
    ],
)
def test_half_a_section_is_one_line(half: str, lacking: str, tmp_path: Path) -> None:
    document = yaml.safe_load((FILES / "contest_baseline.yaml").read_text())
    path = tmp_path / "half.yaml"
    path.write_text(yaml.safe_dump({**document, **yaml.safe_load(half)}))
    lines = [line for line in resolve({}, path).warnings if "requires" in line]
    assert lines == [f"{path}: defaults are used for keys that llm-serving requires: {lacking}"]
