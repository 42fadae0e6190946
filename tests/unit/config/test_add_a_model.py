"""Does what docs/add-a-model.md says, with the page's own code."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from chairlift.config.families import known
from chairlift.config.families.family import Family
from chairlift.config.hf import load_hf
from chairlift.core.errors import InvalidConfig
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.verify.dense import logits_of
from unit.runner.twins import CPU, chunk, request, run

PAGE = Path(__file__).parents[3] / "docs" / "add-a-model.md"
CONFIG = {
    "architectures": ["HillForCausalLM"], "model_type": "hill", "hidden_act": "gelu_pytorch_tanh", "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 61, "max_position_embeddings": 64, "sliding_window": 5,
}  # fmt: skip


@pytest.fixture
def hill(monkeypatch: pytest.MonkeyPatch) -> Family:
    """The family of the page, named as the page says."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    module: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), module)
    family = module["HILL"]
    assert isinstance(family, Family)
    monkeypatch.setitem(known.BY_ARCHITECTURE, family.architecture, family)
    return family


def write(folder: Path, **changes: object) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def test_the_family_of_the_page_is_served_as_declared(hill: Family, tmp_path: Path) -> None:
    config = load_hf(write(tmp_path))
    assert [layer.attention.window for layer in config.layers] == [5, 5, 0, 5]
    decoder = build_model(config, TorchOps(), DummyTensors(config), torch.float64, CPU, 64)
    tokens = [7 * i % 61 for i in range(30)]
    (wanted,) = logits_of(config, DummyTensors(config), "float64", "cpu", [tokens], [30], lambda *_: None)
    kv = KvCache(config, 8, 4, torch.float64, CPU)
    for start, count in ((0, 11), (11, 1), (12, 18)):
        logits = run(decoder, kv, [chunk(tokens, start, count, list(range(8)), request(tokens))])
        np.testing.assert_allclose(logits[0].numpy(), wanted[start + count - 1], atol=1e-12)


def test_a_key_that_it_does_not_understand_is_refused_by_name(hill: Family, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="hidden_act must be 'gelu_pytorch_tanh', got 'relu'"):
        load_hf(write(tmp_path, hidden_act="relu"))


def test_the_page_names_what_is_there(hill: Family) -> None:
    page = PAGE.read_text()
    assert "`FAMILIES`" in page and known.FAMILIES
    for link in re.findall(r"\]\(\.\./([^)]+)\)", page):
        assert (PAGE.parents[1] / link).exists(), link
