"""Reads an OpenAI-style body: strict types, and errors that name the field.

Always: null counts as absent; a field that OpenAI or its extensions define and this server lacks is refused by name
unless its value has no effect; an unknown field, at any depth, is ignored and reported by name:

    {"prompt": "a", "frob": 1, "stream_options": {"x": 1}}     frob, stream_options.x
    {"messages": [{"role": "user", "content": "a", "y": 1}]}   messages[].y
"""

import logging
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import inspect

from chairlift.config.options.values import did_you_mean
from chairlift.core.errors import InvalidRequest
from chairlift.server.admission.bodies import is_deep
from chairlift.text.structured.source import TOO_DEEP

Known = dict[str, "Known | None"]  # names of fields, and those inside objects


@cache
def known_of(kind: type[msgspec.Struct]) -> Known:
    known = _known(inspect.type_info(kind))
    assert known is not None
    return known


def unknown(value: Any, known: Known, path: str = "") -> Iterator[str]:
    """One name for each; names repeat over the objects of a list. Null counts as absent."""
    if isinstance(value, list):
        for item in value:
            yield from unknown(item, known, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in known:
                if inner is not None:
                    yield path + name
            elif (inside := known[name]) is not None:
                yield from unknown(inner, inside, f"{path}{name}{'[]' if isinstance(inner, list) else ''}.")


def _known(shape: inspect.Type) -> Known | None:
    """None for types without objects inside, such as the tokens of a prompt, which are not searched."""
    match shape:
        case inspect.StructType():
            return {field.encode_name: _known(field.type) for field in shape.fields}
        case inspect.ListType():
            return _known(shape.item_type)
        case inspect.UnionType():
            return next((known for known in map(_known, shape.types) if known is not None), None)
    return None


T = TypeVar("T", bound="Body")


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """`refused`: fields that a body may not have, and why."""

    refused: ClassVar[Mapping[str, str]] = {}
    model: str | None = None


# Whole numbers that fit the wire; narrower limits are checked where their meaning is known.
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# Values without effect, which are accepted.
_HARMLESS: Mapping[str, tuple[object, ...]] = {
    "tool_choice": ("none",),
    "function_call": ("none",),
    "modalities": (["text"],),
    "early_stopping": (True,),
    "repeat_penalty": (1, 1.0),
    "typical_p": (1, 1.0),
}
_NOT_BUILT = frozenset(
    {
        "tools", "tool_choice", "functions", "function_call", "suffix", "modalities", "audio",
        "format", "web_search_options", "reasoning_effort", "reasoning",
        "early_stopping", "logits_processors", "logit_processors", "logits_processor", "truncate_prompt_tokens",
        "prompt_embeds",
        "guided_whitespace_pattern", "structural_tag", "grammar", "stop_regex", "no_stop_trim", "repeat_penalty",
        "typical_p", "mirostat", "return_tokens_as_token_ids", "logprob_token_ids",
        "return_hidden_states", "thinking_token_budget", "echo", "max_completion_tokens", "top_logprobs",
        "chat_template", "documents", "mm_processor_kwargs", "lora_path",
    }
)  # fmt: skip
# Fields of other servers, and of other routes, that have another name here.
_INSTEAD = {
    "format": "use response_format", "grammar": "use guided_grammar", "structural_tag": "use response_format",
    "return_tokens_as_token_ids": "use return_token_ids", "stop_regex": "use stop, or a shape (guided_regex)",
    "max_completion_tokens": "use max_tokens", "top_logprobs": "use logprobs", "lora_path": "name the adapter as model",
    "repeat_penalty": "use repetition_penalty",
}  # fmt: skip
# Those that change the prompt: the only ones that matter to /tokenize.
_IN_PROMPT = frozenset(
    {
        "tools", "tool_choice", "functions", "function_call", "suffix", "reasoning_effort", "reasoning",
        "truncate_prompt_tokens", "prompt_embeds", "chat_template", "documents", "mm_processor_kwargs",
    }
)  # fmt: skip
# Labels for OpenAI's accounting, and hints for speed; they change no answer.
_LABELS = frozenset(
    {
        "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "parallel_tool_calls", "store", "prediction",
    }
)  # fmt: skip
_KNOWN_OF = _NOT_BUILT | _LABELS  # fields of the API without effect here
_log = logging.getLogger(__name__)
_seen: set[str] = set()  # names of ignored fields that were looked at
_MAX_SEEN, _LONGEST = 256, 60
_WHERE = re.compile(r"(?P<what>.*) - at `\$\.?(?P<path>.*)`", re.DOTALL)
_TYPE = re.compile(r"Expected `(?P<wanted>[^`]*)`(?:, got `(?P<got>[^`]*)`| [<>]= \S+)")
_WORDS = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "array": "a list",
    "object": "an object",
}  # fmt: skip
_GOT = _WORDS | {"float": "a fraction"}
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
# What to send instead of a value of another type.
_LIKE = {"logit_bias": 'token ids with what is added to their logits, such as {"42": -100}'}


def read(body: bytes | bytearray, kind: type[T]) -> tuple[T, list[str]]:
    """The body as a `kind`, and the names of ignored fields; raises `InvalidRequest`."""
    fields = _decode(body, kind)
    if not isinstance(fields, dict):
        raise InvalidRequest("body", "must be a JSON object")
    fields = {name: value for name, value in fields.items() if value is not None}
    known = kind.__struct_fields__
    others = fields.keys() - known
    for name in sorted(others & kind.refused.keys()):
        if fields[name]:
            raise InvalidRequest(name, kind.refused[name])
    _refuse_unbuilt(others if "stream" in known else others & _IN_PROMPT, fields)
    try:
        request = msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise _named(error) from error
    ignored = [name for name in unknown(fields, known_of(kind)) if name not in _KNOWN_OF]
    for name in ignored:
        _tell(name, kind)
    return request, ignored


def _tell(name: str, kind: type[Body]) -> None:
    """A line for a field that seems misspelt, at first sight: few read the header that names it."""
    if name in _seen or len(_seen) == _MAX_SEEN or len(name) > _LONGEST:
        return
    _seen.add(name)
    if meant := did_you_mean(name, kind.__struct_fields__):
        _log.warning("a request has the field %r, which is ignored%s; further ones are not told", name, meant)


def _refuse_unbuilt(names: set[str], fields: Mapping[str, Any]) -> None:
    for name in sorted(names & _NOT_BUILT):
        value = fields[name]
        if value and value not in _HARMLESS.get(name, ()):
            raise InvalidRequest(name, f"is not supported by this server; {_INSTEAD.get(name, 'leave it out')}")


def _decode(body: bytes | bytearray, kind: type[T]) -> Any:
    if not body or body.isspace():
        raise InvalidRequest("body", "is empty; send a JSON object")
    try:
        try:
            value = msgspec.json.decode(body)
        except msgspec.ValidationError:
            # A number that no type can hold: the typed decoder names its field.
            return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _named(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest("body", f"is not valid JSON: {error}") from error
    except RecursionError as error:
        raise InvalidRequest("body", f"is {TOO_DEEP}") from error
    if is_deep(body):
        raise InvalidRequest("body", f"is {TOO_DEEP}")
    return value


def _named(error: msgspec.ValidationError) -> InvalidRequest:
    text = str(error)
    where = _WHERE.fullmatch(text)
    what, path = (where["what"], where["path"]) if where else (text, "")
    missing = _MISSING.fullmatch(what)
    if missing:
        path, what = f"{path}.{missing['name']}".lstrip("."), "is required"
    like = _LIKE.get(path.partition("[")[0])
    return InvalidRequest(path or "body", _in_words(what) + (f"; send {like}" if like else ""))


def _in_words(what: str) -> str:
    """The decoder's message in JSON's terms, not Python's."""
    wrong = _TYPE.fullmatch(what)
    if wrong is None:
        return what[:1].lower() + what[1:]
    wanted = [_WORDS.get(name, name) for name in wrong["wanted"].split(" | ") if name != "null"]
    if wrong["got"] is None:
        return f"must be {' or '.join(wanted)} of at most 64 bits"
    return f"must be {' or '.join(wanted)}, got {_GOT.get(wrong['got'], wrong['got'])}"
