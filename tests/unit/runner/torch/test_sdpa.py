import torch
from torch.backends import cuda

from chairlift.runner.torch.sdpa import without_cudnn


def enabled() -> tuple[bool, bool, bool, bool]:
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled()


def test_attention_on_a_gpu_is_answered_by_all_but_cudnn_and_only_meanwhile() -> None:
    assert enabled() == (True, True, True, True)
    with without_cudnn(torch.device("cuda")):
        assert enabled() == (True, True, True, False)
    assert enabled() == (True, True, True, True)
    with without_cudnn(torch.device("cpu")):
        assert enabled() == (True, True, True, True)
