"""Does what docs/add-a-model.md says, with the page's own code."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import gelu, scaled_dot_product_attention

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify.dense import logits_of
from chairlift.models.families import known
from chairlift.models.families.family import Family
from chairlift.models.families.reading import read_attention, with_windows
from chairlift.models.files.hf import load_hf
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.hf import HfTensors
from unit.runner.twins import CPU, chunk, request, run, shuffled_tables

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


def random_weights() -> dict[str, Tensor]:
    """Named and stored as the family's files are."""
    embed, inner, heads, kv_heads, vocab = 32, 48, 4, 2, 61
    dim = embed // heads
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (vocab, embed), "model.norm": (embed,), "lm_head": (vocab, embed),
    }  # fmt: skip
    for i in range(4):
        layer = {"q_proj": (heads * dim, embed), "k_proj": (kv_heads * dim, embed), "v_proj": (kv_heads * dim, embed),
                 "o_proj": (embed, heads * dim)}  # fmt: skip
        shapes |= {f"model.layers.{i}.self_attn.{name}": shape for name, shape in layer.items()}
        layer = {"gate_proj": (inner, embed), "up_proj": (inner, embed), "down_proj": (embed, inner)}
        shapes |= {f"model.layers.{i}.mlp.{name}": shape for name, shape in layer.items()}
        norms = ("input_layernorm", "attn_out_norm", "post_attention_layernorm", "mlp_out_norm")
        shapes |= {f"model.layers.{i}.{name}": (embed,) for name in norms}
    source = torch.Generator().manual_seed(7)
    return {
        f"{name}.weight": torch.randn(shape, generator=source, dtype=torch.float64) * 0.3
        for name, shape in shapes.items()
    }


def plain_reference(weights: dict[str, Tensor], tokens: list[int]) -> Tensor:
    """All logits at once, [T, vocab], from the description of the family and none of our code."""
    heads, kv_heads, dim, window, eps, theta = 4, 2, 8, 5, 1e-6, 10000.0

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * gain

    def turned(x: Tensor) -> Tensor:
        angles = place[:, None] * theta ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        a, b, cos, sin = x[..., : dim // 2], x[..., dim // 2 :], angles.cos(), angles.sin()
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    place = torch.arange(len(tokens))
    back = place[:, None] - place
    x = weights["model.embed_tokens.weight"][tokens]
    for i in range(4):
        start = f"model.layers.{i}."
        w = {name.removeprefix(start).removesuffix(".weight"): weights[name] for name in weights if start in name}
        y = norm(x, w["input_layernorm"])
        q, k, v = ((y @ w[f"self_attn.{name}_proj"].T).unflatten(1, (-1, dim)).transpose(0, 1) for name in "qkv")
        k, v = (each.repeat_interleave(heads // kv_heads, 0) for each in (turned(k), v))
        is_seen = back >= 0 if i % 3 == 2 else (back >= 0) & (back < window)
        y = scaled_dot_product_attention(turned(q), k, v, attn_mask=is_seen).transpose(0, 1).flatten(1)
        x = x + norm(y @ w["self_attn.o_proj"].T, w["attn_out_norm"])
        y = norm(x, w["post_attention_layernorm"])
        y = gelu(y @ w["mlp.gate_proj"].T, approximate="tanh") * (y @ w["mlp.up_proj"].T)
        x = x + norm(y @ w["mlp.down_proj"].T, w["mlp_out_norm"])
    return norm(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T


@pytest.mark.parametrize("counts", [[30], [1] * 30, [11, 1, 1, 17]], ids=["at once", "by token", "in chunks"])
def test_its_logits_are_those_of_a_plain_reference(hill: Family, tmp_path: Path, counts: list[int]) -> None:
    weights, tokens = random_weights(), [7 * i % 61 for i in range(30)]
    save_file(weights, write(tmp_path) / "model.safetensors")
    config = load_hf(tmp_path)
    decoder = build_model(config, TorchOps(), HfTensors(tmp_path), torch.float64, CPU, config.max_model_len)
    kv = KvCache(config, 12, 4, torch.float64, CPU)
    (table,) = shuffled_tables([30], 4, 12)
    expected, done = plain_reference(weights, tokens), 0
    for count in counts:
        logits = run(decoder, kv, [chunk(tokens, done, count, table, request(tokens))])
        done += count
        torch.testing.assert_close(logits[0], expected[done - 1], atol=1e-10, rtol=1e-10)


def test_a_window_may_have_a_key_of_its_own(hill: Family) -> None:
    config = Fields("hill", CONFIG | {"hill_window": 9})
    attentions = with_windows(config, read_attention(config), [True, False, True, True], key="hill_window")
    assert [attention.window for attention in attentions] == [9, 0, 9, 9]
    assert "hill_window" not in config.unread and "sliding_window" in config.unread


def test_a_key_that_it_does_not_read_is_refused_by_name(hill: Family, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"logit_scale is not supported in HillForCausalLM, got 0\.1"):
        load_hf(write(tmp_path, logit_scale=0.1))


def test_a_value_that_it_does_not_understand_is_refused_by_name(hill: Family, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="hidden_act must be 'gelu_pytorch_tanh', got 'relu'"):
        load_hf(write(tmp_path, hidden_act="relu"))


def test_the_page_names_what_is_there(hill: Family) -> None:
    page = PAGE.read_text()
    assert "`FAMILIES`" in page and known.FAMILIES
    for link in re.findall(r"\]\(\.\./([^)]+)\)", page):
        assert (PAGE.parents[1] / link).exists(), link
