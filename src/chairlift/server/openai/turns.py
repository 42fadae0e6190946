"""A chat body to a turn: rendered here, held to its grammar and tokenized where that takes time."""

from functools import partial

import msgspec

from chairlift.core.params import SamplingParams
from chairlift.server.admission.cost import MAX_TOOL_CHARACTERS, Cost, check_count
from chairlift.server.context import ServerContext
from chairlift.server.encoder import TokenLimit
from chairlift.server.openai.messages import check_roles
from chairlift.server.openai.requests import ChatRequest, TokenizeRequest
from chairlift.server.openai.structured import naming_shape
from chairlift.server.openai.tools import asked_of, naming_tools
from chairlift.text.responses.turn import Asked, ChatTurn, turn_of


async def chat_turn(context: ServerContext, request: ChatRequest | TokenizeRequest, limit: TokenLimit) -> ChatTurn:
    with naming_tools(request):
        asked = asked_of(request).with_defaults(context.settings.default_chat_template_kwargs)
        await context.encoder.check(_num_characters(asked), limit)
        turn = turn_of(context.tokenizer, context.format, asked, context.settings.escape_special_tokens)
        check_roles(asked.messages, lambda: context.tokenizer.controls.disclaim(turn.prompt))
        return turn


def _num_characters(asked: Asked) -> int:
    """Of what every prompt of the turn shows; templates may leave reasoning out."""
    contents = sum(len(each["content"] or "") for each in asked.messages)
    calls = (call["function"].get("arguments") for each in asked.messages for call in each.get("tool_calls", ()))
    arguments = sum(len(each if isinstance(each, str) else _json(each)) for each in calls if each)
    shown = asked.tools if asked.choice != "none" else ()
    return contents + arguments + len(_json(shown))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


async def turn_tokens(context: ServerContext, turn: ChatTurn, limit: TokenLimit) -> list[int]:
    [ids] = await context.encoder.encode_all([turn.prompt], False, limit)
    return ids


async def held_params(
    context: ServerContext, request: ChatRequest, turn: ChatTurn, params: SamplingParams, cost: Cost
) -> SamplingParams:
    """With the grammar of the whole answer, where it is held to one."""
    if not turn.is_held(params):
        return params
    with naming_shape(request), naming_tools(request):
        schemas = sum(len(_json(tool.schema)) for tool in turn.may_call)
        check_count("tools", "characters of parameters", schemas, MAX_TOOL_CHARACTERS)
        return await context.shapes.do(partial(turn.held, params, context.structured), cost)
