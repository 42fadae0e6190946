"""A hybrid by the CUDA runner, in Triton's interpreter: the logits of transformers, and the bits of whole prompts."""

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from chairlift.core.attributes import Attributes
from chairlift.core.limits import Limits
from chairlift.core.plan import AdapterSlot, StepPlan
from chairlift.core.request import Request
from chairlift.models.adapters.adapter import read_adapter
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.adapters.pieces import make_slot_adapter
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from unit.runner.hybrids import groups_of
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, shuffled_tables, step

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu", "ordered_dots"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # rows of padding may be anything
]

SIZE = 16
LENGTHS = (35, 20)
NUM_BLOCKS = 24


KINDS = ["linear_attention", "linear_attention", "full_attention"]
SHAPE = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "layer_types": KINDS, "num_hidden_layers": 3}
ADAPTER = AdapterSlot(7, 0)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return make_twin(tmp_path_factory.mktemp("hybrid"), "qwen3.5", **SHAPE)


def logits_of(
    twin: Twin, sizes: tuple[int, ...], exact: bool = False, adapter: Path | None = None
) -> list[torch.Tensor]:
    """The last logits of two texts that are computed together, in pieces of such sizes. adapter: of the second."""
    config, groups = twin.config, groups_of(twin.config, SIZE, torch.float32)
    num_states = sum(group.num_pages + group.num_tile_pages for group in groups.declared) * 2
    num_pages = NUM_BLOCKS + 2 * num_states
    kv = KvCache(config, num_pages, SIZE, torch.float32, CPU, groups=groups)
    for state in kv.state:
        for memory in state:
            memory.fill_(torch.nan)
    limits = Limits(
        vocab_size=config.vocab_size, max_model_len=64, block_size=SIZE, num_blocks=num_pages, max_running=2,
        max_step_tokens=64, groups=groups.declared, num_adapter_slots=0 if adapter is None else 1,
    )  # fmt: skip
    model = build_model(config, CudaOps(exact), HfTensors(twin.folder), torch.float32, CPU, 64)
    store: AdapterStore[Any] = AdapterStore(
        lambda path: make_slot_adapter(read_adapter(path, config, 16), config), 1 << 30, 16
    )
    if adapter is not None:
        store.read(ADAPTER.adapter, str(adapter))
    runner = CudaRunner(model, kv, CPU, limits, exact=exact, adapters=None if adapter is None else store)
    rows: list[torch.Tensor] = []
    runner.on_logits = lambda ids, positions, logits: rows.extend(logits.clone())
    texts = [random_tokens(length, seed) for seed, length in enumerate(LENGTHS)]
    tables, done = shuffled_tables(list(LENGTHS), SIZE, NUM_BLOCKS), [0, 0]
    draw, last, number = random.Random(0), [torch.empty(0)] * 2, 1
    while left := [i for i, text in enumerate(texts) if done[i] < len(text)]:
        counts = {i: min(draw.choice(sizes), len(texts[i]) - done[i]) for i in left}
        chunks = [
            chunk(texts[i], done[i], count, tables[i], asked(texts[i], i, adapter is not None))._replace(
                tables=(tables[i], list(range(NUM_BLOCKS + i * num_states, NUM_BLOCKS + (i + 1) * num_states)))
            )
            for i, count in counts.items()
        ]
        plan: StepPlan = step(chunks)._replace(step=number)
        if adapter is not None:
            plan = plan._replace(adapters=(ADAPTER,), loads=(ADAPTER,) if number == 1 else ())
        runner.submit(plan)
        runner.collect()
        for row, done_chunk in zip(rows, plan.chunks, strict=True):
            last[done_chunk.request.id - 1] = row
        rows.clear()
        for i, count in counts.items():
            done[i] += count
        number += 1
    return last


def asked(text: list[int], index: int, has_adapter: bool) -> Request:
    attributes = Attributes(adapter=ADAPTER.adapter * (has_adapter and index == 1))
    return replace(request(text, id=index + 1), attributes=attributes)


@pytest.mark.nightly
@pytest.mark.parametrize("exact", [False, True])
def test_a_text_with_an_adapter_has_the_logits_of_peft_and_the_other_those_of_the_base(
    tmp_path: Path, exact: bool
) -> None:
    """Beside experts there is a gate of one row."""
    twin = make_twin(tmp_path, "qwen3.5-moe", **SHAPE)
    expected = [twin.reference_logits_in_float64(random_tokens(LENGTHS[0], 0))[-1]]
    twin.reference.float()
    adapter = peft.get_peft_model(twin.reference, peft.LoraConfig(r=3, lora_alpha=5, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in adapter.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    adapter.save_pretrained(tmp_path / "adapter")
    expected.append(twin.reference_logits_in_float64(random_tokens(LENGTHS[1], 1))[-1])
    for row, wanted in zip(logits_of(twin, (1, 3, 16, 20), exact, tmp_path / "adapter"), expected, strict=True):
        torch.testing.assert_close(row.double(), wanted, rtol=0, atol=2e-3)


def test_texts_in_pieces_have_the_logits_of_transformers(twin: Twin) -> None:
    for index, row in enumerate(logits_of(twin, (1, 3, 16, 20))):
        expected = twin.reference_logits_in_float64(random_tokens(LENGTHS[index], index))[-1]
        torch.testing.assert_close(row.double(), expected, rtol=0, atol=1e-3)


@pytest.mark.nightly
def test_pieces_change_no_bit_of_exact_operations(twin: Twin) -> None:
    whole = logits_of(twin, (64,), exact=True)
    for sizes in ((1,), (1, 3, 16, 20)):
        for row, expected in zip(logits_of(twin, sizes, exact=True), whole, strict=True):
            assert torch.equal(row, expected)
