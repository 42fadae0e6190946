"""Quantised matrices of safetensors: which tensors make one, and the numbers that they stand for.

A module is what its tensors' names, types and shapes say; all but `adds_one` and `block` follows from them.

    AWQ                  qweight int32 [in, out / 8], qzeros, scales [in / g, out]
    GPTQ                 qweight int32 [in * b / 32, out], qzeros, scales [in / g, out], g_idx [in]
    compressed-tensors   weight_packed int32 [out, in * b / 32], weight_scale; or weight in int8 or e4m3
    fp8, NVFP4, MXFP4    weight, weight_scale or weight_scale_inv, factors of the whole tensor
    bitsandbytes         weight, weight.absmax and tables; or weight int8, SCB

What operations may keep is handed out as it is, by kind:

    W4, W8   integers: scales and zeros of groups (`integers.py`)
    FP8      bytes of e4m3, float32 scales of groups; those of blocks are repeated for each row
    NVFP4    half bytes of e2m1, e4m3 scales of groups of 16, and for each row a factor and a divisor of these
    MXFP4    half bytes of e2m1, powers of two of groups of 32
    NF4      half bytes, high ones first, of a table for each row; float32 scales of groups

Always: numbers are computed in float32; a scale that is not finite, a type or a shape that does not fit is refused by
name. Knows no files: `read` gives tensors by the name of their role.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.shards import Cut
from chairlift.models.spec import PLAIN_QUANTISATION, Quantisation
from chairlift.models.tensors import MXFP4_GROUP
from chairlift.runner.weights.integers import Integers, as_bytes, unpacked
from chairlift.runner.weights.mxfp4 import E2M1, MXFP4
from chairlift.runner.weights.source import Stored

_ROLE = re.compile(
    r"(.+)\.(weight|qweight|qzeros|scales|g_idx|weight_packed|weight_scale|weight_scale_inv|weight_scale_2|"
    r"weight_global_scale|input_global_scale|input_scale|activation_scale|weight_zero_point|weight_shape|weight_g_idx|"
    r"SCB|weight_format|weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.bitsandbytes__\w+))"
)
_SCALE = {  # by the role of the packed numbers, what makes them a quantised matrix
    "qweight": ("scales",),
    "weight_packed": ("weight_scale",),
    "weight": ("weight_scale_inv", "weight_scale", "SCB", "weight.absmax"),
}
_OF_KEYS = re.compile(r"(.+\.)?(self_attn|attn|[kv]_proj)\.(kv?|v|q|prob)_(scale|zero_point)")  # and of values
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where each column's half byte is
_FP8 = (torch.float8_e4m3fn,)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_WORD = 32  # bits
NVFP4_GROUP = 16  # columns
FP8, NVFP4, NF4 = "FP8", "NVFP4", "NF4"
_FACTOR, _DIVISOR = "weight_scale_2", "weight_global_scale"  # of a whole tensor
_WORDS = {"qweight", "qzeros", "scales", "weight_packed"}


def modules(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Quantised matrices by the name that they would have as numbers: their tensors by role."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        if match := _ROLE.fullmatch(name):
            found.setdefault(match[1], {})[match[2]] = name
    return {
        f"{module}.weight": roles
        for module, roles in found.items()
        if any(packed in roles and any(scale in roles for scale in scales) for packed, scales in _SCALE.items())
    }


def is_of_keys(name: str) -> bool:
    """A scale of cached keys or values, which are kept in a type of our own."""
    return _OF_KEYS.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class QuantisedMatrix:
    """One matrix of a file."""

    where: str  # file and name, for messages
    shape: tuple[int, ...]  # [out, in]
    roles: Set[str]
    read: Callable[[str], Tensor]  # by role
    said: Quantisation = PLAIN_QUANTISATION  # by the configuration

    @property
    def form(self) -> str:
        """What it is called in messages."""
        if "qweight" in self.roles:
            return "AWQ" if self._is_awq() else "GPTQ"
        if "weight.absmax" in self.roles:
            return "bitsandbytes"
        packed = self.read("weight_packed" if "weight_packed" in self.roles else "weight").dtype
        words = {torch.int32: "integers", torch.int8: "int8", torch.uint8: "fp4"}
        return words.get(packed, "fp8")

    def stored(self, cut: Cut | None = None) -> Stored | None:
        """None: it is of no kind that operations keep, or the cut goes through a group."""
        if len(self.shape) != 2:
            return None
        if (found := self._integers()) is not None:
            found = found if cut is None else found.cut(cut)
            return None if found is None else found.stored(self.where)
        whole = self._of_table() if "weight.absmax" in self.roles else self._of_floats()
        if whole is None or cut is None:
            return whole
        return whole.cut(cut) if whole.is_whole(cut) else None

    def widened(self) -> Tensor:
        """float32 [out, in]"""
        if len(self.shape) != 2:
            raise InvalidConfig(f"{self.where} is quantised, the configuration says shape {list(self.shape)}")
        if "weight.absmax" in self.roles:
            return self._bitsandbytes()
        if "SCB" in self.roles:
            numbers = self._typed("weight", (torch.int8,), self.shape).float()
            return numbers * self._scales("SCB", (self.shape[0],))[:, None] * torch.tensor(1 / 127)
        if (found := self._integers()) is not None:
            return found.widened()
        return self._scaled()

    def _integers(self) -> Integers | None:
        for role in self.roles & _WORDS:
            if self.read(role).dim() != 2:
                raise self._bad(role, f"has shape {list(self.read(role).shape)}, which is no matrix")
        if "qweight" in self.roles:
            return self._awq() if self._is_awq() else self._gptq()
        if "weight_packed" in self.roles:
            return self._words() if self.read("weight_packed").dtype is torch.int32 else None
        return self._bytes() if self.read("weight").dtype is torch.int8 else None

    # AWQ and GPTQ

    def _is_awq(self) -> bool:
        return self.read("qweight").shape[-1] != self.read("scales").shape[-1]

    def _awq(self) -> Integers:
        (rows, columns), scales = self.shape, self._grouped_scales("scales")
        self._agree(4, columns // len(scales))
        numbers = self._halves("qweight", (columns, rows // 8))
        zeros = self._halves("qzeros", (len(scales), rows // 8))
        return Integers(numbers, zeros, scales.t(), 4)

    def _halves(self, role: str, shape: tuple[int, int]) -> Tensor:
        """Of AWQ's words of eight outputs: uint8 [out, ...]"""
        words = self._typed(role, (torch.int32,), shape).t()
        bytes_ = as_bytes(words).unflatten(1, (-1, 4))
        halves = [bytes_[..., place // 2] >> place % 2 * 4 & 15 for place in _AWQ_ORDER]
        return torch.stack(halves, dim=1).flatten(0, 1)

    def _gptq(self) -> Integers:
        (rows, columns), scales = self.shape, self._grouped_scales("scales")
        words = self.read("qweight")
        bits = self._bits("qweight", words.shape[0])
        self._agree(bits, columns // len(scales))
        words = self._typed("qweight", (torch.int32,), (-(-columns * bits // _WORD), rows))
        numbers = unpacked(words.t(), bits)[:, :columns]  # [out, in]
        stored = self._typed("qzeros", (torch.int32,), (len(scales), -(-rows * bits // _WORD)))
        zeros = unpacked(stored, bits)[:, :rows] + self.said.adds_one & (1 << bits) - 1
        return Integers(numbers, zeros.t(), scales.t(), bits, self._group_of_column("g_idx", len(scales)))

    def _bits(self, role: str, num_words: int) -> int:
        bits = num_words * _WORD // self.shape[1]
        if not 2 <= bits <= 8:
            raise self._bad(role, f"has {num_words} words for {self.shape[1]} columns, which is not 2 to 8 bits each")
        return bits

    def _grouped_scales(self, role: str) -> Tensor:
        """[groups, out]"""
        count, (rows, columns) = len(self.read(role)), self.shape
        if not count or columns % count:
            raise self._bad(role, f"has {count} groups, which do not divide {columns} columns")
        return self._scales(role, (count, rows))

    def _group_of_column(self, role: str, count: int) -> Tensor | None:
        """None: they are in order."""
        if role not in self.roles:
            return None
        found = self._typed(role, (torch.int32, torch.int64), (self.shape[1],)).long()
        if int(found.min()) < 0 or int(found.max()) >= count:
            raise self._bad(role, f"names a group beyond the {count} that have scales")
        return None if torch.equal(found, torch.arange(len(found)) // (len(found) // count)) else found

    # compressed-tensors, in words; and signed bytes

    def _words(self) -> Integers:
        rows, columns = self.shape
        words = self.read("weight_packed")
        bits = self._bits("weight_packed", words.shape[-1])
        self._typed("weight_packed", (torch.int32,), (rows, -(-columns * bits // _WORD)))
        if "weight_shape" in self.roles and self.read("weight_shape").tolist() != [rows, columns]:
            raise self._bad("weight_shape", f"must be {[rows, columns]}")
        scales = self.read("weight_scale")
        count = scales.shape[-1] if scales.dim() == 2 else 1
        if not count or columns % count:
            raise self._bad("weight_scale", f"has {count} groups, which do not divide {columns} columns")
        self._agree(bits, columns // count)
        scales = self._scales("weight_scale", (rows, count))
        numbers, zeros = unpacked(words, bits)[:, :columns], torch.full((rows, count), 1 << bits - 1)
        if "weight_zero_point" in self.roles:
            stored = self._typed("weight_zero_point", (torch.int32,), (-(-rows * bits // _WORD), count))
            zeros = unpacked(stored.t(), bits)[:, :rows].t()
        return Integers(numbers, zeros, scales, bits, self._group_of_column("weight_g_idx", count))

    def _bytes(self) -> Integers | None:
        """None: scales are of blocks, or zeros of others than scales."""
        rows, codes = self.shape[0], self._typed("weight", (torch.int8,), self.shape)
        if "SCB" in self.roles:
            return Integers(codes, torch.zeros(rows, 1), self._scales("SCB", (rows, 1)) * torch.tensor(1 / 127), 8)
        scales = self._of_rows(self._finite("weight_scale")) if "weight_scale" in self.roles else None
        if scales is None or not self.roles.isdisjoint((_FACTOR, _DIVISOR)):
            return None
        if "weight_zero_point" not in self.roles:
            return Integers(codes, torch.zeros_like(scales), scales, 8)
        zeros = self._of_rows(self.read("weight_zero_point"))
        return Integers(codes, zeros, scales, 8) if zeros is not None and zeros.shape == scales.shape else None

    def _of_rows(self, tensor: Tensor) -> Tensor | None:
        """[out, groups]; None: it is of no rows or groups."""
        rows, columns = self.shape
        if tensor.numel() == 1:
            return tensor.reshape(1, 1).expand(rows, 1)
        tensor = tensor[:, None] if tensor.dim() == 1 else tensor
        is_fit = tensor.dim() == 2 and tensor.shape[0] == rows and tensor.shape[1] and not columns % tensor.shape[1]
        return tensor if is_fit else None

    # A number a byte or half a byte, with scales of tensors, rows, groups or blocks

    @property
    def _packed_role(self) -> str:
        return "weight_packed" if "weight_packed" in self.roles else "weight"

    @property
    def _scale_role(self) -> str:
        return "weight_scale_inv" if "weight_scale_inv" in self.roles else "weight_scale"

    def _scaled(self) -> Tensor:
        wide = self._numbers(self._packed_role)
        if "weight_zero_point" in self.roles:
            wide -= self._spread("weight_zero_point", self.read("weight_zero_point").float())
        wide *= self._spread(self._scale_role, self._finite(self._scale_role))
        if _DIVISOR in self.roles:
            wide /= self._scales(_DIVISOR, ())
        if _FACTOR in self.roles:
            wide *= self._scales(_FACTOR, ())
        return wide

    def _of_floats(self) -> Stored | None:
        """None: its groups are of other sizes, or it has zeros."""
        (rows, columns), codes, scales = self.shape, self.read(self._packed_role), self._finite(self._scale_role)
        if "weight_zero_point" in self.roles:
            return None
        if codes.dtype is torch.uint8:
            return self._of_halves(self._typed(self._packed_role, (torch.uint8,), (rows, columns // 2)))
        by_rows = self._by_rows(scales)
        if by_rows is None or not self.roles.isdisjoint((_FACTOR, _DIVISOR)):
            return None
        codes, count = self._typed(self._packed_role, _FP8, self.shape), by_rows.shape[1]
        return Stored(
            self.where, FP8, (codes.reshape(rows, count, -1), by_rows), (rows, columns), columns // count
        )  # fmt: skip

    def _of_halves(self, codes: Tensor) -> Stored | None:
        (rows, columns), scales = self.shape, self.read(self._scale_role)
        if scales.dim() != 2 or len(scales) != rows or columns % scales.shape[1]:
            return None
        size, factors = columns // scales.shape[1], [torch.ones(()), torch.ones(())]
        for index, role in enumerate((_FACTOR, _DIVISOR)):
            if role in self.roles:
                factors[index] = self._scales(role, ())
        codes = codes.reshape(rows, -1, size // 2)
        if scales.dtype in _FP8 and size == NVFP4_GROUP:
            tensors: tuple[Tensor, ...] = codes, scales, torch.stack(factors).expand(rows, 2)
            return Stored(self.where, NVFP4, tensors, (rows, columns), size)
        if scales.dtype is torch.uint8 and size == MXFP4_GROUP and self.roles.isdisjoint((_FACTOR, _DIVISOR)):
            return Stored(self.where, MXFP4, (codes, scales), (rows, columns), size)
        return None

    def _by_rows(self, scales: Tensor) -> Tensor | None:
        """[out, groups], of blocks repeated; None: columns are cut into unequal parts."""
        rows, columns = self.shape
        if scales.dim() == 4 and scales.shape[1] == scales.shape[3] == 1:
            scales = scales[:, 0, :, 0]
        if (found := self._of_rows(scales)) is not None:
            return found
        high, wide = self.said.block
        if scales.shape != (-(-rows // high), -(-columns // wide)) or columns % wide:
            return None
        return scales.repeat_interleave(high, 0)[:rows]

    def _numbers(self, role: str) -> Tensor:
        (rows, columns), stored = self.shape, self.read(role)
        if stored.dtype is torch.uint8:
            halves = unpacked(self._typed(role, (torch.uint8,), (rows, columns // 2)), 4)
            return torch.tensor(E2M1).index_select(0, halves.flatten().int()).view(self.shape)
        wide = self._typed(role, (*_FP8, torch.int8), self.shape).float()
        if not all(map(math.isfinite, torch.aminmax(wide))):
            raise self._bad(role, "holds values that are not finite numbers (damaged?)")
        return wide

    def _spread(self, role: str, scales: Tensor) -> Tensor:
        """To [out, in], or what broadcasts to it."""
        rows, columns = self.shape
        if scales.numel() == 1:
            return scales.reshape(1, 1)
        if scales.dim() == 4 and scales.shape[1] == scales.shape[3] == 1:
            scales = scales[:, 0, :, 0]
        scales = scales[:, None] if scales.dim() == 1 else scales
        if scales.dim() == 2 and scales.shape[0] == rows and scales.shape[1] and not columns % scales.shape[1]:
            return scales if scales.shape[1] == 1 else scales.repeat_interleave(columns // scales.shape[1], 1)
        high, wide = self.said.block
        if scales.shape != (-(-rows // high), -(-columns // wide)):
            raise self._bad(
                role, f"has shape {list(scales.shape)}, which fits no rows, groups or blocks of {[rows, columns]}"
            )
        return scales.repeat_interleave(high, 0)[:rows].repeat_interleave(wide, 1)[:, :columns]

    # bitsandbytes

    def _halves_of_table(self) -> tuple[Tensor, Tensor, Tensor, int]:
        """Bytes, the table, the largest of each group of so many numbers."""
        (state,) = (role for role in self.roles if role.startswith("weight.quant_state."))
        try:
            facts = json.loads(bytes(self.read(state).tolist()))
            size, shape = int(facts["blocksize"]), tuple(facts["shape"])
            nested, offset = int(facts.get("nested_blocksize", 256)), float(facts.get("nested_offset", 0.0))
        except (ValueError, KeyError, TypeError) as error:
            raise self._bad(state, f"cannot be read: {error}") from None
        if shape != self.shape or min(size, nested) < 1:
            raise self._bad(
                state, f"says shape {list(shape)} and blocks of {size}, the configuration {list(self.shape)}"
            )
        count = self.shape[0] * self.shape[1]
        stored = self.read("weight").flatten()
        if stored.dtype is not torch.uint8 or len(stored) != -(-count // 2):
            raise self._bad("weight", f"must be {-(-count // 2)} bytes")
        return stored, self._scales("weight.quant_map", (16,)), self._largest(-(-count // size), nested, offset), size

    def _bitsandbytes(self) -> Tensor:
        stored, table, largest, size = self._halves_of_table()
        count = self.shape[0] * self.shape[1]
        halves = torch.stack((stored >> 4, stored & 15), dim=-1).flatten()
        wide = table.index_select(0, halves.int())[:count]
        return wide.mul_(largest.repeat_interleave(size)[:count]).view(self.shape)

    def _of_table(self) -> Stored | None:
        """None: its groups go on in the next row."""
        (rows, columns), (stored, table, largest, size) = self.shape, self._halves_of_table()
        if columns % size or size % 2:
            return None
        tensors = stored.view(rows, -1, size // 2), largest.view(rows, -1), table.expand(rows, -1)
        return Stored(self.where, NF4, tensors, (rows, columns), size)

    def _largest(self, count: int, size: int, offset: float) -> Tensor:
        """Of each block."""
        if "weight.nested_absmax" not in self.roles:
            return self._scales("weight.absmax", (count,))
        stored = self._typed("weight.absmax", (torch.uint8,), (count,))
        nested = self._scales("weight.nested_absmax", (-(-count // size),)).repeat_interleave(size)[:count]
        return self._scales("weight.nested_quant_map", (256,))[stored.int()] * nested + torch.tensor(offset)

    # Checks

    def _typed(self, role: str, types: Collection[torch.dtype], shape: tuple[int, ...]) -> Tensor:
        tensor = self.read(role)
        if tensor.dtype not in types or tuple(tensor.shape) != tuple(shape):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise self._bad(role, f"is {kind} {list(tensor.shape)}, which does not fit {list(shape)}")
        return tensor

    def _scales(self, role: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._finite(role)
        if tensor.numel() != int(np.prod(shape)):
            raise self._bad(role, f"has shape {list(tensor.shape)}, not {list(shape)}")
        return tensor.reshape(shape)

    def _finite(self, role: str) -> Tensor:
        """float32"""
        stored = self.read(role)
        if stored.dtype is torch.uint8:  # powers of two
            wide = torch.ldexp(torch.ones(stored.shape), stored.int() - 127)
        elif stored.dtype in (*_FLOATS, *_FP8, torch.float8_e8m0fnu):
            wide = stored.float()
        else:
            raise self._bad(role, f"is stored as {str(stored.dtype).removeprefix('torch.')}, which is not supported")
        if not bool(wide.isfinite().all()):
            raise self._bad(role, "holds values that are not finite numbers (damaged?)")
        return wide

    def _agree(self, bits: int, group: int) -> None:
        """With what the configuration says, where it says one thing of all modules."""
        said = self.said
        if said.bits and bits != said.bits:
            raise InvalidConfig(f"{self.where} has {bits} bits, quantization_config says {said.bits}")
        if said.group and group != said.group and group != self.shape[1]:
            raise InvalidConfig(f"{self.where} has groups of {group}, quantization_config says {said.group}")

    def _bad(self, role: str, why: str) -> InvalidConfig:
        return InvalidConfig(f"{self.where}: {role} {why}")
