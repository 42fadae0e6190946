"""Names fields as the client's body has them, where a body was translated into another."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from chairlift.core.errors import InvalidRequest

NO_NAMES: Mapping[str, str] = MappingProxyType({})
_ENDS = re.compile(r"(?=[.\[])|$")  # where a name may end inside a longer one


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Errors inside get the body's names and keep their kind: the longest name that a field begins with is replaced."""
    try:
        yield
    except InvalidRequest as error:
        error.field = _renamed(error.field, names)
        raise


def through(inner: Mapping[str, str], outer: Mapping[str, str]) -> dict[str, str]:
    """As naming by `inner`, and then by `outer`, where a body was translated twice."""
    return {**outer, **{field: _renamed(name, outer) for field, name in inner.items()}}


def _renamed(field: str, names: Mapping[str, str]) -> str:
    heads = (field[: end.start()] for end in reversed(list(_ENDS.finditer(field))))
    head = next((head for head in heads if head in names), None)
    return field if head is None else names[head] + field[len(head) :]
