"""The types of a request's parameters, as a Python caller may give them.

Each reader takes a field's name and a value that is not of the field's own type, and answers it as that type: a list
becomes a tuple, a number of another library a Python number. What cannot be read so raises `InvalidRequest`, which
names the field.
"""

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import NoReturn

from chairlift.core.errors import InvalidRequest


def whole(name: str, value: object) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    raise _wrong(name, "a whole number", value)


def number(name: str, value: object) -> float:
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    raise _wrong(name, "a number", value)


def switch(name: str, value: object) -> NoReturn:
    """Nothing else stands for True or False: "no" would be true."""
    raise _wrong(name, "True or False", value)


def texts(name: str, value: object) -> tuple[str, ...]:
    """A plain string is that one."""
    if isinstance(value, str):
        return (value,)
    found = _each(name, "a string or a list of strings", value)
    for text in found:
        if not isinstance(text, str):
            raise _wrong(name, "a string or a list of strings", text)
    return found  # type: ignore[return-value]


def token_ids(name: str, value: object) -> tuple[int, ...]:
    return tuple([whole(name, token) for token in _each(name, "a list of token ids", value)])


def biases(name: str, value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise _wrong(name, "a dictionary of token ids and numbers", value)
    return {whole(name, token): number(f"{name}[{token}]", bias) for token, bias in value.items()}


def _each(name: str, wanted: str, value: object) -> tuple[object, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _wrong(name, wanted, value)
    return tuple(value)


def _wrong(name: str, wanted: str, value: object) -> InvalidRequest:
    return InvalidRequest(name, f"must be {wanted}, got {str(value)[:40]!r} ({type(value).__name__})")
