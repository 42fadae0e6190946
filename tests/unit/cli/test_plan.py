import json
import re
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.runner.native.ops import available
from unit.runner.memory.test_forecast import ONE_BILLION


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(ONE_BILLION))
    return tmp_path


def facts(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    assert main(["plan", "--json", *map(str, arguments)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_folder_and_its_configuration_give_the_same_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, folder, "--device", "h200")
    assert found == facts(capsys, folder / "config.json", "--device", "h200")
    assert found["parameters"] == 1_235_814_400
    parts = ("others", "weights", "activations", "graphs", "kv", "free")
    assert sum(found[f"{part}_bytes"] for part in parts) == found["total_bytes"]  # type: ignore[misc]


def test_a_configuration_may_have_any_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = (folder / "config.json").rename(folder / "one-billion.json")
    assert facts(capsys, named, "--device", "l4")["model"] == "one-billion"


def test_the_embedded_model_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, "--device", "cpu", "--device-memory", "16GiB", "--dtype", "bfloat16")
    assert (found["model"], found["kv_tokens"]) == ("SmolLM2-135M-Instruct", 46_592)
    assert found["requests"] == {"8192": 5, "2048": 22, "512": 91}


def test_options_of_serve_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = facts(capsys, folder, "--device", "l4", "--memory", "0.5", "--max-model-len", "1000")
    assert half["max_model_len"] == 1000
    assert half["kv_tokens"] < facts(capsys, folder, "--device", "l4")["kv_tokens"]  # type: ignore[operator]
    assert facts(capsys, folder, "--device", "l4", "--max-running", "3")["max_running"] == 3


def test_ranks_have_a_part_of_the_weights_and_room_for_more_tokens(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (facts(capsys, folder, "--device", "l4", "--tensor-parallel", count) for count in (1, 2))
    assert (one["ranks"], two["ranks"], two["parameters"]) == (1, 2, one["parameters"])
    assert two["kv_token_bytes"] == one["kv_token_bytes"] // 2  # type: ignore[operator]
    assert two["weights_bytes"] < one["weights_bytes"]  # type: ignore[operator]
    assert main(["plan", str(folder), "--tensor-parallel", "2", "--device", "l4"]) == 0
    assert "on l4, each of 2 ranks: " in capsys.readouterr().out
    assert main(["plan", str(folder), "--tensor-parallel", "12"]) == 2
    assert "use --tensor-parallel 8" in capsys.readouterr().err


def test_the_table_is_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(folder), "--device", "rtx-4090"]) == 0
    out = capsys.readouterr().out
    assert "on rtx-4090: 23.5 GiB, of which 0.9 may be used" in out
    assert "2.3 GiB of it beyond --memory" in out
    for part in ("weights", "activations", "graphs", "KV cache", "requests at once"):
        assert part in out


@pytest.mark.parametrize(
    ("arguments", "words", "kept"),
    [
        ((), "million parameters in bfloat16", "none"),
        (("--quantize", "fp8"), "million parameters in fp8, computed in bfloat16", "fp8"),
    ],
)
def test_weights_are_told_as_what_they_are_kept_and_without_what_is_beside_them(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str, kept: str
) -> None:
    assert main(["plan", str(folder), "--device", "h100", *arguments]) == 0
    out = capsys.readouterr().out
    assert words in out
    assert "the libraries' code, rotations by position\n" in out
    found = facts(capsys, folder, "--device", "h100", *arguments)
    assert found["quantize"] == kept
    beside = found["weights_bytes"] - found["parameters_bytes"]  # type: ignore[operator]
    assert beside == 128 * 2**20 + 4 * 8192 * 64


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
def test_integers_that_a_cpu_keeps_are_named_and_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ONE_BILLION | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    (folder / "config.json").write_text(json.dumps(given))
    kept, wide = (facts(capsys, folder, "--device", device) for device in ("cpu", "h100"))
    assert (kept["quantize"], wide["quantize"]) == ("W4", "W4")
    assert facts(capsys, folder, "--device", "cpu", "--quantize", "none")["quantize"] == "none"
    half = facts(capsys, folder, "--device", "cpu", "--dtype", "half")
    assert half["quantize"] == "W4"
    assert half["dtype"] == kept["dtype"]  # float16 is not computed in by kernels that keep them
    in_layers = 973_078_528
    ends = kept["parameters"] - in_layers  # type: ignore[operator]
    itemsize = 4 if kept["dtype"] == "float32" else 2
    assert kept["parameters_bytes"] == in_layers // 2 + in_layers * 4 // 128 + ends * itemsize


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
def test_blocks_of_a_file_that_are_kept_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert re.search("million parameters in Q4_1, computed in (float32|bfloat16)", out)  # the latter with AMX
    assert "rotations by position\n" in out
    assert "code" not in out


def test_a_context_larger_than_the_cache_is_lowered_with_a_note(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--device", "cpu", "--kv-memory", "64MiB", "--dtype", "bfloat16")
    assert main(["plan", str(folder), *small]) == 0
    assert "max_model_len is 2048 instead of 8192: the KV cache holds no more" in capsys.readouterr().out
    assert facts(capsys, folder, *small)["max_model_len"] == 2048


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("missing.json",), "missing.json: no such file or folder"),
        (("--device", "h300"), "--device must be one of auto, cpu, cuda, b200, h200"),
        (("--device", "h200", "--num-blocks", "10000000"), "the KV cache that was asked for needs 3433.2 GiB"),
        (("--device", "cpu", "--kv-memory", "64MiB", "--max-model-len", "8000"), "max_model_len 8000 is more than the"),
        (("--device", "cpu", "--device-memory", "1GiB", "--kv-memory", "2GiB"), "lower --num-blocks or --kv-memory"),
        (("--device-memory", "much"), "--device-memory must be a size such as 512MiB"),
        (("--device-memory", "80"), "--device-memory must be the size of a device, such as 80GB; without a unit"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_fleet_is_planned_for_a_workload(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "--fleet", "--json", "--workload", "lengths:prompt=50-500,output=20-100,count=100"]
    assert main([*asked, "--arrivals", "poisson:rate=60", "--slo", "ttft_p99=1s"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["replicas"] == found["devices"] == 1
    assert [each["replicas"] for each in found["tried"]] == [1]


def test_a_fleet_needs_limits_to_meet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--fleet", "--workload", "contest"]) == 2
    assert "--slo is missing" in capsys.readouterr().err


def test_a_fleet_is_planned_without_roles(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CHAIRLIFT_REPLICAS", "2")
    monkeypatch.setenv("CHAIRLIFT_ROLES", "prefill:1,decode:1")
    assert main(["plan", "--fleet", "--workload", "contest", "--slo", "ttft_p99=1s"]) == 2
    assert "compare splits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "caution"), [("a10g", ""), ("a6000", ""), ("t4", "--kernels torch"), ("mi300x", "AMD")]
)
def test_other_gpus_are_known_with_what_to_know_of_them(
    name: str, caution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--device", name]) == 0
    said = capsys.readouterr()
    assert f"on {name}: " in said.out
    assert (caution in said.err) if caution else said.err == ""
