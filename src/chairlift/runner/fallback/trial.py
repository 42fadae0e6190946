"""A trial at load: the same few texts by the model as transformers runs it and by ours, in chunks and in pages.

Layers that mix tokens outside of their attention, or that keep something between steps, show here.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import BlockId, RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.models.spec import ModelConfig
from chairlift.runner.fallback.model import TransformersModel
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.batching import batch_of
from chairlift.runner.torch.ops import TorchOps

_PLAIN = "eager"  # transformers' own attention, the only one that has every cap and sink
_BLOCK = 4
_LENGTHS = (11, 7)  # of the texts
_NUM_BLOCKS = 6
_STEPS = ((6, 3), (1, 3), (3, 1), (1, 0))  # tokens of each text in each step
# Of the largest logit. In 16 bits a text may choose other experts, so that only gross differences count.
_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-2, torch.bfloat16: 0.5, torch.float16: 0.5}


@torch.inference_mode()
def plain_logits(config: ModelConfig, model: Any) -> list[Tensor]:
    """Of each text [T, vocab], by the model as it is."""
    texts = [torch.tensor([_text(length, config.vocab_size)], device=model.device) for length in _LENGTHS]
    model.set_attn_implementation(_PLAIN)
    return [model(text, use_cache=False).logits[0].float() for text in texts]


@torch.inference_mode()
def check_pages(config: ModelConfig, model: Any, dtype: torch.dtype, expected: list[Tensor]) -> None:
    """Refuses a model whose logits in pages are not those of the library. Its attention is ours afterwards."""
    texts = [_text(length, config.vocab_size) for length in _LENGTHS]
    paged = TransformersModel(config, model, TorchOps(), dtype)
    kv = KvCache(config, _NUM_BLOCKS, _BLOCK, dtype, model.device)
    done = [0] * len(texts)
    for counts in _STEPS:
        batch = replace(batch_of(_plan(texts, done, counts), _BLOCK, {}, model.device), logit_rows=None)
        logits = paged.logits(paged.hidden(batch, kv)).float()
        parts = [rows[start : start + count] for rows, start, count in zip(expected, done, counts, strict=True)]
        _compare(config, dtype, logits, torch.cat(parts))
        done = [have + count for have, count in zip(done, counts, strict=True)]


def _text(length: int, vocab_size: int) -> list[int]:
    return [(997 * length + 31 * i * i) % vocab_size for i in range(length)]


def _plan(texts: list[list[int]], done: list[int], counts: Sequence[int]) -> StepPlan:
    """The next tokens of each text. The blocks of the texts take turns, from the last down."""
    chunks = []
    for index, (text, start, count) in enumerate(zip(texts, done, counts, strict=True)):
        if count:
            blocks = [BlockId(_NUM_BLOCKS - 1 - len(texts) * i - index) for i in range(-(-len(text) // _BLOCK))]
            request = Request(id=RequestId(index), prompt=tuple(text), params=SamplingParams(), max_output=1, seed=0)
            chunks.append(Chunk(request, start, count, text, len(text), (blocks,), len(blocks), (request,)))
    return StepPlan(0, tuple(chunks), (), sum(counts), 0)


def _compare(config: ModelConfig, dtype: torch.dtype, found: Tensor, expected: Tensor) -> None:
    if not expected.isfinite().all():
        return  # what is served says so by itself
    error = ((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6)).item()
    if not error <= _TOLERANCE[dtype]:
        raise InvalidConfig(
            f"{config.architecture}: in pages its logits differ from those of transformers, by {error:.2g} of the "
            "largest: it does more between tokens than attention, and cannot be served"
        )
