"""The small routes: the root, models, tokenize, detokenize, the tokenizer, version."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.api_keys import payers_of
from chairlift.server.admission.cost import MAX_TOKENS, Cost
from chairlift.server.admission.gate import begin_cost
from chairlift.server.context import ServerContext, context_of
from chairlift.server.encoder import TokenLimit
from chairlift.server.openai.exchange import json_response, read_request
from chairlift.server.openai.logprobs import token_text
from chairlift.server.openai.objects import ModelCard, ModelList, Text, TokenizerInfo, Tokens, Version, Welcome
from chairlift.server.openai.requests import DetokenizeRequest, TokenizeRequest
from chairlift.server.openai.turns import chat_turn, turn_tokens
from chairlift.server.request_log.record import record_of

T = TypeVar("T")
_MANY = 4096
_CLASS = "PreTrainedTokenizerFast"  # the class of transformers that reads the same files


async def welcome(http: Request) -> Response:
    context = context_of(http)
    return json_response(Welcome(f"chairlift {context.version}", await context.names(begin_cost(http))))


async def models(http: Request) -> Response:
    context = context_of(http)
    return json_response(ModelList(data=[_card(context, name) for name in await context.names(begin_cost(http))]))


async def model(http: Request) -> Response:
    context = context_of(http)
    name = http.path_params["name"]
    await context.adapter(name, begin_cost(http))
    return json_response(_card(context, name))


async def tokenize(http: Request) -> Response:
    context = counted(http)
    request = await read_request(http, TokenizeRequest)
    if (request.prompt is None) == (request.messages is None):
        raise InvalidRequest("prompt", "give either prompt or messages")
    limit, max_len = token_limit(context, record_of(http).cost), max_model_len(context)
    if request.prompt is not None:
        add_special = request.add_special_tokens is not False
        [tokens] = await context.encoder.encode_all([request.prompt], add_special, limit)
    else:
        tokens = await turn_tokens(context, await chat_turn(context, request, limit), limit)
    texts = await _texts(context, tokens, limit.cost) if request.return_token_strs else UNSET
    return json_response(Tokens(count=len(tokens), max_model_len=max_len, tokens=tokens, token_strs=texts))


async def detokenize(http: Request) -> Response:
    context = counted(http)
    request = await read_request(http, DetokenizeRequest)
    limit = token_limit(context, record_of(http).cost)
    if len(request.tokens) > limit.num_tokens:
        raise InvalidRequest("tokens", f"{len(request.tokens)} tokens {limit.why}")
    size = context.model_config.vocab_size
    bad = next((token for token in request.tokens if not 0 <= token < size), None)
    if bad is not None:
        raise InvalidRequest("tokens", f"token id {bad} is outside the vocabulary of {size}")
    decode = partial(context.tokenizer.decode, request.tokens, skip_special=False)
    return json_response(Text(prompt=await _in_thread(context, decode, len(request.tokens), limit.cost)))


async def tokenizer_info(http: Request) -> Response:
    context = context_of(http)
    tokenizer = context.tokenizer
    bos, eos = (
        tokenizer.template_tokens.get(name) or (None if token_id is None else token_text(tokenizer, token_id))
        for name, token_id in (("bos_token", tokenizer.bos_id), ("eos_token", tokenizer.eos_id))
    )
    template = tokenizer.chat_template if context.settings.chat_template is None else None
    return json_response(TokenizerInfo(tokenizer_class=_CLASS, bos_token=bos, eos_token=eos, chat_template=template))


async def version(http: Request) -> Response:
    return json_response(Version(version=context_of(http).version))


def counted(http: Request) -> ServerContext:
    """Counts a request for its API key before its body is read; raises `Overloaded`."""
    context = context_of(http)
    context.load.spend(payers_of(http), 1, 0)
    begin_cost(http)
    return context


async def _texts(context: ServerContext, tokens: list[int], cost: Cost) -> list[str]:
    def spell() -> list[str]:
        return [token_text(context.tokenizer, token) for token in tokens]

    return await _in_thread(context, spell, len(tokens), cost)


async def _in_thread(context: ServerContext, work: Callable[[], T], num_tokens: int, cost: Cost) -> T:
    return work() if num_tokens < _MANY else await context.encoder.turns.do(work, cost)


def token_limit(context: ServerContext, cost: Cost) -> TokenLimit:
    return TokenLimit(max(MAX_TOKENS, max_model_len(context)), "are not handled at once", cost=cost)


def max_model_len(context: ServerContext) -> int:
    info = context.client.info
    if info is None:
        return context.model_config.max_model_len
    # An input has one token after it, which means nothing.
    return info.limits.max_model_len - (context.texts is not None)


def _card(context: ServerContext, name: str) -> ModelCard:
    root = context.settings.model or context.model_names[0]
    return ModelCard(
        id=name,
        created=context.created,
        root=root,
        parent=None if name in context.model_names else context.model_names[0],
        max_model_len=max_model_len(context),
        tool_format=None if context.format is None else context.format.name,
        exact=context.settings.exact,
    )
