"""Modules that quantised files leave as they are, by lists as makers write them, and what a plan counts of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from chairlift.models.files.hf import load_hf
from chairlift.models.files.left_out import left_out
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import layer_tensors
from unit.models.test_hybrids import SPARSE

Q, GATE, UP = "model.layers.3.self_attn.q_proj", "model.layers.3.mlp.gate", "model.layers.3.mlp.gate_proj"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (None, ""),
        ({"modules_to_not_convert": ["lm_head", "mlp.gate"]}, GATE),
        ({"modules_to_not_convert": ["model.language_model.layers.3.self_attn.q_proj", 7]}, Q),
        ({"ignore": ["re:.*mlp.gate$", "re:visual.*"]}, GATE),
        ({"ignore": ["re:.*mlp.*"]}, f"{GATE} {UP}"),
        ({"ignore": [r"re:model\.layers\.3\.self_attn"]}, Q),
        ({"exclude_modules": ["model.layers.*.self_attn*", "*mlp.gate"]}, f"{Q} {GATE}"),
        ({"exclude_modules": ["layers.3*", "mlp.gate*x"]}, ""),
        ({"dynamic": {r"-:.*q_proj": {}, r"+:.*gate_proj": {"bits": 8}}}, Q),
        ({"extra_config": {Q: {"bits": 16}, UP: {"bits": 8}}}, Q),
        ({"ignore": [r"re:.*(q|gate)_proj", "re:(a+)+$"]}, ""),  # more than is understood
    ],
)
def test_lists_of_makers_are_understood(given: Any, left: str) -> None:
    is_left = left_out(given)
    assert [module for module in (Q, GATE, UP) if is_left(module)] == [
        each for each in (Q, GATE, UP) if each in left.split()
    ]


def read(folder: Path, *ignored: str) -> ModelConfig:
    quantised = {"quant_method": "fp8", "modules_to_not_convert": list(ignored)}
    (folder / "config.json").write_text(json.dumps(SPARSE | {"quantization_config": quantised}))
    return load_hf(folder)


def test_what_is_left_as_it_is_counts_as_such(tmp_path: Path) -> None:
    whole, part = read(tmp_path), read(tmp_path, "linear_attn", "mlp.shared_expert")
    assert whole.packed and part.packed
    layers = [layer_tensors(whole, index) for index in range(whole.num_layers)]
    mixers = [layer.mixer for layer in layers if "inputs" in layer.mixer.matrices]
    left = [matrix for mixer in mixers for matrix in (mixer.matrices["inputs"], mixer.output)]
    left += [matrix for layer in layers for matrix in (layer.gate_up, layer.down) if matrix]
    sizes = [part.num_weights for matrix in left for part in matrix.parts]
    assert whole.packed.num_weights - part.packed.num_weights == sum(sizes)
    # Routers, gates of one number and rates are small, and no file has them in fewer bits.
    matrices = [part for layer in layers for matrix in layer.matrices for part in matrix.parts]
    small = [
        part for part in matrices if part.name.endswith((".mlp.gate.weight", "_gate.weight", "_b.weight", "_a.weight"))
    ]
    assert len(small) == 40 + 40 + 30 + 30
    assert whole.packed.num_weights == sum(part.num_weights for part in matrices if part not in small)
