"""Functions in namespaces, as Codex groups those of its sub-agents and of MCP servers.

Always: the model knows a function of a namespace as `namespace__name`; clients send and get the two apart.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.tools.tool import MAX_NAME, NAME, NAME_RULE

Tools = Sequence[Mapping[str, Any]]
Namespaced = Mapping[str, tuple[str, str]]  # a namespace and the name in it, by the name that the model knows


def joined(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def namespaced(tools: Tools) -> Namespaced:
    """Of tools that were checked."""
    groups = (tool for tool in tools if tool.get("type") == "namespace")
    pairs = ((group["name"], each["name"]) for group in groups for each in group["tools"])
    return {joined(*pair): pair for pair in pairs}


def functions_of(group: Mapping[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The functions as the model knows them, each with its place; the first one also tells of the whole group."""
    name, inside, about = group.get("name"), group.get("tools"), group.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidRequest(f"{place}.name", NAME_RULE)
    if about is not None and not isinstance(about, str):
        raise InvalidRequest(f"{place}.description", "must be a text")
    if not isinstance(inside, list) or not inside:
        raise InvalidRequest(f"{place}.tools", "must be a list of functions that is not empty")
    for index, tool in enumerate(inside):
        function = _function(name, tool, f"{place}.tools[{index}]")
        own = function.get("description") or ""
        if about and not index and isinstance(own, str):
            function |= {"description": f"{about}\n\n{own}".rstrip()}
        yield f"{place}.tools[{index}]", function


def named(given: Mapping[str, Any], place: str, names: Collection[object], known: Namespaced) -> dict[str, Any]:
    """A choice of a function by the name that the model knows. A namespace may be left out where one alone fits."""
    chosen, name = dict(given), given.get("name")
    namespace = chosen.pop("namespace", None)
    if namespace is not None and not isinstance(namespace, str):
        raise InvalidRequest(f"{place}.namespace", "must be a text")
    if not isinstance(name, str) or (namespace is None and name in names):
        return chosen
    found = [] if namespace else [whole for whole, (_, short) in known.items() if short == name]
    if len(found) > 1:
        raise InvalidRequest(f"{place}.name", f"{name[:128]!r} is in several namespaces; give namespace too")
    return chosen | {"name": found[0] if found else joined(namespace, name)}


def _function(namespace: str, tool: Any, place: str) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise InvalidRequest(f"{place}.type", f'must be "function" inside a namespace, got {str(kind)[:40]!r}')
    name = tool.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidRequest(f"{place}.name", NAME_RULE)
    whole = joined(namespace, name)
    if len(whole) > MAX_NAME:
        raise InvalidRequest(f"{place}.name", f"has {len(whole)} characters as {whole!r}; at most {MAX_NAME} fit")
    return {**tool, "name": whole}
