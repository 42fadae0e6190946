"""The fields of a chat body that ask for tools and reasoning, as a turn takes them.

Always: the older `functions` and `function_call` mean tools and their choice; errors name the field of the body.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from chairlift.core.errors import InvalidRequest
from chairlift.server.naming import naming
from chairlift.server.openai.messages import chat_messages
from chairlift.server.openai.requests import ChatRequest, TokenizeRequest
from chairlift.text.responses.tools.choice import read_allowed, read_choice
from chairlift.text.responses.turn import Asked

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


def asked_of(request: ChatRequest | TokenizeRequest) -> Asked:
    continues, adds = bool(request.continue_final_message), request.add_generation_prompt
    if continues and adds:
        raise InvalidRequest("continue_final_message", "cannot be combined with add_generation_prompt")
    kwargs = dict(request.chat_template_kwargs or {})
    if request.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", _effort(request.reasoning_effort))
    tools = request.tools or [{"type": "function", "function": each} for each in request.functions or ()]
    return Asked(
        messages=chat_messages(request.messages or []),
        tools=tools,
        choice=_choice(request, bool(tools)),
        allowed=read_allowed(request.tool_choice),
        is_parallel=_is_parallel(request),
        template_kwargs=kwargs,
        thinks=_thinks(request),
        thinking_budget=_budget(request),
        add_generation_prompt=not continues if adds is None else adds,
        continue_final_message=continues,
    )


def is_older(request: ChatRequest | TokenizeRequest) -> bool:
    """Whether the body has the older fields, so that the answer is to have `function_call`."""
    return not request.tools and (bool(request.functions) or request.function_call is not None)


@contextmanager
def naming_tools(request: ChatRequest | TokenizeRequest) -> Iterator[None]:
    """Errors inside name the older fields, and `thinking_token_budget`, where the body has them."""
    try:
        yield
    except InvalidRequest:
        with naming(_names(request)):
            raise


def _names(request: ChatRequest | TokenizeRequest) -> dict[str, str]:
    """What the body calls its fields, where that is not the usual name."""
    names = {"thinking_budget": "thinking_token_budget"} if request.thinking_token_budget is not None else {}
    for index, message in enumerate(request.messages or ()):
        if message.function_call:
            names[f"messages[{index}].tool_calls[0].function"] = f"messages[{index}].function_call"
    if is_older(request):
        names |= {"tools": "functions", "tool_choice": "function_call", "tool_choice.function": "function_call"}
        names |= {f"tools[{index}].function": f"functions[{index}]" for index in range(len(request.functions or ()))}
    return names


def _is_parallel(request: ChatRequest | TokenizeRequest) -> bool | None:
    if is_older(request):
        return False
    return request.parallel_tool_calls if isinstance(request, ChatRequest) else None


def _choice(request: ChatRequest | TokenizeRequest, has_tools: bool) -> str:
    older = request.function_call
    if request.tools and (request.functions or older not in (None, "none")):
        name = "functions" if request.functions else "function_call"
        raise InvalidRequest(name, "is an older form; with tools use tool_choice")
    if request.tool_choice is None and older is not None:
        given = older if isinstance(older, str) else {"type": "function", "function": older}
        return read_choice(given, has_tools)
    return read_choice(request.tool_choice, has_tools)


def _effort(given: str) -> str:
    if given not in _EFFORTS:
        raise InvalidRequest("reasoning_effort", f"must be one of {', '.join(_EFFORTS)}, got {given[:40]!r}")
    return given


def _thinks(request: ChatRequest | TokenizeRequest) -> bool | None:
    is_silent = request.enable_thinking is None and request.reasoning_effort == "none"
    return False if is_silent else request.enable_thinking


def _budget(request: ChatRequest | TokenizeRequest) -> int | None:
    budget, other = request.thinking_budget, request.thinking_token_budget
    if budget is not None and other is not None:
        raise InvalidRequest("thinking_token_budget", "means the same as thinking_budget; give one of them")
    return other if budget is None else budget
