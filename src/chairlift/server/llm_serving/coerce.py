"""Lenient reading of JSON values, as llm-serving's clients rely on it: pydantic 1.10's rules and error texts.

Always: a value becomes the field's type or adds one error; all errors of a body are reported together.
"""

import math
from collections.abc import Callable
from typing import Any

from chairlift.text.stop import MAX_STOP_CHARACTERS, MAX_STOPS

Location = tuple[str | int, ...]
_BOOLEANS = dict.fromkeys((1, "1", "on", "t", "true", "y", "yes"), True)
_BOOLEANS |= dict.fromkeys((0, "0", "off", "f", "false", "n", "no"), False)


class Refusal(ValueError):
    """Why a value does not fit: the text and the type of pydantic's error."""

    def __init__(self, message: str, kind: str, **context: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.context = context


class InvalidBody(Exception):
    """All errors of one body, ready to be sent as `detail`."""

    def __init__(self, detail: list[dict[str, Any]]) -> None:
        super().__init__(f"{len(detail)} errors in the body")
        self.detail = detail


class FieldReader:
    def __init__(self, where: Location, errors: list[dict[str, Any]]) -> None:
        self._where = where
        self.errors = errors

    def field(self, values: dict[str, Any], name: str, parse: Callable[[Any], Any], default: Any) -> Any:
        """`default` where the field is absent; null is an error."""
        if name not in values:
            return default
        return self.value(values[name], (name,), parse, default)

    def nullable(self, values: dict[str, Any], name: str, parse: Callable[[Any], Any], default: Any) -> Any:
        """`default` where the field is absent or null."""
        return default if values.get(name) is None else self.value(values[name], (name,), parse, default)

    def value(self, value: Any, where: Location, parse: Callable[[Any], Any], default: Any) -> Any:
        try:
            if value is None:
                raise Refusal("none is not an allowed value", "type_error.none.not_allowed")
            return parse(value)
        except Refusal as refusal:
            self.refuse(where, refusal)
            return default

    def stops(self, values: dict[str, Any], name: str) -> list[str]:
        """A list of stop strings; bad items are reported one by one."""
        items = self.field(values, name, _short_list, [])
        return [self.value(item, (name, index), _short_text, "") for index, item in enumerate(items)]

    def refuse(self, where: Location, refusal: Refusal) -> None:
        error = {"loc": [*self._where, *where], "msg": str(refusal), "type": refusal.kind}
        self.errors.append(error | ({"ctx": refusal.context} if refusal.context else {}))


def boolean(value: Any) -> bool:
    plain = value.lower() if isinstance(value, str) else value
    if isinstance(plain, str | int | float) and plain in _BOOLEANS:
        return _BOOLEANS[plain]
    raise Refusal("value could not be parsed to a boolean", "type_error.bool")


def integer(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refusal("value is not a valid integer", "type_error.integer") from error


def at_least_one(value: Any) -> int:
    number = integer(value)
    if number < 1:
        raise Refusal("ensure this value is greater than or equal to 1", "value_error.number.not_ge", limit_value=1)
    return number


def number(value: Any) -> float:
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if not math.isfinite(result):
        raise Refusal("value is not a valid float", "type_error.float")
    return result


def seconds(value: Any) -> float:
    result = number(value)
    if result <= 0:
        raise Refusal("ensure this value is greater than 0", "value_error.number.not_gt", limit_value=0)
    return result


def text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise Refusal("str type expected", "type_error.str")


def whole_text(value: Any) -> str:
    result = text(value)
    try:
        result.encode()
    except UnicodeEncodeError as error:
        raise Refusal("half of a surrogate pair is not text", "value_error.unicode") from error
    return result


def mapping(value: Any) -> dict[str, Any]:
    try:
        return dict(value)
    except (TypeError, ValueError) as error:
        raise Refusal("value is not a valid dict", "type_error.dict") from error


def _short_text(value: Any) -> str:
    result = text(value)
    if len(result) > MAX_STOP_CHARACTERS:
        message = f"ensure this value has at most {MAX_STOP_CHARACTERS} characters"
        raise Refusal(message, "value_error.any_str.max_length", limit_value=MAX_STOP_CHARACTERS)
    return result


def _short_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Refusal("value is not a valid list", "type_error.list")
    if len(value) > MAX_STOPS:
        message = f"ensure this value has at most {MAX_STOPS} items"
        raise Refusal(message, "value_error.list.max_items", limit_value=MAX_STOPS)
    return value
