"""The body of the llm-serving routes: coercion, then llm-serving's defaults and clamps.

Always: a body that llm-serving accepts is accepted with the same values, except `max_new_tokens` below 1, infinite
numbers, inputs that are not text and too many or long stop strings. `seed`, `stop` and `repetition_penalty` count.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from chairlift.core.params import SamplingParams
from chairlift.server.llm_serving import coerce
from chairlift.server.llm_serving.coerce import FieldReader, InvalidBody, Refusal

_MAX_TOP_K = 100
_MAX_TEMPERATURE = 100.0  # from here on the tokens left by top-k are practically equally likely


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


_PARSERS: dict[object, Callable[[Any], Any]] = {
    bool: coerce.boolean, int: coerce.integer, float: coerce.number, str: coerce.text
}  # fmt: skip
_NULLABLE = ("max_new_tokens", "top_k", "top_p", "temperature", "repetition_penalty")  # null counts as absent
_READ = {
    field.name: (coerce.at_least_one if field.name == "max_new_tokens" else _PARSERS[field.type], field.default)
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
        inputs = reader.field(values, "inputs", coerce.whole_text, "")
    else:
        reader.refuse(("inputs",), Refusal("field required", "value_error.missing"))
        inputs = ""
    parameters = _parameters(reader.nullable(values, "parameters", coerce.mapping, {}), errors)
    stream = reader.field(values, "stream", coerce.boolean, False)
    timeout = reader.nullable(values, "timeout", coerce.seconds, None)
    if errors:
        raise InvalidBody(errors)
    return GenerateRequest(inputs=inputs, parameters=parameters, stream=stream, timeout=timeout)


def ignored(values: dict[str, Any]) -> list[str]:
    """Names of fields without effect, but for empty ones."""
    inside = values.get("parameters")
    levels = (("", values, GenerateRequest), ("parameters.", inside if isinstance(inside, dict) else {}, Parameters))
    return [
        f"{prefix}{name}"
        for prefix, fields, kind in levels
        for name, value in fields.items()
        if name not in kind.__struct_fields__ and value
    ]


def decode(body: bytes | bytearray) -> dict[str, Any]:
    """Raises `InvalidBody`."""
    try:
        values = json.loads(body.decode()) if body else None  # as UTF-8, in which its values were counted
    except (RecursionError, ValueError) as error:
        # Errors without a position: broken UTF-8, too deep, a number of thousands of digits.
        at, why = (error.pos, error.msg) if isinstance(error, json.JSONDecodeError) else (0, str(error)[:200])
        detail = {"type": "json_invalid", "loc": ["body", at], "msg": "JSON decode error"}
        raise InvalidBody([detail | {"input": {}, "ctx": {"error": why}}]) from error
    refusal = Refusal("field required", "value_error.missing")
    if values is not None:
        try:
            return coerce.mapping(values)
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
    # Without effect, but of the right type.
    for name in ("top_n_tokens", "typical_p"):
        reader.field(values, name, coerce.integer, 0)
    for name in ("truncate", "watermark", "details", "decoder_input_details"):
        reader.field(values, name, coerce.boolean, False)
    return parameters


def sampling_params(parameters: Parameters, vocab_size: int) -> SamplingParams:
    """With llm-serving's clamps: a value out of range is replaced, never refused."""
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
    """Not if it is empty or half of a surrogate pair."""
    return stop.encode(errors="ignore").decode() == stop != ""
