"""What a configuration leaves out means what transformers means by it, or is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.hf import load_values
from chairlift.models.spec import ModelConfig
from unit.runner.twins import ALL, SHAPE

# One of each class.
TWINS = {kind: {**SHAPE, **own} for kind, own in ALL.values()}
# transformers has the class's number in place of the one that the map of the rotation says.
IGNORED = {("Phi3", "original_max_position_embeddings")}


def read(values: dict[str, Any]) -> ModelConfig:
    model = load_values(Path("config.json"), values, Path("no folder"))
    return replace(model, bos_id=None, eos_ids=(), dtype="")


def written(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """All keys that transformers has for such a configuration."""
    config = getattr(transformers, f"{kind}Config")(**values)
    config.architectures = [f"{kind.removesuffix('Text')}ForCausalLM"]
    return dict(json.loads(config.to_json_string(use_diff=False)))


def ours(values: dict[str, Any]) -> ModelConfig | None:
    """None: refused."""
    try:
        return read(values)
    except InvalidConfig:
        return None


def theirs(kind: str, values: dict[str, Any]) -> ModelConfig | None:
    """None: the rest is at odds, which transformers says in many ways."""
    try:
        return ours(written(kind, values))
    except Exception:
        return None


@pytest.mark.parametrize("kind", TWINS)
def test_a_key_that_is_left_out_means_what_transformers_means_by_it(kind: str) -> None:
    whole, num_compared = written(kind, TWINS[kind]), 0
    for key in whole.keys() - {"architectures", "model_type"}:
        rest = {other: value for other, value in whole.items() if other != key}
        found, expected = ours(rest), theirs(kind, rest)
        if found and expected and (kind, key) not in IGNORED:
            num_compared += 1
            assert found == expected, key
    assert num_compared > 10
