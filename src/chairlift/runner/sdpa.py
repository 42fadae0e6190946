"""Which of torch's own attention kernels may answer.

On a GPU all but cuDNN's: where memory is short it fails without a word of memory, and a step that could be made smaller
would be lost.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_ANSWERING = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def without_cudnn(device: torch.device) -> AbstractContextManager[None]:
    """While it is entered; nothing is changed for good, as the process may be somebody else's."""
    return sdpa_kernel(_ANSWERING) if device.type == "cuda" else nullcontext()
