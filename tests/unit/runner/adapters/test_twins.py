"""Adapters against peft: tiny random twins in float64, several adapters and base rows in a step, prompts in chunks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from chairlift.core.attributes import Attributes
from chairlift.core.plan import AdapterSlot, StepPlan
from chairlift.models.adapters.adapter import read_adapter
from chairlift.runner.adapters.low_rank import make_host_adapter
from chairlift.runner.adapters.model import AdaptedModel, HostSlots
from chairlift.runner.adapters.model import adapted as with_adapters
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.batching import batch_of
from chairlift.runner.torch.ops import TorchOps
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, shuffled_tables, step

ADAPTERS: dict[str, dict[str, Any]] = {
    "all": {"r": 4, "lora_alpha": 6, "target_modules": "all-linear"},
    "patterns": {
        "r": 3, "lora_alpha": 5, "target_modules": "all-linear",
        "rank_pattern": {"(q|qkv)_proj": 7, r"layers\.1\.mlp\.(down|c)_proj": 2},
        "alpha_pattern": {"(v|qkv)_proj": 11, r"layers\.0\.mlp\.(gate.*_proj|c_fc)": 1},
    },
    "root": {"r": 5, "lora_alpha": 3, "target_modules": ".*(v|qkv|up|c)_proj", "use_rslora": True},
}  # fmt: skip
# Parts by themselves and fused, norms and biases, rows of heads in another order, branches side by side, no gate,
# inputs of layers, matrices that nothing reads, keys that are values.
FAMILIES = [
    "llama-gqa-tied", "qwen3-qk-norm", "qwen2-bias", "phi3", "glm4", "cohere2", "starcoder2", "gemma4-shared",
    "gemma4-keys-as-values",
]  # fmt: skip
FOUND = {name: number for number, name in enumerate(ADAPTERS, 11)}


class PeftTwin:
    """A model with all adapters, ours and peft's. peft puts its layers into the reference itself."""

    def __init__(self, folder: Path, family: str, **changes: Any) -> None:
        """changes: of every adapter."""
        width = {} if family.startswith("gemma4") else {"head_dim": 16}
        self.twin: Twin = make_twin(folder / "base", family, **width)
        decoder = self.twin.decoder(torch.float64)
        (first, own), *others = ((name, peft.LoraConfig(**own | changes)) for name, own in ADAPTERS.items())
        self.peft = peft.get_peft_model(self.twin.reference, own, first)
        for name, own in others:
            self.peft.add_adapter(name, own)
        with torch.no_grad():
            for name, parameter in self.peft.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn_like(parameter) * 0.3)
        self.peft.save_pretrained(folder / "adapters", selected_adapters=list(ADAPTERS))
        store = AdapterStore(
            lambda path: make_host_adapter(read_adapter(path, self.twin.config, 64), TorchOps(), torch.float64), 1 << 30
        )
        slots = HostSlots(store, len(ADAPTERS))
        for name, number in FOUND.items():
            store.read(number, str(folder / "adapters" / name))
        self.slots = [AdapterSlot(number, slot) for slot, number in enumerate(FOUND.values())]
        slots.load(self.slots)
        self.model = AdaptedModel(decoder, with_adapters(decoder, slots), slots)

    def expected(self, name: str | None, tokens: list[int]) -> torch.Tensor:
        if name is not None:
            self.peft.set_adapter(name)
            return self.twin.reference_logits_in_float64(tokens)
        with self.peft.disable_adapter():
            return self.twin.reference_logits_in_float64(tokens)


def adapted(name: str | None, tokens: list[int], id: int) -> Any:
    attributes = Attributes(adapter=0 if name is None else FOUND[name])
    return replace(request(tokens, id=id), attributes=attributes)


@pytest.fixture(scope="module", params=FAMILIES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PeftTwin:
    return PeftTwin(tmp_path_factory.mktemp("twin"), request.param)


def run(world: PeftTwin, kv: KvCache, plan: StepPlan) -> torch.Tensor:
    with torch.inference_mode():
        batch = batch_of(plan._replace(adapters=tuple(world.slots)), kv.block_size, {}, CPU)
        return world.model.logits(world.model.hidden(batch, kv))


def test_rows_of_several_adapters_and_of_none_get_the_logits_of_peft(world: PeftTwin) -> None:
    names = [None, *ADAPTERS, "all"]
    lengths = [23, 40, 9, 30, 17]
    prompts = [random_tokens(length, seed=length) for length in lengths]
    tables = shuffled_tables(lengths, 4, 40)
    requests = [adapted(name, prompt, i) for i, (name, prompt) in enumerate(zip(names, prompts, strict=True))]
    expected = [world.expected(name, prompt) for name, prompt in zip(names, prompts, strict=True)]
    kv = KvCache(world.twin.config, 40, 4, torch.float64, CPU)
    done = [0] * len(names)
    for counts in ([8, 1, 5, 30, 2], [14, 30, 1, 0, 14], [1, 9, 3, 0, 1]):
        chunks = [
            chunk(prompts[i], done[i], count, tables[i], requests[i]) for i, count in enumerate(counts) if count > 0
        ]
        plan = step(chunks)
        logits = run(world, kv, plan)
        done = [before + count for before, count in zip(done, counts, strict=True)]
        for row, each in zip(logits, plan.chunks, strict=True):
            i = each.request.id
            torch.testing.assert_close(row, expected[i][done[i] - 1], atol=1e-9, rtol=1e-9)
    assert done == lengths


def test_adapters_change_the_logits_and_a_step_without_one_runs_the_base(world: PeftTwin) -> None:
    tokens = random_tokens(12)
    (table,) = shuffled_tables([12], 4, 40)
    kv = KvCache(world.twin.config, 40, 4, torch.float64, CPU)
    seen = []
    for name in (None, *ADAPTERS):
        plan = step([chunk(tokens, 0, 12, table, adapted(name, tokens, 0))])
        seen.append(run(world, kv, plan)[0])
    with torch.inference_mode():
        alone = world.model.logits(
            world.model.hidden(batch_of(step([chunk(tokens, 0, 12, table, request(tokens))]), 4, {}, CPU), kv)
        )
    assert torch.equal(seen[0], alone[0])
    assert all(not torch.allclose(one, other) for i, one in enumerate(seen) for other in seen[:i])
