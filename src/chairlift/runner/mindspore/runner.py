"""Puts a runner on MindSpore together: its decoder and cache, and the torch runner to choose tokens on the host."""

import torch

from chairlift.core.limits import Limits
from chairlift.core.ports import Runner
from chairlift.runner.mindspore.ascend import AscendAttention
from chairlift.runner.mindspore.attention import PlainAttention
from chairlift.runner.mindspore.decoder import MindSporeDecoder
from chairlift.runner.model import Decoder
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.torch.runner import TorchRunner


def make_runner(
    model: Decoder, target: str, limits: Limits, num_host_blocks: int = 0, matchers: Matchers | None = None
) -> Runner:
    """model: of `MindSporeWeight`s"""
    attention = AscendAttention if target == "ascend" else PlainAttention
    decoder = MindSporeDecoder(model, limits.block_size, attention)
    return TorchRunner(decoder, decoder.new_cache(limits.num_blocks, num_host_blocks), torch.device("cpu"), matchers)
