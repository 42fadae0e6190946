"""The products of a model of transformers by our operations, where its layers are plain ones.

A matrix is in memory once: what our operations lay out anew takes the place of the library's.
"""

from typing import Any

from torch import Tensor
from torch.nn import Embedding, Linear, Module
from transformers.pytorch_utils import Conv1D

from chairlift.runner.ops import Ops, Weight
from chairlift.runner.torch.ops import TorchOps


class _OwnProduct(Module):
    def __init__(self, own: Weight, like: Tensor, is_head: bool) -> None:
        """is_head: its products are logits."""
        super().__init__()
        self._multiply = own.logits if is_head else own.linear
        self.weight = like.new_empty(0)  # some layers ask for its type

    def forward(self, x: Tensor) -> Tensor:
        return self._multiply(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)


class _OwnRows(Module):
    def __init__(self, own: Weight, like: Tensor) -> None:
        super().__init__()
        self._rows = own.rows
        self.weight = like.new_empty(0)

    def forward(self, ids: Tensor) -> Tensor:
        return self._rows(ids.reshape(-1)).view(*ids.shape, -1)


def use_own_products(model: Any, ops: Ops) -> None:
    """Torch's operations would be no other than the library's."""
    if isinstance(ops, TorchOps):
        return
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    is_tied = head is not None and head.weight is embedding.weight
    if is_tied and type(head) is Linear and head.bias is None and type(embedding) is Embedding:
        shared = ops.weight(embedding.weight.data)
        model.set_output_embeddings(_OwnProduct(shared, head.weight, is_head=True))
        model.set_input_embeddings(_OwnRows(shared, embedding.weight))
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) in (Linear, Conv1D) and not (is_tied and layer is head):
                parent._modules[name] = _own(layer, ops, layer is head)


def _own(layer: Any, ops: Ops, is_head: bool) -> _OwnProduct:
    stored = layer.weight.data
    matrix = stored if type(layer) is Linear else stored.t().contiguous()
    bias = None if layer.bias is None else layer.bias.data
    layer.weight = None  # freed before the next is laid out
    return _OwnProduct(ops.weight(matrix, bias), stored, is_head)
