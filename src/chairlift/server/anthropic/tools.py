"""Anthropic's tools and the choice among them, as a chat body has them.

Always: a tool that Anthropic's servers would run is left out and reported; any other needs an `input_schema`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from chairlift.core.errors import InvalidRequest

Tools = Sequence[Mapping[str, Any]]
Names = dict[str, str]  # fields of the chat body to those of the client's
# How the types of tools that Anthropic's servers run begin.
_ELSEWHERE = ("web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "advisor_", "mcp_toolset")
_USED = ("name", "description", "strict")
_KNOWN = {*_USED, "type", "input_schema", "cache_control", "eager_input_streaming"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class ToolChoice(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


def ignored_in(tools: Tools) -> Iterator[str]:
    """Tools that are left out, and fields that are not used."""
    for index, tool in enumerate(tools):
        if _runs_elsewhere(tool):
            yield f"tools[{index}]"
        else:
            yield from (f"tools[].{name}" for name, value in tool.items() if name not in _KNOWN and value is not None)


def chat_tools(tools: Tools) -> tuple[list[dict[str, Any]], Names]:
    made: list[dict[str, Any]] = []
    names: Names = {}
    for index, tool in enumerate(tools):
        if _runs_elsewhere(tool):
            continue
        ours, theirs = f"tools[{len(made)}]", f"tools[{index}]"
        made.append(_function(theirs, tool))
        names |= {ours: theirs, f"{ours}.function": theirs, f"{ours}.function.parameters": f"{theirs}.input_schema"}
    return made, names


def chat_choice(choice: ToolChoice | None, tools: Tools) -> str | dict[str, Any] | None:
    """`tools`: of the client's body."""
    if choice is None:
        return None
    if choice.type not in (*_CHOICES, "tool"):
        raise InvalidRequest("tool_choice.type", f"must be auto, any, tool or none, got {choice.type[:40]!r}")
    if choice.type == "tool":
        return {"type": "function", "function": {"name": _chosen(choice, tools)}}
    if choice.type != "none" and tools and all(map(_runs_elsewhere, tools)):
        if choice.type == "auto":
            return None
        raise InvalidRequest("tool_choice", "must be auto or none: all of the tools run on Anthropic's servers alone")
    return _CHOICES[choice.type]


def _chosen(choice: ToolChoice, tools: Tools) -> str:
    if choice.name is None:
        raise InvalidRequest("tool_choice.name", "is required of the type tool")
    if any(tool.get("name") == choice.name for tool in filter(_runs_elsewhere, tools)):
        raise InvalidRequest("tool_choice.name", f"{choice.name[:128]!r} runs on Anthropic's servers alone")
    return choice.name


def _function(where: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    """What is inside is checked where the tool is read."""
    schema, kind = tool.get("input_schema"), tool.get("type")
    if schema is None and kind not in (None, "custom"):
        raise InvalidRequest(f"{where}.type", f"{str(kind)[:40]!r} is not known here; give the tool an input_schema")
    if schema is None:
        raise InvalidRequest(f"{where}.input_schema", "is required")
    used = {name: tool[name] for name in _USED if tool.get(name) is not None}
    return {"type": "function", "function": used | {"parameters": schema}}


def _runs_elsewhere(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("type")).startswith(_ELSEWHERE) and tool.get("input_schema") is None
