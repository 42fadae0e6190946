"""How much memory torch takes at once: the largest of what its operations make."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Largest(TorchFunctionMode):
    """The most numbers that an operation makes."""

    most = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {each.untyped_storage().data_ptr() for each in args if isinstance(each, torch.Tensor)}
        for each in made if isinstance(made, tuple) else [made]:
            if isinstance(each, torch.Tensor) and each.untyped_storage().data_ptr() not in given:  # no view
                self.most = max(self.most, each.numel())
        return made
