"""What is listed is what is read: names, shapes, stacks and sizes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chairlift.models.parts import HeadOrder, Matrix, Part
from chairlift.models.spec import HF_NAMES, ModelConfig, uniform_model
from chairlift.models.tensors import end_tensors, expected_parts, layer_tensors, norm_parts, weight_bytes
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.source import as_stored, in_order
from fakes.declarations import random_declaration
from unit.runner.twins import ALL, CPU, make_twin


class Counting(HfTensors):
    num_layer = num_other = 0

    def read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = super().read(name, shape)
        is_matrix = tensor.ndim >= 2 and not name.endswith(("bias", "conv1d.weight"))  # those of experts have two
        if ".layers." in name and is_matrix:
            self.num_layer += tensor.numel()
        else:
            self.num_other += tensor.numel()
        return tensor


@pytest.mark.parametrize("family", ALL)
def test_the_size_is_that_of_all_tensors_that_are_read(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    source = Counting(twin.folder)
    build_model(twin.config, TorchOps(), source, torch.float32, CPU, 16)
    assert weight_bytes(twin.config, 2, 1) == 2 * source.num_other + source.num_layer


CONFIG = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=48, vocab_size=97, max_model_len=64, rms_norm_eps=1e-5, rope_theta=10000.0, has_qkv_bias=True,
)  # fmt: skip


def with_last(config: ModelConfig, **changes: bool) -> ModelConfig:
    return replace(config, layers=(*config.layers[:-1], replace(config.layers[-1], **changes)))


def test_a_matrix_is_stacked_of_the_parts_that_a_file_has() -> None:
    layer = "model.layers.1."
    qkv = layer_tensors(CONFIG, 1).mixer.matrices["qkv"]
    assert qkv.parts == (
        Part(f"{layer}self_attn.q_proj.weight", (64, 32)), Part(f"{layer}self_attn.k_proj.weight", (32, 32)),
        Part(f"{layer}self_attn.v_proj.weight", (32, 32)),
    )  # fmt: skip
    assert [part.shape for part in qkv.bias] == [(64,), (32,), (32,)]
    names = replace(HF_NAMES, qkv=("qkv",), gate_up=("gate_up",))
    fused = layer_tensors(replace(CONFIG, names=names), 1)
    assert fused.mixer.matrices["qkv"] == Matrix(
        (Part(f"{layer}qkv.weight", (128, 32)),), (Part(f"{layer}qkv.bias", (128,)),)
    )
    assert fused.gate_up == Matrix((Part(f"{layer}gate_up.weight", (96, 32)),))


def test_rows_in_pairs_are_those_of_queries_and_keys_and_of_their_biases() -> None:
    paired = layer_tensors(replace(CONFIG, names=replace(HF_NAMES, has_paired_rows=True)), 0)
    orders = [HeadOrder(4, 16, 16, True), HeadOrder(2, 16, 16, True), None]
    assert (
        [part.order for part in paired.mixer.matrices["qkv"].parts]
        == [part.order for part in paired.mixer.matrices["qkv"].bias]
        == orders
    )
    assert {part.order for matrix in paired.matrices[1:] for part in matrix.parts} == {None}


@pytest.mark.parametrize(("turned", "is_paired", "rows"), [
    (8, True, [0, 2, 4, 6, 1, 3, 5, 7]), (8, False, list(range(8))),
    (4, False, [0, 1, 4, 5, 2, 3, 6, 7]), (4, True, [0, 2, 4, 5, 1, 3, 6, 7]),
])  # fmt: skip
def test_what_turns_comes_to_lie_half_a_head_apart(turned: int, is_paired: bool, rows: list[int]) -> None:
    order = HeadOrder(2, 8, turned, is_paired)
    assert order.rows == rows
    tensor = torch.arange(3 * 8)
    ours = in_order(tensor, order)
    assert ours.tolist() == [*rows, *(8 + row for row in rows), *range(16, 24)]
    assert torch.equal(as_stored(ours, order), tensor)


def test_norms_are_those_that_each_layer_has() -> None:
    names = replace(HF_NAMES, after_attention="after_1", after_feed_forward="after_2")
    config = with_last(replace(CONFIG, names=names), has_norm_before=False, has_norm_after=True)
    assert [sorted(layer_tensors(config, index).norms) for index in range(2)] == [
        ["before_attention", "before_feed_forward"], ["after_attention", "after_feed_forward"],
    ]  # fmt: skip
    assert layer_tensors(config, 1).norms["after_attention"] == Part("model.layers.1.after_1.weight", (32,))


def test_norms_of_heads_may_be_stored_without_a_1_that_others_have() -> None:
    layer = CONFIG.layers[0]
    heads = replace(layer, mixer=replace(layer.attention, has_qk_norm=True))
    for own, others in ((1.0, 0.0), (0.0, 1.0), (None, 1.0)):
        names = replace(HF_NAMES, norm_offset=others, qk_norm_offset=own)
        parts = {part.name: part.offset for part in expected_parts(replace(CONFIG, layers=(heads,), names=names))}
        norms = {name: parts.pop(name) for name in list(parts) if "norm" in name}
        assert norms == {
            "model.norm.weight": others,
            "model.layers.0.input_layernorm.weight": others,
            "model.layers.0.post_attention_layernorm.weight": others,
            "model.layers.0.self_attn.q_norm.weight": others if own is None else own,
            "model.layers.0.self_attn.k_norm.weight": others if own is None else own,
        }
        assert set(parts.values()) == {0.0}


def test_dummy_weights_of_norms_are_1_with_their_offset_whatever_they_are_called() -> None:
    config = random_declaration(6)
    dummy = DummyTensors(config)
    norms = {part.name for part in norm_parts(config)}
    assert norms and {part.offset for part in norm_parts(config)} == {0.0, 1.0}
    for part in expected_parts(config):
        is_one = bool((dummy.read(part.name, part.shape) + part.offset == 1.0).all())
        assert is_one == (part.name in norms), part.name


def test_a_tied_model_has_no_head_of_its_own_and_every_name_comes_once() -> None:
    assert end_tensors(replace(CONFIG, is_tied=True)).head is None
    names = [part.name for part in expected_parts(CONFIG)]
    assert len(names) == len(set(names)) == 3 + 2 * (7 + 3 + 2)
    assert "lm_head.weight" in names and "lm_head.weight" not in [
        part.name for part in expected_parts(replace(CONFIG, is_tied=True))
    ]
