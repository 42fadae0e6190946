"""The type, bounds and one-line description of a request's field, stated once beside the field.

`param` declares a dataclass field, `params_of` reads the declarations of a class. Checks, HTTP bodies, the OpenAPI
document and command-line flags are made from them. `Param.read` returns a value as the field's own type: a list becomes
a tuple, a number of another library a Python number. Any other, or one out of bounds, raises `InvalidRequest`.
"""

from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from numbers import Integral, Real
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured


class RequestOutputKind(Enum):
    """What the outputs of a stream show, by vLLM's names."""

    CUMULATIVE = 0  # all so far
    DELTA = 1  # what is new
    FINAL_ONLY = 2  # all, once


N = TypeVar("N", int, float)


def param(
    default: Any,
    help: str,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    max_size: int | None = None,
    is_public: bool = True,
) -> Any:
    """A dataclass field; `dict` as a default is an empty one. Bounds hold for each number of a field, `max_size` for
    their count or the characters. `is_public`: clients may give it."""
    bounds = {"least": least, "most": most, "above": above, "max_size": max_size}
    stated = {"help": help, "is_public": is_public, **bounds}
    if default is dict:
        return field(default_factory=dict, metadata=stated)
    return field(default=default, metadata=stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    name: str
    type: Any  # but for None
    is_optional: bool  # it may be None
    default: Any
    help: str
    least: float | None
    most: float | None
    above: float | None
    max_size: int | None
    is_public: bool
    plain: tuple[type, ...]  # types of values that are taken as they are
    reader: "Callable[[Param, object], Any]"  # reads any other

    def read(self, value: object) -> Any:
        if self.max_size is not None:  # first: what is too long is refused unread
            self.check_size(value)
        if type(value) not in self.plain:
            return self.reader(self, value)
        return value if value is None else self.within(value)  # type: ignore[type-var]

    def within(self, value: N, name: str | None = None) -> N:
        is_above = self.above is None or value > self.above  # none of these holds for NaN
        if is_above and (self.least is None or value >= self.least) and (self.most is None or value <= self.most):
            return value
        raise InvalidRequest(name or self.name, f"must be {self._bounds()}, got {str(value)[:40]}")

    def wrong(self, wanted: str, value: object, name: str | None = None) -> InvalidRequest:
        return InvalidRequest(name or self.name, f"must be {wanted}, got {str(value)[:40]!r} ({type(value).__name__})")

    def _bounds(self) -> str:
        if self.above is not None:
            return f"above {self.above:g}"
        if self.most is None:
            return f"at least {self.least}"
        return f"at most {self.most}" if self.least is None else f"between {self.least} and {self.most}"

    def check_size(self, value: object) -> None:
        if isinstance(value, Sized) and len(value) > (self.max_size or 0):
            what = "must have at most {} characters" if self.type is str else "must hold at most {} token ids"
            raise InvalidRequest(self.name, f"{what.format(self.max_size)}, got {len(value)}")


def params_of(kind: type) -> dict[str, Param]:
    """The fields of a dataclass, in order, by name."""
    types = get_type_hints(kind)
    return {stated.name: _param_of(stated, types[stated.name]) for stated in fields(kind)}


def _param_of(stated: Field[Any], type: Any) -> Param:
    is_optional = NoneType in get_args(type)
    own = next(option for option in get_args(type) if option is not NoneType) if is_optional else type
    plain, reader = _READERS[own]
    return Param(
        name=stated.name,
        type=own,
        is_optional=is_optional,
        default=stated.default if stated.default_factory is MISSING else stated.default_factory(),
        plain=(*plain, NoneType) if is_optional else plain,
        reader=reader,
        **stated.metadata,
    )


def _whole(param: Param, value: object, name: str | None = None) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    raise param.wrong("a whole number", value, name)


def _number(param: Param, value: object, name: str | None = None) -> float:
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    raise param.wrong("a number", value, name)


def _refuse(wanted: str) -> Callable[[Param, object], Any]:
    def read(param: Param, value: object) -> Any:
        raise param.wrong(wanted, value)

    return read


def _texts(param: Param, value: object) -> tuple[object, ...]:
    """A plain string is a list of one."""
    wanted = "a string or a list of strings"
    found = (value,) if isinstance(value, str) else _each(param, wanted, value)
    strange = [text for text in found if not isinstance(text, str)]
    if strange:
        raise param.wrong(wanted, strange[0])
    return found


def _wholes(param: Param, value: object) -> tuple[int, ...]:
    return tuple([param.within(_whole(param, token)) for token in _each(param, "a list of token ids", value)])


def _biases(param: Param, value: object) -> dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise param.wrong("a dictionary of token ids and numbers", value)
    biases: dict[int, float] = {}
    for token, bias in value.items():
        if (number := _whole(param, token)) < 0:
            raise InvalidRequest(param.name, f"must be at least 0, got {number}")
        name = f"{param.name}[{token}]"
        biases[number] = param.within(_number(param, bias, name), name)
    return biases


def _kind(param: Param, value: object) -> RequestOutputKind:
    if isinstance(value, RequestOutputKind):
        return value
    raise param.wrong("a RequestOutputKind, such as RequestOutputKind.DELTA", value)


def _each(param: Param, wanted: str, value: object) -> tuple[object, ...]:
    if value is None or isinstance(value, tuple):
        return value or ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise param.wrong(wanted, value)
    return tuple(value)


_READERS: dict[object, tuple[tuple[type, ...], Callable[[Param, Any], Any]]] = {
    int: ((int,), lambda param, value: param.within(_whole(param, value))),
    float: ((float, int), lambda param, value: param.within(_number(param, value))),
    bool: ((bool,), _refuse("True or False")),  # nothing else: "no" would be true
    str: ((str,), _refuse("a string")),
    # Of these, None is none.
    tuple[str, ...]: ((), _texts),
    tuple[int, ...]: ((), _wholes),
    tuple[tuple[int, ...], ...]: ((tuple,), _refuse("tuples of token ids")),
    dict[int, float]: ((), _biases),
    RequestOutputKind: ((), _kind),
    Structured: ((Structured,), lambda _, value: Structured.of(value)),
}
