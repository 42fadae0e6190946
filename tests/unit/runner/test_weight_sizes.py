from pathlib import Path

import pytest
import torch

from chairlift.runner.torch_ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from chairlift.config.tensors import weight_bytes
from unit.runner.twins import CPU, FAMILIES, make_twin


class Counting(HfTensors):
    num_layer = num_other = 0

    def read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = super().read(name, shape)
        if ".layers." in name and tensor.ndim == 2:
            self.num_layer += tensor.numel()
        else:
            self.num_other += tensor.numel()
        return tensor


@pytest.mark.parametrize("family", FAMILIES)
def test_the_size_is_that_of_all_tensors_that_are_read(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    source = Counting(twin.folder)
    build_model(twin.config, TorchOps(), source, torch.float32, CPU, 16)
    assert weight_bytes(twin.config, 2, 1) == 2 * source.num_other + source.num_layer
