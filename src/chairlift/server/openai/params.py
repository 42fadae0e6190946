"""From a body's sampling fields to `SamplingParams`: defaults, aliases and the checks that need two fields."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TypeVar

from chairlift.config.model import SamplingDefaults
from chairlift.core.attributes import Attributes
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import MAX_BIASES, MAX_LOGPROBS, SamplingParams, check_size
from chairlift.server.openai.requests import ChatRequest, CompletionRequest, SamplingRequest
from chairlift.text.stop import MAX_STOP_CHARACTERS, MAX_STOPS

DEFAULT_COMPLETION_TOKENS = 16
MAX_NAME_CHARACTERS = 1024  # of a `user` or a `cache_salt`, which are kept with each request
T = TypeVar("T")


def completion_params(request: CompletionRequest, defaults: SamplingDefaults) -> SamplingParams:
    """`max_tokens` None means the default, which depends on the room a prompt leaves."""
    echo_scores = request.logprobs if request.echo else None
    prompt_logprobs = request.prompt_logprobs if request.prompt_logprobs is not None else echo_scores
    # Echo alone wants no output, but a request makes at least one token; the answer leaves it out.
    max_tokens = 1 if is_echo_only(request) else request.max_tokens
    return _params(request, defaults, max_tokens, request.logprobs, prompt_logprobs)


def is_echo_only(request: CompletionRequest) -> bool:
    return bool(request.echo) and request.max_tokens == 0


def chat_params(request: ChatRequest, defaults: SamplingDefaults) -> SamplingParams:
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidRequest("top_logprobs", "needs logprobs to be true")
    if request.top_logprobs is not None and not 0 <= request.top_logprobs <= MAX_LOGPROBS:
        raise InvalidRequest("top_logprobs", f"must be between 0 and {MAX_LOGPROBS}, got {request.top_logprobs}")
    max_tokens = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    return _params(request, defaults, max_tokens, logprobs, request.prompt_logprobs)


def attributes_of(request: SamplingRequest, user: str, given_s: float | None) -> Attributes:
    """`given_s`: after which the client has no use for an answer; that is when it is due, unless it says otherwise."""
    found = {field.name: getattr(request, field.name, None) for field in fields(Attributes)}
    asked = Attributes(**{name: value for name, value in found.items() if value is not None})
    return replace(asked, user=user, deadline_s=given_s if asked.deadline_s is None else asked.deadline_s)


@contextmanager
def chat_names(request: ChatRequest) -> Iterator[None]:
    """Errors inside name the fields that a chat body has."""
    names = {"prompt": "messages"}
    if request.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(names.get(error.field, error.field), error.message) from error


def _params(
    request: SamplingRequest,
    defaults: SamplingDefaults,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingParams:
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("stream_options", "needs stream to be true")
    if request.stream and request.prompt_logprobs is not None:
        raise InvalidRequest("prompt_logprobs", "is not available in a stream")
    if request.deadline_s is not None and not 0 < request.deadline_s < math.inf:
        raise InvalidRequest("deadline_s", f"must be seconds from now, above 0, got {request.deadline_s}")
    for name, text in (("cache_salt", request.cache_salt), ("user", request.user)):
        if text is not None and len(text) > MAX_NAME_CHARACTERS:
            raise InvalidRequest(name, f"must have at most {MAX_NAME_CHARACTERS} characters, got {len(text)}")
    n = _or(request.n, 1)
    if request.use_beam_search:
        if logprobs is not None:
            raise InvalidRequest("logprobs", "is not available in a beam search")
        defaults = SamplingDefaults()  # what the model's makers suggest for sampling has no say in a search
    best_of, beam_width = _rivals(request, n)
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=_or(request.min_tokens, 0),
        temperature=_or(request.temperature, defaults.temperature),
        top_k=_top_k(_or(request.top_k, defaults.top_k)),
        top_p=_or(request.top_p, defaults.top_p),
        min_p=_or(request.min_p, defaults.min_p),
        repetition_penalty=_or(request.repetition_penalty, defaults.repetition_penalty),
        presence_penalty=_or(request.presence_penalty, 0.0),
        frequency_penalty=_or(request.frequency_penalty, 0.0),
        logit_bias=_logit_bias(request.logit_bias or {}),
        n=n,
        best_of=best_of,
        beam_width=beam_width,
        length_penalty=_or(request.length_penalty, 1.0),
        seed=_seed(request.seed),
        stop=_stop(request.stop),
        stop_token_ids=tuple(request.stop_token_ids or ()),
        include_stop_str_in_output=bool(request.include_stop_str_in_output),
        ignore_eos=bool(request.ignore_eos),
        skip_special_tokens=_or(request.skip_special_tokens, True),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def _rivals(request: SamplingRequest, n: int) -> tuple[int, int]:
    """How many samples, or how many members of a search, the n answers are the best of; 0: neither."""
    best_of = _or(request.best_of, n)
    if request.use_beam_search:
        width = _or(request.beam_width, best_of)
        if width < 1:
            raise InvalidRequest("beam_width", f"must be at least 1, got {width}")
        return 0, width
    for name in ("beam_width", "length_penalty"):
        if getattr(request, name) not in (None, 1):
            raise InvalidRequest(name, "needs use_beam_search to be true")
    if best_of < n:
        raise InvalidRequest("best_of", f"must be at least n ({n}), got {best_of}")
    if best_of == n:
        return 0, 0
    if request.stream:
        raise InvalidRequest(
            "best_of", f"more than n ({n}) is not available in a stream: the best are known at the end"
        )
    return best_of, 0


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _seed(seed: int | None) -> int | None:
    # Whole numbers of any length get here, and one of hundreds of digits can be neither sent on nor shown.
    if seed is not None and not -(2**63) <= seed < 2**64:
        raise InvalidRequest("seed", f"must be between {-(2**63)} and {2**64 - 1}")
    return seed


def _stop(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS:
        raise InvalidRequest("stop", f"must hold at most {MAX_STOPS} stop strings, got {len(stops)}")
    longest = max(map(len, stops), default=0)
    if longest > MAX_STOP_CHARACTERS:
        raise InvalidRequest("stop", f"a stop string has at most {MAX_STOP_CHARACTERS} characters, got {longest}")
    return stops


def _top_k(top_k: int) -> int:
    # Clients that speak vLLM's dialect send -1 for "all".
    return 0 if top_k == -1 else top_k


def _logit_bias(biases: dict[str, float]) -> dict[int, float]:
    check_size("logit_bias", biases, MAX_BIASES)
    try:
        return {int(token): bias for token, bias in biases.items()}
    except ValueError as error:
        raise InvalidRequest("logit_bias", "the keys must be token ids") from error
