"""Which tools an answer may call, as OpenAI's `tool_choice` says it."""

from collections.abc import Mapping

from chairlift.core.errors import InvalidRequest

CHOICES = ("none", "auto", "required")


def read_choice(given: object, has_tools: bool) -> str:
    """One of `CHOICES`, or the name of a tool; raises `InvalidRequest` with the place."""
    if given is None:
        return "auto" if has_tools else "none"
    if not has_tools:
        if given != "none":
            raise InvalidRequest("tool_choice", "needs tools")
        return "none"
    if isinstance(given, str) and given in CHOICES:
        return given
    if not isinstance(given, Mapping):
        raise InvalidRequest("tool_choice", f"must be {', '.join(CHOICES)} or name a function, got {str(given)[:40]!r}")
    return _named(given)


def _named(given: Mapping[str, object]) -> str:
    """`{"type": "function", "function": {"name": ...}}`."""
    if given.get("type") != "function":
        raise InvalidRequest("tool_choice.type", f'must be "function", got {str(given.get("type"))[:40]!r}')
    function = given.get("function")
    found = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(found, str):
        raise InvalidRequest("tool_choice.function.name", "is required, and is text")
    if found in CHOICES:
        raise InvalidRequest("tool_choice.function.name", f"a tool of the name {found!r} cannot be chosen by name")
    return found
