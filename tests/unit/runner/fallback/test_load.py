"""Whole loads of models of transformers on a CPU: what was planned, what is served, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from chairlift.build import ResolvedModel, find_model, load
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Preempted, Token
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.runner.machine.devices import DeviceSpec, find_device
from chairlift.runner.memory.forecast import forecast
from chairlift.runner.native.ops import available
from fakes.clocks import CountingClock
from fakes.gpu import GIB
from fakes.requests import make_request
from unit.runner.fallback.families import make_twin
from unit.runner.twins import random_tokens


def resolved(folder: Path, **changes: Any) -> ResolvedModel:
    return find_model(Settings(**{"model": str(folder), "device": "cpu", "threads": 1, **changes}))


def test_greedy_answers_are_those_of_transformers_through_preemption_and_swaps(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "gpt2")
    loaded = load(resolved(tmp_path, num_blocks=12, block_size=4, max_model_len=40, preemption="swap", max_running=4))
    assert loaded.kernels == ("native" if available() else "torch")
    rule = Preemption(mode="swap", num_host_blocks=loaded.num_host_blocks)
    engine = Engine(Scheduler(loaded.limits, Fcfs(), preemption=rule), loaded.runner, CountingClock())
    shared = random_tokens(8)
    prompts = [[*shared, *random_tokens(1 + i, seed=i)] for i in range(5)]
    answers: dict[int, list[int]] = {i: [] for i in range(5)}
    for i, prompt in enumerate(prompts):
        engine.add((make_request(i, prompt, 12, temperature=0.0),))
    kinds = set()
    while engine.has_work:
        for event in engine.step():
            kinds.add(type(event))
            if isinstance(event, Token):
                answers[event.request].append(event.token)
    assert Preempted in kinds
    for i, prompt in enumerate(prompts):
        whole = twin.reference.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        assert answers[i] == whole[0, len(prompt) :].tolist()


def test_a_declared_model_forced_loads_too_and_random_weights_will_do(tmp_path: Path) -> None:
    make_twin(tmp_path, "qwen3")
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    loaded = load(resolved(tmp_path, model_impl="transformers", load_format="dummy", num_blocks=20))
    assert loaded.limits.vocab_size == 97


def test_a_plan_is_of_the_model_as_it_will_be_loaded(tmp_path: Path) -> None:
    twin = make_twin(tmp_path, "gpt_oss")
    model = resolved(tmp_path, model_impl="transformers", dtype="bfloat16", num_blocks=30)
    found = forecast(model.settings, model.source, model.config, find_device("cpu", None))
    assert found.num_parameters == sum(p.numel() for p in twin.reference.parameters())
    assert found.budget.weights == 2 * found.num_parameters
    assert found.kv_token_bytes == 2 * 2 * 2 * 2 * 16  # bytes, keys and values, layers, heads, numbers
    gpu = DeviceSpec("one", "cuda", 24 * GIB, GIB, (9, 0))
    assert forecast(model.settings, model.source, model.config, gpu).kv_token_bytes == found.kv_token_bytes


def test_a_tensor_that_is_missing_is_named(tmp_path: Path) -> None:
    make_twin(tmp_path, "gpt2")
    (path,) = tmp_path.glob("*.safetensors")
    tensors = load_file(path)
    del tensors["transformer.h.1.mlp.c_fc.weight"]
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(InvalidConfig, match=r"tensor transformer.h.1.mlp.c_fc.weight is missing"):
        load(resolved(tmp_path, num_blocks=20))


def test_a_tensor_of_another_shape_is_named_and_the_library_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_twin(tmp_path, "gpt2")
    (path,) = tmp_path.glob("*.safetensors")
    name = "transformer.h.1.mlp.c_fc.weight"
    tensors = load_file(path)
    save_file(tensors | {name: torch.zeros(32, 50)}, path, {"format": "pt"})
    capsys.readouterr()
    with pytest.raises(InvalidConfig, match=rf"tensor {name} has shape \[32, 50\], the configuration says \[32, 56\]"):
        load(resolved(tmp_path, num_blocks=20))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": ["gpt2"]}, r"has no model_type \['gpt2'\]"),
        ({"activation_function": "steep"}, r"transformers cannot compute it in pages: KeyError\('steep'\)"),
        ({"layer_types": [{}]}, r"layer_types has {} layers, which need another memory"),
    ],
)
def test_a_configuration_that_is_not_taken_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    make_twin(tmp_path, "gpt2")
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | changes))
    with pytest.raises(InvalidConfig, match=complaint) as refusal:
        load(resolved(tmp_path, num_blocks=20))
    assert "\n" not in str(refusal.value)


def test_a_file_that_ends_early_is_refused_in_one_line(tmp_path: Path) -> None:
    make_twin(tmp_path, "gpt2")
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidConfig, match="GPT2LMHeadModel: transformers cannot load it: .*incomplete metadata"):
        load(resolved(tmp_path, num_blocks=20))


def test_a_model_that_mixes_tokens_outside_of_attention_is_refused_at_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_twin(tmp_path, "gpt2")
    layer = transformers.models.gpt2.modeling_gpt2.GPT2MLP
    plain = layer.forward
    monkeypatch.setattr(layer, "forward", lambda self, x: plain(self, x) + x.cumsum(dim=1))
    with pytest.raises(
        InvalidConfig, match=r"in pages its logits differ from those of transformers, by .*: it does more"
    ):
        load(resolved(tmp_path, num_blocks=20))
