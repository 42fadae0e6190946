"""The body of the llm-serving routes and what it means: coercion, then the old server's defaults and clamps.

Always: a body that the old server took is taken, with the same values, except `max_new_tokens` below 1, numbers that
are not finite, inputs that are not text and stop strings beyond our limits, which are 422. Seed, stop and
repetition_penalty, which it accepted and ignored, count here.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from chairlift.core.params import SamplingParams
from chairlift.server.llm_serving.coerce import (
    FieldReader,
    InvalidBody,
    Refusal,
    at_least_one,
    boolean,
    integer,
    mapping,
    number,
    seconds,
    text,
    whole_text,
)

_MAX_TOP_K = 100
_MAX_TEMPERATURE = 100.0  # from here on the tokens left by top-k are as good as equally likely


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    do_sample: bool = True
    max_new_tokens: int = 300
    top_k: int = 3
    top_p: float = 1.0
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    return_full_text: bool = True
    return_protocol: str = "sse"
    seed: int = 0
    stop: list[str] = []


_PARSERS: dict[object, Callable[[Any], Any]] = {bool: boolean, int: integer, float: number, str: text}
_NULLABLE = ("max_new_tokens", "top_k", "top_p", "temperature", "repetition_penalty")  # null is as absent
_READ = {
    field.name: (at_least_one if field.name == "max_new_tokens" else _PARSERS[field.type], field.default)
    for field in msgspec.structs.fields(Parameters)
    if field.name != "stop"
}


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    inputs: str
    parameters: Parameters = Parameters()
    stream: bool = False
    timeout: float | None = None  # seconds; ours


def parse(values: dict[str, Any]) -> GenerateRequest:
    """Raises `InvalidBody`."""
    errors: list[dict[str, Any]] = []
    reader = FieldReader(("body",), errors)
    if "inputs" in values:
        inputs = reader.field(values, "inputs", whole_text, "")
    else:
        reader.refuse(("inputs",), Refusal("field required", "value_error.missing"))
        inputs = ""
    parameters = _parameters(reader.nullable(values, "parameters", mapping, {}), errors)
    stream = reader.field(values, "stream", boolean, False)
    timeout = reader.nullable(values, "timeout", seconds, None)
    if errors:
        raise InvalidBody(errors)
    return GenerateRequest(inputs=inputs, parameters=parameters, stream=stream, timeout=timeout)


def ignored(values: dict[str, Any]) -> list[str]:
    """Names of what a body holds without effect, unless it asks for nothing."""
    inside = values.get("parameters")
    parameters = inside if isinstance(inside, dict) else {}
    known = GenerateRequest.__struct_fields__
    found = [name for name, value in values.items() if name not in known and value]
    known = Parameters.__struct_fields__
    return found + [f"parameters.{name}" for name, value in parameters.items() if name not in known and value]


def decode(body: bytes | bytearray) -> dict[str, Any]:
    """Raises `InvalidBody`."""
    try:
        values = json.loads(body.decode()) if body else None  # as which its values were counted
    except json.JSONDecodeError as error:
        detail = {"type": "json_invalid", "loc": ["body", error.pos], "msg": "JSON decode error"}
        raise InvalidBody([detail | {"input": {}, "ctx": {"error": error.msg}}]) from error
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        # Not JSON in a way that has no position: broken UTF-8, too deep, a number of thousands of digits.
        detail = {"type": "json_invalid", "loc": ["body", 0], "msg": "JSON decode error"}
        raise InvalidBody([detail | {"input": {}, "ctx": {"error": str(error)[:200]}}]) from error
    refusal = Refusal("field required", "value_error.missing")
    if values is not None:
        try:
            return mapping(values)
        except Refusal as error:
            refusal = error
    reader = FieldReader(("body",), [])
    reader.refuse((), refusal)
    raise InvalidBody(reader.errors)


def _parameters(values: dict[str, Any], errors: list[dict[str, Any]]) -> Parameters:
    reader = FieldReader(("body", "parameters"), errors)
    read = {
        name: (reader.nullable if name in _NULLABLE else reader.field)(values, name, parse, default)
        for name, (parse, default) in _READ.items()
    }
    parameters = Parameters(**read, stop=reader.stops(values, "stop"))
    # Without effect, as ever, but of the right type.
    for name in ("top_n_tokens", "typical_p"):
        reader.field(values, name, integer, 0)
    for name in ("truncate", "watermark", "details", "decoder_input_details"):
        reader.field(values, name, boolean, False)
    return parameters


def sampling_params(parameters: Parameters, vocab_size: int) -> SamplingParams:
    """The old server's clamps: a value out of range is replaced, never refused."""
    temperature, is_greedy = parameters.temperature, not parameters.do_sample
    if not 1e-5 < temperature <= 65536:
        temperature, is_greedy = 1.0, True
    top_k = parameters.top_k if 0 < parameters.top_k < vocab_size else 1
    top_p = 0.01 if parameters.top_p <= 0 else min(parameters.top_p, 1.0)
    penalty = parameters.repetition_penalty
    return SamplingParams(
        max_tokens=parameters.max_new_tokens,
        temperature=0.0 if is_greedy else min(temperature, _MAX_TEMPERATURE),
        top_k=min(top_k, _MAX_TOP_K),
        top_p=top_p,
        repetition_penalty=penalty if 0.01 <= penalty <= 100.0 else 1.0,
        seed=parameters.seed % 2**63 or None,
        stop=tuple(stop for stop in parameters.stop if _can_occur(stop)),
        logprobs=0,  # the score carries the logit that the token objects show
    )


def _can_occur(stop: str) -> bool:
    """Whether any text holds this one: not if it is half of a surrogate pair, and an empty one says nothing."""
    return stop.encode(errors="ignore").decode() == stop != ""
