"""A model whose logits follow from the whole text, read through the block tables of a device: a paging mistake shows as
another token. Played without a GPU: `python -m fakes.text_model LIMITS FILE` (LIMITS: JSON)
reads step inputs and prints their answers.
"""

import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from chairlift.core.limits import Limits
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.cuda.ops import CudaBatch
from chairlift.runner.cuda.step.device import DevicePart
from chairlift.runner.cuda.step.in_flight import StepOutput
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import OnLayer, nothing
from chairlift.runner.ops import Batch
from chairlift.runner.torch.ops import TorchOps

CPU = torch.device("cpu")
_NUM_TEXTS = 997  # that are told apart


def config_of(limits: Limits) -> ModelConfig:
    return uniform_model(
        architecture="LlamaForCausalLM", hidden_size=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=8,
        intermediate_size=8, vocab_size=limits.vocab_size, max_model_len=limits.max_model_len, rms_norm_eps=1e-5,
        rope_theta=10000.0,
    )  # fmt: skip


def cache_of(limits: Limits) -> KvCache:
    num_host_blocks = 20  # as many as a random world has
    return KvCache(config_of(limits), limits.num_blocks, limits.block_size, torch.float32, CPU, num_host_blocks)


@dataclass
class TextModel:
    config: ModelConfig
    ops: TorchOps = field(default_factory=TorchOps)

    def hidden(self, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing) -> Tensor:
        assert isinstance(batch, CudaBatch)
        texts = kv.tokens[batch.tables[batch.table_rows.long()].long()].flatten(1).long() + 1  # [T, longest]
        places = torch.arange(texts.shape[1])
        sums = (texts * (3 * places + 7)).masked_fill(places > batch.positions[:, None], 0).sum(dim=1)
        rows = torch.randn(_NUM_TEXTS, self.config.vocab_size, generator=torch.Generator().manual_seed(5)) * 2
        hidden = rows[sums % _NUM_TEXTS]
        return hidden if batch.logit_rows is None else hidden[batch.logit_rows.long()]

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.clone()


class NoEvent:
    """Done at once."""

    def record(self) -> None: ...

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...


def told(answer: StepOutput) -> object:
    """As JSON has it."""
    return json.loads(json.dumps([answer.tokens, sorted(answer.scores.items()), answer.prompt_scores]))


def write(path: Path, steps: list[bytes]) -> None:
    path.write_bytes(b"".join(struct.pack("<q", len(step)) + step for step in steps))


def read(path: Path) -> Iterator[StepInput]:
    data, low = memoryview(path.read_bytes()), 0
    while low < len(data):
        (size,) = struct.unpack_from("<q", data, low)
        yield StepInput.from_bytes(data[low + 8 : low + 8 + size])
        low += 8 + size


@torch.inference_mode()
def main(limits: Limits, path: Path) -> None:
    torch.cuda.Event = NoEvent  # type: ignore[assignment,misc]
    device = DevicePart(TextModel(config_of(limits)), cache_of(limits), CPU, limits)  # type: ignore[arg-type]
    print(json.dumps([told(device.finish(device.launch(step, uses_graphs=False)).output()) for step in read(path)]))


if __name__ == "__main__":
    main(Limits(**json.loads(sys.argv[1])), Path(sys.argv[2]))
