"""Which tools an answer may call, as OpenAI's `tool_choice` says it."""

from collections.abc import Mapping, Sequence

from chairlift.core.errors import InvalidRequest

CHOICES = ("none", "auto", "required")
_ALLOWED = "allowed_tools"


def read_choice(given: object, has_tools: bool) -> str:
    """One of `CHOICES`, or the name of a tool; of several that are allowed, the mode. Raises `InvalidRequest` with the
    place."""
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
    return _mode(given) if given.get("type") == _ALLOWED else _named(given)


def read_allowed(given: object) -> dict[str, str] | None:
    """The tools that may be called, each with its place in the request; None: all of them."""
    if not isinstance(given, Mapping) or given.get("type") != _ALLOWED:
        return None
    place, inside = _inside(given)
    tools = inside.get("tools")
    if not isinstance(tools, Sequence) or isinstance(tools, str) or not tools:
        raise InvalidRequest(f"{place}.tools", "must be a list of tools that is not empty")
    return dict(_name(f"{place}.tools[{i}]", tool) for i, tool in enumerate(tools))


def _mode(given: Mapping[str, object]) -> str:
    place, inside = _inside(given)
    mode = inside.get("mode")
    if mode not in ("auto", "required"):
        raise InvalidRequest(f"{place}.mode", f'must be "auto" or "required", got {str(mode)[:40]!r}')
    return str(mode)


def _inside(given: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Mode and tools, with their place: `{"type": "allowed_tools", "allowed_tools": {...}}`, or without the inner
    object."""
    if _ALLOWED not in given:
        return "tool_choice", given
    inside = given[_ALLOWED]
    if not isinstance(inside, Mapping):
        raise InvalidRequest(f"tool_choice.{_ALLOWED}", "must be an object with mode and tools")
    return f"tool_choice.{_ALLOWED}", inside


def _name(place: str, tool: object) -> tuple[str, str]:
    """`{"type": "function", "function": {"name": ...}}`, or without the inner object; and where the name stands."""
    if not isinstance(tool, Mapping) or tool.get("type", "function") != "function":
        raise InvalidRequest(place, 'must be an object of type "function"')
    holder, place = (tool["function"], f"{place}.function") if "function" in tool else (tool, place)
    name = holder.get("name") if isinstance(holder, Mapping) else None
    if not isinstance(name, str):
        raise InvalidRequest(f"{place}.name", "is required, and is text")
    return name, f"{place}.name"


def _named(given: Mapping[str, object]) -> str:
    """`{"type": "function", "function": {"name": ...}}`."""
    if given.get("type") != "function":
        raise InvalidRequest(
            "tool_choice.type", f'must be "function" or "{_ALLOWED}", got {str(given.get("type"))[:40]!r}'
        )
    function = given.get("function")
    found = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(found, str):
        raise InvalidRequest("tool_choice.function.name", "is required, and is text")
    if found in CHOICES:
        raise InvalidRequest("tool_choice.function.name", f"a tool of the name {found!r} cannot be chosen by name")
    return found
