"""A device that torch knows by the name of `npu` and that is host memory: each operation is carried out by the CPU's.

Always: an operation takes tensors of the device alone, but for copies and single numbers, as on a real one; a tensor
that was left on the host is an error. For a process of its own: torch keeps the device for good.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import Library
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_NAME = "npu"
_COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")


class OnDevice(Tensor):
    """Says that it is on the device; `host` holds its values."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> "OnDevice":
        with torch.inference_mode(False):  # a view of a tensor that was made before
            made: OnDevice = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls, host.size(), host.stride(), host.storage_offset(), dtype=host.dtype, device=f"{_NAME}:0"
            )
        made.host = host
        return made

    def tolist(self) -> Any:
        return self.host.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        return _carry_out(operation, *arguments, **(named or {}))


def set_up() -> tuple[Library, Library]:
    """Makes it known to torch as the one accelerator, as long as what is returned is kept."""
    _setup_privateuseone_for_python_backend(_NAME)
    all_else, own = Library("_", "IMPL"), Library("aten", "IMPL")
    all_else.fallback(_carry_out, "PrivateUse1")
    # Which torch would make of an empty tensor by giving it another size.
    for overload in ("default", "start", "start_step"):
        operation = getattr(torch.ops.aten.arange, overload)
        own.impl(operation, _carrying_out(operation), "PrivateUse1")
    return all_else, own


def _carrying_out(operation: Any) -> Callable[..., Any]:
    return lambda *arguments, **named: _carry_out(operation, *arguments, **named)


def _carry_out(operation: Any, *arguments: Any, **named: Any) -> Any:
    name = operation._schema.name
    is_to_host = any(isinstance(each, torch.device) and each.type == "cpu" for each in (*arguments, *named.values()))

    def on_host(value: Any) -> Any:
        if isinstance(value, OnDevice):
            return value.host
        if isinstance(value, Tensor) and value.dim() and name not in _COPIES:
            raise RuntimeError(f"{name}: a tensor of the host among those of the device")
        return torch.device("cpu") if isinstance(value, torch.device) else value

    out = operation(*tree_map(on_host, arguments), **tree_map(on_host, named))
    if is_to_host:
        return out
    if operation._schema.is_mutable:
        return arguments[0]
    return tree_map(lambda value: OnDevice(value) if isinstance(value, Tensor) else value, out)
