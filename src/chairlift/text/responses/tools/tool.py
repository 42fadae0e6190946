"""A tool that a model may call: its name and the JSON schema of its arguments, as a client's `tools` give them."""

import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chairlift.core.errors import InvalidRequest
from chairlift.text.responses.templates.template import ResponseTemplate

_LETTERS = string.ascii_letters + string.digits


def new_call_id(template: ResponseTemplate) -> str:
    """Ids of calls, in the form that a family's chat template takes back."""
    if template.ids == "nine":
        return _random(9)
    return f"call_{_random(24)}"


def _random(num: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(num))


MAX_TOOLS = 512
MAX_NAME = 128  # characters
NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME}}}")
NAME_RULE = f"must be of 1 to {MAX_NAME} letters, digits, dots, dashes and _"
_ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: _ANY_OBJECT)
    description: str = ""
    strict: bool | None = None  # False: any JSON object will do for arguments
    index: int = 0  # in the request, for errors

    @property
    def schema(self) -> dict[str, Any]:
        """What arguments are held to: always an object."""
        if self.strict is False or not self.parameters:
            return dict(_ANY_OBJECT)
        return {"type": "object", **self.parameters}


def read_tools(tools: object) -> tuple[Tool, ...]:
    """Of OpenAI's form, `{"type": "function", "function": {...}}`; raises `InvalidRequest` with the place."""
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise InvalidRequest("tools", f"must be a list of tools, got {type(tools).__name__}")
    if len(tools) > MAX_TOOLS:
        raise InvalidRequest("tools", f"must have at most {MAX_TOOLS} tools, got {len(tools)}")
    found: dict[str, Tool] = {}
    for i, given in enumerate(tools):
        tool = _tool(i, given)
        if tool.name in found:
            raise InvalidRequest(f"tools[{i}].function.name", f"{tool.name!r} is the name of an earlier tool")
        found[tool.name] = tool
    return tuple(found.values())


def _tool(index: int, given: object) -> Tool:
    place = f"tools[{index}]"
    if not isinstance(given, Mapping):
        raise InvalidRequest(place, f"must be an object, got {type(given).__name__}")
    if given.get("type", "function") != "function":
        raise InvalidRequest(f"{place}.type", f'must be "function", got {given["type"]!r}')
    function = given.get("function")
    if not isinstance(function, Mapping):
        raise InvalidRequest(f"{place}.function", "must be an object with a name")
    name = function.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidRequest(f"{place}.function.name", NAME_RULE)
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InvalidRequest(f"{place}.function.parameters", "must be a JSON schema of an object")
    if parameters and parameters.get("type", "object") != "object":
        raise InvalidRequest(f"{place}.function.parameters.type", 'must be "object"')
    strict, description = function.get("strict"), function.get("description")
    if strict is not None and not isinstance(strict, bool):
        raise InvalidRequest(f"{place}.function.strict", "must be true or false")
    if description is not None and not isinstance(description, str):
        raise InvalidRequest(f"{place}.function.description", "must be a text")
    return Tool(name, parameters or _ANY_OBJECT, description or "", strict, index)
