"""A body's fields to `SamplingParams` and `Attributes`: defaults, aliases and the checks that need two fields."""

import re
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from operator import attrgetter
from typing import Any

from starlette.requests import Request

from chairlift.core.attributes import ATTRIBUTES, Attributes
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import MAX_LOGPROBS, PARAMS, SamplingParams
from chairlift.models.spec import SamplingDefaults
from chairlift.server.admission.api_keys import sent_key
from chairlift.server.openai.requests import ChatRequest, CompletionRequest, GenerationRequest
from chairlift.server.openai.structured import naming_shape, shape_of
from chairlift.text.stop import MAX_STOP_CHARACTERS, MAX_STOPS

_TOKEN = re.compile(r"-?[0-9]{1,10}")
_NO_LIMIT = -1  # of an answer's tokens: llama.cpp's and LM Studio's clients send it
Given = dict[str, Any]  # a body's values, by the names of `SamplingParams`
_ASKED = tuple(name for name, each in ATTRIBUTES.items() if each.is_public)
_PUBLIC = tuple(name for name, each in PARAMS.items() if each.is_public)
_params, _attributes = attrgetter(*_PUBLIC), attrgetter(*_ASKED)


def given_params(request: GenerationRequest) -> Given:
    given = {name: value for name, value in zip(_PUBLIC, _params(request), strict=True) if value is not None}
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("stream_options", "needs stream to be true")
    if request.stream and "prompt_logprobs" in given:
        raise InvalidRequest("prompt_logprobs", "is not available in a stream")
    if given.get("max_tokens") == _NO_LIMIT:
        given["max_tokens"] = None
    if (shape := shape_of(request)) is not None:
        given["structured_outputs"] = shape.structured
    return given


def completion_params(request: CompletionRequest, given: Given, defaults: SamplingDefaults) -> SamplingParams:
    """`max_tokens` None means the default, which depends on the room a prompt leaves."""
    own: Given = {}
    if is_echo_only(request, given):
        own["max_tokens"] = 1  # a request makes at least one token; the answer leaves it out
    if request.echo and "logprobs" in given:
        own["prompt_logprobs"] = given.get("prompt_logprobs", given["logprobs"])
    return _sampling(request, given | own, defaults)


def is_echo_only(request: CompletionRequest, given: Given) -> bool:
    return bool(request.echo) and given.get("max_tokens") == 0


def chat_params(request: ChatRequest, given: Given, defaults: SamplingDefaults) -> SamplingParams:
    top = request.top_logprobs
    if top is not None and not request.logprobs:
        raise InvalidRequest("top_logprobs", "needs logprobs to be true")
    if top is not None and not 0 <= top <= MAX_LOGPROBS:
        raise InvalidRequest("top_logprobs", f"must be between 0 and {MAX_LOGPROBS}, got {top}")
    own: Given = {"logprobs": (top or 0) if request.logprobs else None}
    if request.max_completion_tokens not in (None, _NO_LIMIT):
        own["max_tokens"] = request.max_completion_tokens
    return _sampling(request, given | own, defaults)


def attributes_of(http: Request, request: GenerationRequest, given_s: float | None) -> Attributes:
    """`given_s`: the client's time limit, which is the deadline unless the body has one. Without a `user` a digest of
    the API key is the user, which logs and traces may show."""
    asked = zip(_ASKED, _attributes(request), strict=True)
    given = {name: ATTRIBUTES[name].read(value) for name, value in asked if value is not None}
    given.setdefault("deadline_s", given_s)
    key = sent_key(http.headers)
    if not given.get("user") and key:
        given["user"] = "key-" + sha256(key.encode()).hexdigest()[:16]
    return Attributes(**given)


def chat_names(request: ChatRequest) -> dict[str, str]:
    """The fields of a chat body where they are not named as the engine's."""
    limit = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    return {"prompt": "messages", "max_tokens": limit}


def _sampling(request: GenerationRequest, given: Given, defaults: SamplingDefaults) -> SamplingParams:
    if request.use_beam_search:  # the model's sampling defaults do not apply
        if given.get("logprobs") is not None:
            raise InvalidRequest("logprobs", "is not available in a beam search")
        found = given | _search(given)
    else:
        found = _suggested(defaults) | given | _best_of(request, given)
    for name, convert in _CONVERTED.items():
        if name in found:
            found[name] = convert(name, found[name])
    with naming_shape(request):
        return SamplingParams(**{"max_tokens": None, **found})


@cache
def _suggested(defaults: SamplingDefaults) -> Given:
    return asdict(defaults)


def _search(given: Given) -> Given:
    """The width of a search is that of `best_of`, or `n`, where it is not given."""
    width = next((given[name] for name in ("beam_width", "best_of", "n") if name in given), 1)
    if width < 1:
        raise InvalidRequest("beam_width", f"must be at least 1, got {width}")
    return {"best_of": 0, "beam_width": width}


def _best_of(request: GenerationRequest, given: Given) -> Given:
    for name in ("beam_width", "length_penalty"):
        if given.get(name, 1) != 1:
            raise InvalidRequest(name, "needs use_beam_search to be true")
    n = given.get("n", 1)
    best_of = given.get("best_of", n)
    if best_of < n:
        raise InvalidRequest("best_of", f"must be at least n ({n}), got {best_of}")
    if best_of > n and request.stream:
        why = f"more than n ({n}) is not available in a stream: the best are known at the end"
        raise InvalidRequest("best_of", why)
    return {"best_of": best_of if best_of > n else 0, "beam_width": 0}


def _short(name: str, given: str | list[str]) -> str | list[str]:
    texts = [given] if isinstance(given, str) else given
    if len(texts) > MAX_STOPS:
        raise InvalidRequest(name, f"must hold at most {MAX_STOPS} texts, got {len(texts)}")
    longest = max(map(len, texts), default=0)
    if longest > MAX_STOP_CHARACTERS:
        raise InvalidRequest(name, f"a text of it has at most {MAX_STOP_CHARACTERS} characters, got {longest}")
    return given


def _by_token(name: str, given: dict[str, float]) -> dict[int, float]:
    PARAMS[name].check_size(given)
    wrong = [key for key in given if not _TOKEN.fullmatch(key)]
    if wrong:
        raise InvalidRequest(name, f"the keys must be token ids, got {', '.join(repr(key[:40]) for key in wrong[:5])}")
    return {int(token): bias for token, bias in given.items()}


_CONVERSIONS: dict[object, Any] = {tuple[str, ...]: _short, dict[int, float]: _by_token}
_CONVERTED = {name: _CONVERSIONS[each.type] for name, each in PARAMS.items() if each.type in _CONVERSIONS}
