import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from chairlift.core.errors import InvalidConfig
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from unit.runner.twins import CPU, Twin, make_twin

FILE = "model.safetensors"
NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return make_twin(tmp_path_factory.mktemp("twin"), "llama-mha")


@pytest.fixture
def twin(saved: Twin, tmp_path: Path) -> Twin:
    shutil.copytree(saved.folder, tmp_path / "twin")
    return Twin(tmp_path / "twin", saved.reference, saved.config)


def rewrite(twin: Twin, change) -> None:
    tensors = load_file(twin.folder / FILE)
    change(tensors)
    save_file(tensors, twin.folder / FILE)


def refusal(twin: Twin) -> str:
    with pytest.raises(InvalidConfig) as caught:
        twin.decoder()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_missing_tensor_is_named(twin: Twin) -> None:
    rewrite(twin, lambda tensors: tensors.pop(NORM))
    assert NORM in refusal(twin) and str(twin.folder) in refusal(twin)


def test_an_unknown_tensor_is_named_with_its_file(twin: Twin) -> None:
    rewrite(twin, lambda tensors: tensors.update({"model.layers.0.self_attn.o_proj.bias": torch.zeros(32)}))
    assert "self_attn.o_proj.bias" in refusal(twin) and FILE in refusal(twin)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(twin: Twin) -> None:
    rewrite(twin, lambda tensors: tensors.update({NORM: torch.ones(31)}))
    message = refusal(twin)
    assert NORM in message and "[31]" in message and "[32]" in message and FILE in message


def test_a_tensor_of_integers_is_refused(twin: Twin) -> None:
    rewrite(twin, lambda tensors: tensors.update({NORM: torch.ones(32, dtype=torch.int8)}))
    assert NORM in refusal(twin) and "int8" in refusal(twin)


def test_a_truncated_file_is_named(twin: Twin) -> None:
    data = (twin.folder / FILE).read_bytes()
    (twin.folder / FILE).write_bytes(data[: len(data) // 2])
    assert FILE in refusal(twin)


def test_a_file_that_is_not_safetensors_is_named(twin: Twin) -> None:
    (twin.folder / FILE).write_bytes(b"\x80\x04not a model")
    assert FILE in refusal(twin)


def test_pickles_are_refused_without_being_opened(twin: Twin) -> None:
    (twin.folder / FILE).unlink()
    (twin.folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit'\ntR.")
    assert "pickle" in refusal(twin)


def test_a_folder_without_weights_is_refused(twin: Twin) -> None:
    (twin.folder / FILE).unlink()
    assert "no *.safetensors" in refusal(twin)


def shard(twin: Twin) -> None:
    tensors = load_file(twin.folder / FILE)
    (twin.folder / FILE).unlink()
    names = sorted(tensors)
    placed = {name: f"model-{1 + i % 2}-of-2.safetensors" for i, name in enumerate(names)}
    for file in set(placed.values()):
        save_file({name: tensors[name] for name in names if placed[name] == file}, twin.folder / file)
    (twin.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))


def test_sharded_weights_are_the_same_model(twin: Twin, saved: Twin) -> None:
    shard(twin)
    whole, sharded = HfTensors(saved.folder), HfTensors(twin.folder)
    assert set(whole.names) == set(sharded.names)
    for name in whole.names:
        shape = tuple(saved.reference.state_dict()[name].shape)
        assert torch.equal(whole.read(name, shape), sharded.read(name, shape))
    twin.decoder()


def test_a_missing_shard_is_named(twin: Twin) -> None:
    shard(twin)
    (twin.folder / "model-2-of-2.safetensors").unlink()
    assert "model-2-of-2.safetensors" in refusal(twin)


def test_a_tensor_that_the_index_places_in_the_wrong_shard_is_named(twin: Twin) -> None:
    shard(twin)
    index = twin.folder / "model.safetensors.index.json"
    placed = json.loads(index.read_text())["weight_map"]
    placed[NORM] = "model-1-of-2.safetensors" if placed[NORM].startswith("model-2") else "model-2-of-2.safetensors"
    index.write_text(json.dumps({"weight_map": placed}))
    assert NORM in refusal(twin)


def test_a_damaged_index_is_named(twin: Twin) -> None:
    shard(twin)
    (twin.folder / "model.safetensors.index.json").write_text("{")
    assert "index.json" in refusal(twin)


def test_a_tied_model_may_carry_its_head_and_rotary_tables_twice(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "llama-gqa-tied")
    rewrite(
        twin,
        lambda tensors: tensors.update(
            {
                "lm_head.weight": tensors["model.embed_tokens.weight"].clone(),
                "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
            }
        ),
    )
    decoder = build_model(twin.config, TorchOps(), HfTensors(twin.folder), torch.float32, CPU, 16)
    assert decoder.head is decoder.embedding
