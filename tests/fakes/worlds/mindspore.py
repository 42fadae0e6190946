"""Decoders and engines on MindSpore. For processes that have it: importing this starts it."""

import torch

from chairlift.config.settings import Settings
from chairlift.core.ports import Runner
from chairlift.models.spec import ModelConfig
from chairlift.runner.mindspore.target import start
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.source import TensorSource
from fakes.worlds.models import CONFIG, TinyModel
from fakes.worlds.world import World

start(Settings(device="mindspore:cpu"), threads=2)

from chairlift.runner.mindspore.attention import PlainAttention  # noqa: E402
from chairlift.runner.mindspore.decoder import MindSporeDecoder  # noqa: E402
from chairlift.runner.mindspore.runner import make_runner  # noqa: E402
from chairlift.runner.mindspore.weight import MindSporeWeight  # noqa: E402
from chairlift.runner.model import Decoder  # noqa: E402

CPU = torch.device("cpu")


def built(config: ModelConfig, tensors: TensorSource, dtype: torch.dtype) -> Decoder:
    weights = WeightFormat(MindSporeWeight, MindSporeWeight)
    return build_model(config, TorchOps(), tensors, dtype, CPU, config.max_model_len, weights)


def decoder(config: ModelConfig, tensors: TensorSource, dtype: torch.dtype, block_size: int) -> MindSporeDecoder:
    return MindSporeDecoder(built(config, tensors, dtype), block_size, PlainAttention)


class MindSporeModel(TinyModel):
    """As the other, on MindSpore; what is compiled stays for further worlds with blocks of the same size."""

    def __init__(self, like: TinyModel) -> None:
        super().__init__(torch.float64, like=like)
        self._built = built(CONFIG, DummyTensors(CONFIG), torch.float64)

    def make(self, world: World) -> Runner:
        return make_runner(self._built, "cpu", world.limits, world.preemption.num_host_blocks, self._matchers())
