"""With exact operations a row's bits are the same alone and among other adapters, ranks and rows."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chairlift.core.attributes import Attributes
from chairlift.core.plan import AdapterSlot, Chunk
from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.files.hf import load_hf
from chairlift.runner.adapters.low_rank import make_host_adapter
from chairlift.runner.adapters.model import AdaptedModel, HostSlots, Slots, adapted
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native import ops as native
from chairlift.runner.native.adapters import NativeSlots
from chairlift.runner.ops import Ops
from chairlift.runner.torch.batching import batch_of
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from fakes.adapters import write_adapter
from fakes.tiny_model import write_tiny_model
from unit.runner.twins import CPU, chunk, random_tokens, request, shuffled_tables, step

LENGTHS = [3, 21, 1, 7, 16]
NUMBERS = [1, 2, 0, 3, 1]  # adapters of the requests


def make(name: str) -> Ops:
    if name == "torch":
        return TorchOps(exact=True)
    if not native.available():
        pytest.skip("the native kernels are not built: make kernels")
    return native.NativeOps(2)


@pytest.mark.parametrize(
    ("name", "dtype"), [("torch", torch.float32), ("native", torch.float32), ("native", torch.bfloat16)]
)
def test_bits_are_the_same_alone_and_among_others(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    config, ops = load_hf(write_tiny_model(tmp_path / "model")), make(name)
    decoder = build_model(config, ops, HfTensors(tmp_path / "model"), dtype, CPU, 128)
    store = AdapterStore(lambda path: make_host_adapter(read_adapter(path, config, 64), ops, dtype), 1 << 30)
    for number, rank in ((1, 4), (2, 16), (3, 5)):
        store.read(number, str(write_adapter(tmp_path / str(number), seed=number, rank=rank)))
    slots: Slots = HostSlots(store, 3)
    if isinstance(ops, native.NativeOps):
        slots = NativeSlots(store, 3, decoder.config, sum(LENGTHS), ops.calls)
    places = (AdapterSlot(1, 2), AdapterSlot(2, 0), AdapterSlot(3, 1))
    slots.load(places)
    model = AdaptedModel(decoder, adapted(decoder, slots), slots)
    tables = shuffled_tables(LENGTHS, 4, 40)

    def hidden(chunks: list[Chunk]) -> dict[int, torch.Tensor]:
        plan = step(chunks)._replace(adapters=places)
        kv = KvCache(config, 40, 4, dtype, CPU)
        with torch.inference_mode():
            rows = model.hidden(batch_of(plan, 4, {}, CPU), kv)
        return {c.request.id: row for c, row in zip(plan.chunks, rows, strict=True)}

    chunks = []
    for i, (length, number) in enumerate(zip(LENGTHS, NUMBERS, strict=True)):
        tokens = random_tokens(length, seed=i)
        asked = replace(request(tokens, id=i), attributes=Attributes(adapter=number))
        chunks.append(chunk(tokens, 0, length, tables[i], asked))
    together = hidden(chunks)
    for each in chunks:
        alone = hidden([each])
        assert torch.equal(alone[each.request.id], together[each.request.id])
