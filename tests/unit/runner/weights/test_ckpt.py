"""Weights from MindSpore checkpoints: those that MindSpore wrote (tests/data/mindspore/write.py), and our own."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from chairlift.core.errors import InvalidConfig
from chairlift.models.source import load_model_config, locate
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.ckpt import CkptTensors
from fakes.ckpt import mindformers_name, value, value_of, write_ckpt
from unit.runner.twins import CPU, chunk, make_twin, request, run

DATA = Path(__file__).parents[3] / "data/mindspore"
EXPECTED = load_file(DATA / "expected.safetensors")
EMBEDDING = "model.embed_tokens.weight"


@pytest.mark.parametrize("name", ["whole", "whole/llama.ckpt", "sharded"])
def test_tensors_are_what_mindspore_stored(name: str) -> None:
    tensors = CkptTensors(DATA / name)
    assert {mindformers_name(own) for own in tensors.names} == EXPECTED.keys()
    for own in tensors.names:
        expected = EXPECTED[mindformers_name(own)]
        assert torch.equal(tensors.read(own, tuple(expected.shape)).float(), expected), own


def test_types_are_those_that_were_stored() -> None:
    tensors, layer = CkptTensors(DATA / "whole"), "model.layers.0.self_attn"
    assert tensors.read(f"{layer}.v_proj.weight", (8, 16)).dtype is torch.bfloat16
    assert tensors.read(f"{layer}.k_proj.weight", (8, 16)).dtype is torch.float16


def test_a_checkpoint_with_its_mindformers_file_is_a_model() -> None:
    source = locate(str(DATA / "whole"))
    config = load_model_config(source)
    assert (source.kind, source.model_cfg, config.architecture) == (
        "ckpt",
        DATA / "whole/llama.yaml",
        "LlamaForCausalLM",
    )
    model = build_model(config, TorchOps(), CkptTensors(source.path), torch.float32, CPU, config.max_model_len)
    assert torch.equal(model.embedding.rows(torch.tensor([3])), EXPECTED["model.tok_embeddings.embedding_weight"][3:4])


def logits(model: Decoder, tokens: list[int]) -> torch.Tensor:
    kv = KvCache(model.config, 1, 16, torch.float32, CPU)
    return run(model, kv, [chunk(tokens, 0, len(tokens), [0], request(tokens))])


@pytest.mark.parametrize("family", ["llama-mha", "qwen2-bias", "llama-gqa-tied"])
def test_logits_are_those_of_the_same_weights_in_safetensors(family: str, tmp_path: Path) -> None:
    twin = make_twin(tmp_path / "twin", family)
    weights = {mindformers_name(name): tensor for name, tensor in load_file(twin.folder / "model.safetensors").items()}
    folder = tmp_path / "ckpt"
    write_ckpt(folder / "x.ckpt", weights)
    shutil.copy(twin.folder / "config.json", folder)
    source = locate(str(folder))
    config = load_model_config(source)
    model = build_model(config, TorchOps(), CkptTensors(source.path), torch.float32, CPU, config.max_model_len)
    tokens = [5, 9, 60, 3, 22]
    assert torch.equal(logits(model, tokens), logits(twin.decoder(), tokens))


def refusal(path: Path, name: str = EMBEDDING, shape: tuple[int, ...] = (40, 16)) -> str:
    with pytest.raises(InvalidConfig) as caught:
        CkptTensors(path).read(name, shape)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_missing_or_of_another_shape_is_named() -> None:
    assert "tensor no.such is missing" in refusal(DATA / "whole", "no.such")
    assert "has shape [40, 16], the configuration says [41, 16]" in refusal(DATA / "whole", shape=(41, 16))


def test_a_fused_matrix_is_refused_with_the_way_out(tmp_path: Path) -> None:
    write_ckpt(tmp_path / "x.ckpt", {"model.layers.0.attention.w_qkv.weight": torch.ones(4, 2)})
    assert "qkv_concat: False" in refusal(tmp_path)


def test_numbers_that_are_no_floats_are_refused(tmp_path: Path) -> None:
    write_ckpt(tmp_path / "x.ckpt", {EMBEDDING: torch.ones(40, 16, dtype=torch.int32)})
    assert "stored as Int32" in refusal(tmp_path)


def test_a_tensor_under_both_names_is_refused(tmp_path: Path) -> None:
    both = (EMBEDDING, "model.tok_embeddings.embedding_weight")
    write_ckpt(tmp_path / "x.ckpt", {name: torch.ones(40, 16) for name in both})
    assert "are the same tensor" in refusal(tmp_path)


def test_shards_without_a_strategy_are_joined_where_it_is_certain(tmp_path: Path) -> None:
    whole = torch.randn(4, 6)
    for rank, part in enumerate(whole.split(3, 1)):
        write_ckpt(tmp_path / f"rank_{rank}/x.ckpt", {"w": part.contiguous(), "norm": torch.ones(4)})
    tensors = CkptTensors(tmp_path)
    assert torch.equal(tensors.read("w", (4, 6)), whole)
    assert torch.equal(tensors.read("norm", (4,)), torch.ones(4))


def test_shards_that_need_a_strategy_are_refused_without_it(tmp_path: Path) -> None:
    shutil.copytree(DATA / "sharded", tmp_path / "sharded", ignore=shutil.ignore_patterns("strategy"))
    source, config = CkptTensors(tmp_path / "sharded"), load_model_config(locate(str(DATA / "whole")))
    with pytest.raises(InvalidConfig, match="o_proj.* put them into strategy/"):
        build_model(config, TorchOps(), source, torch.float32, CPU, config.max_model_len)


def test_a_missing_rank_and_several_files_are_refused(tmp_path: Path) -> None:
    for name in ("rank_0/a", "rank_2/a"):
        write_ckpt(tmp_path / f"{name}.ckpt", {"w": torch.ones(2)})
    assert "rank_1 is missing" in refusal(tmp_path)
    shutil.move(tmp_path / "rank_2", tmp_path / "rank_1")
    write_ckpt(tmp_path / "rank_1/b.ckpt", {"w": torch.ones(2)})
    assert "a.ckpt and 1 more .ckpt files may be of different steps; leave one" in refusal(tmp_path)


def test_several_files_in_a_folder_are_refused_with_the_way_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_ckpt(tmp_path / f"{name}.ckpt", {"w": torch.ones(2)})
    assert "name one, as in --model" in refusal(tmp_path)
    assert torch.equal(CkptTensors(tmp_path / "a.ckpt").read("w", (2,)), torch.ones(2))


def test_a_huge_tensor_in_parts_is_joined_in_order(tmp_path: Path) -> None:
    whole = torch.randn(6, 4)
    raw = whole.view(torch.uint8).numpy().tobytes()
    cut = [value("w", (6, 4), "Float32", raw[low : low + 40]) for low in range(0, len(raw), 40)]
    (tmp_path / "x.ckpt").write_bytes(value_of("a", torch.ones(3)) + b"".join(cut))
    assert torch.equal(CkptTensors(tmp_path).read("w", (6, 4)), whole)
