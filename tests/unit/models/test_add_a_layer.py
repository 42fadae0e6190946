"""Does what docs/add-a-layer.md says, with the page's own code."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.models.kv_groups import kv_groups
from chairlift.models.shards import check_cuts
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import expected_parts
from chairlift.runner.mixers import load
from chairlift.runner.model import Decoder
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.worlds.models import CONFIG
from unit.runner.hybrids import States
from unit.runner.twins import CPU, chunk, request

PAGE = Path(__file__).parents[3] / "docs" / "add-a-layer.md"
WIDTH = 24


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    module: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), module)
    monkeypatch.setitem(load._LOADERS, module["AverageSpec"], module["load_average"])
    return module


@pytest.fixture
def config(page: dict[str, Any]) -> ModelConfig:
    """average, attention, average"""
    plain = CONFIG.layers[0]
    average = replace(plain, mixer=page["AverageSpec"](width=WIDTH))
    return replace(CONFIG, layers=(average, plain, average))


def built(config: ModelConfig) -> Decoder:
    tensors = DummyTensors(config, seed=3)
    return build_model(config, TorchOps(exact=True), tensors, torch.float32, CPU, config.max_model_len)


def test_the_layer_of_the_page_computes_what_it_says(config: ModelConfig) -> None:
    decoder, tokens = built(config), [7 * i % 97 for i in range(21)]
    seen: list[torch.Tensor] = []
    layer = decoder.layers[0]
    x = torch.randn(21, 32)
    states = States(decoder, 4)
    whole = chunk(tokens, 0, 21, list(range(6)), request(tokens))
    states.run([whole], before=lambda batch: seen.append(
        layer.mixer.mix(decoder.ops, x, layer.weights, states.kv.state[0], batch.of_group(1))
    ))  # fmt: skip
    rows, kept, average = layer.weights["inputs"].linear(x), layer.mixer.kept, torch.zeros(WIDTH)  # type: ignore[attr-defined]
    assert 0.4 < float(kept.min()) < float(kept.max()) < 0.6
    for row, given in zip(rows, seen[0], strict=True):
        average = kept * average + (1 - kept) * row
        torch.testing.assert_close(given, average)


def test_cuts_change_no_bit(config: ModelConfig) -> None:
    tokens, decoder, rng = [7 * i % 97 for i in range(45)], built(config), random.Random(1)
    wanted = States(decoder, 4).run([chunk(tokens, 0, 45, list(range(12)), request(tokens))])
    states, at, logits = States(decoder, 4), 0, torch.empty(0)
    while at < 45:
        count = min(rng.choice((1, 1, 2, 4, 9)), 45 - at)
        logits = states.run([chunk(tokens, at, count, list(range(12)), request(tokens))])
        at += count
    assert torch.equal(logits, wanted)


def test_names_and_pages_follow_and_what_does_not_is_refused_by_name(config: ModelConfig) -> None:
    assert "model.layers.2.average.rate" in {part.name for part in expected_parts(config)}
    groups = kv_groups(config)
    assert (groups.groups, groups.places) == ((1, 0, 2), (0, 0, 0))
    assert [group.kind for group in groups.declared] == ["fixed"]
    with pytest.raises(InvalidConfig, match="tensor_parallel 2: layers of moving average are not cut into parts"):
        check_cuts(config, 2)
