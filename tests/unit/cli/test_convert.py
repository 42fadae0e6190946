"""A MindSpore checkpoint as safetensors."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from chairlift.cli.main import main
from chairlift.models.source import load_model_config, locate
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights import convert
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from fakes.ckpt import mindformers_name, write_ckpt

DATA = Path(__file__).parents[2] / "data/mindspore"
EXPECTED = load_file(DATA / "expected.safetensors")
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["whole", "whole/llama.ckpt", "sharded"])
def test_a_checkpoint_becomes_a_folder_that_can_be_served(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_cfg = ["--model-cfg", str(DATA / "whole/llama.yaml")] if name == "sharded" else []
    assert main(["convert", str(DATA / name), str(tmp_path / "new"), *model_cfg]) == 0
    assert "LlamaForCausalLM with 1 layers" in capsys.readouterr().out
    written = load_file(tmp_path / "new/model.safetensors")
    assert {mindformers_name(own) for own in written} == EXPECTED.keys()
    assert all(torch.equal(tensor.float(), EXPECTED[mindformers_name(own)]) for own, tensor in written.items())
    assert written["model.layers.0.self_attn.v_proj.weight"].dtype is torch.bfloat16
    source = locate(str(tmp_path / "new"))
    config = load_model_config(source)
    assert source.kind == "folder"
    build_model(config, TorchOps(), HfTensors(source.path), torch.float32, CPU, config.max_model_len)


def test_large_weights_are_spread_over_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_FILE_BYTES", 3000)
    assert main(["convert", str(DATA / "whole"), str(tmp_path / "new")]) == 0
    index = json.loads((tmp_path / "new/model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    source = locate(str(tmp_path / "new"))
    tensors = HfTensors(source.path)
    found = tensors.read("lm_head.weight", (40, 16))
    assert torch.equal(found.float(), EXPECTED["lm_head.weight"])


def test_the_tokenizer_and_a_config_json_come_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(DATA / "whole", tmp_path / "old")
    for name in ("tokenizer.json", "tokenizer_config.json", "secret.txt"):
        (tmp_path / "old" / name).write_text("{}")
    assert main(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert capsys.readouterr().err == ""


def test_a_missing_tokenizer_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["convert", str(DATA / "whole"), str(tmp_path / "new")])
    assert "no tokenizer there" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["used", "file", "safetensors", "pickle", "unknown", "full"])
def test_what_cannot_be_converted_is_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "old", tmp_path / "new"
    shutil.copytree(DATA / "whole", source)
    complaint = "is there already"
    if kind == "used":
        target.mkdir()
        (target / "x").touch()
    elif kind == "file":
        target.touch()
    elif kind == "safetensors":
        shutil.copy(DATA / "expected.safetensors", source)
        complaint = "needs no conversion"
    elif kind == "pickle":
        torch.save({"a": torch.ones(1)}, source / "llama.ckpt")
        complaint = "is a pickle"
    elif kind == "unknown":
        write_ckpt(source / "llama.ckpt", {"model.layers.0.attention.wq.lora": torch.ones(2)})
        complaint = "tensor model.layers.0.self_attn.q_proj.lora has no place in LlamaForCausalLM"
    else:
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
        complaint = "GiB are free there"
    assert main(["convert", str(source), str(target)]) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1
    assert not (target / "config.json").exists()
