"""What a model says in a scripted task: first a call of one tool, and once that has a result, a last word.

The model is random, and what it says is held by the server's own means: the tool is chosen, its parameters are
constants, and the last word is a shape. So the server renders the agent's prompt, compiles a grammar, reads the call
out of tokens and streams it, as for any model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LAST_WORD = "done"
_RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output")
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Script:
    """One tool with what it is to be given; of a custom tool its text."""

    tool: str
    given: Mapping[str, Any] | str

    def __call__(self, body: Body) -> Body:
        tools = body.get("tools", [])
        if not any(_function(tool).get("name") == self.tool for tool in tools):
            return body
        if _has_result(body):
            return body | _ends(body)
        return body | {"tools": [self._held(tool) for tool in tools]} | _chooses(body, self.tool, self._kind)

    @property
    def _kind(self) -> str:
        return "custom" if isinstance(self.given, str) else "function"

    def _held(self, tool: Body) -> Body:
        function = _function(tool)
        if function.get("name") != self.tool:
            return tool
        if isinstance(self.given, str):
            return tool | {"format": {"type": "grammar", "syntax": "regex", "definition": _escaped(self.given)}}
        properties = {name: {"const": value} for name, value in self.given.items()}
        schema = {
            "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
        }  # fmt: skip
        if "input_schema" in tool:
            return tool | {"input_schema": schema}
        held = function | {"parameters": schema, "strict": True}
        return tool | {"function": held} if "function" in tool else held


def _function(tool: Body) -> Body:
    inner: Body = tool.get("function", tool)
    return inner


def _has_result(body: Body) -> bool:
    last = (body.get("input") or body.get("messages") or [{}])[-1]
    if last.get("role") == "tool" or last.get("type") in _RESULTS:
        return True
    parts = last.get("content")
    return isinstance(parts, list) and any(part.get("type") in _RESULTS for part in parts)


def _chooses(body: Body, name: str, kind: str) -> Body:
    if "max_tokens" in body and "system" in body:  # Anthropic's
        return {"tool_choice": {"type": "tool", "name": name}, "thinking": {"type": "disabled"}}
    if "input" in body:
        return {"tool_choice": {"type": kind, "name": name}}
    return {"tool_choice": {"type": "function", "function": {"name": name}}}


def _ends(body: Body) -> Body:
    if "max_tokens" in body and "system" in body:
        shape = {"format": {"type": "json_schema", "schema": {"const": LAST_WORD}}}
        return {"tool_choice": {"type": "none"}, "output_config": shape, "thinking": {"type": "disabled"}}
    return {"tool_choice": "none", "structured_outputs": {"choice": [LAST_WORD]}}


def _escaped(text: str) -> str:
    """Each sign of itself, in a regular expression."""
    return "".join(f"\\{each}" if each in r"\.+*?()|[]{}^$" else each for each in text)
