"""Bodies whose fields are each small and whose product is large: what outsiders found, and what `multiply.py` did.

Each goes to a route; SHARE (at most 1) scales its size. None may disturb others more than an honest body of as many
tokens does. Always: the same body for the same name and share.
"""

import json
import math
import random
from collections.abc import Callable
from typing import Any

from chairlift.core.params import SamplingParams
from chairlift.server.admission.cost import filter_tokens

Body = tuple[str, dict[str, Any]]  # a route, and what it is sent
COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
_USUAL_CHARACTERS = 4  # of a token
_MAX_SAMPLES = 128  # of a prompt
_FILTERS = {"temperature", "top_k", "top_p"}
ALIKE = "start: e\ne: e e | /[a-zA-Z ]/"  # every text has very many derivations


def _completion(**fields: Any) -> Body:
    return COMPLETIONS, {"prompt": "Once upon a time there", "max_tokens": 8} | fields


def as_many_tokens(body: Body) -> Body:
    """An honest body with prompts, samples and tokens as another's; no other's prompt begins like its. A token of a
    prompt that is scored takes a row of scores as a generated one does: it counts as one. One that a filter draws from
    much of the vocabulary counts twice, as for its key."""
    route, fields = body
    ids = [random.Random(json.dumps(fields)).randrange(20, 300)]
    prompt = fields["prompt"] if route == COMPLETIONS else ids * (len(json.dumps(fields)) // _USUAL_CHARACTERS)
    if isinstance(prompt, list):
        prompt = ids * len(prompt) if isinstance(prompt[0], int) else [_as_long(each, ids) for each in prompt]
    num_samples = max(fields.get("n", 1), fields.get("best_of", 1))
    num_tokens = fields.get("max_tokens", fields.get("max_output_tokens", 8))
    if filter_tokens(1, SamplingParams(**{name: fields[name] for name in _FILTERS & fields.keys()})):
        num_tokens *= 2
    if "prompt_logprobs" in fields or {"echo", "logprobs"} <= fields.keys():
        prompts = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt
        num_samples = _MAX_SAMPLES
        num_tokens += math.ceil(sum(map(len, prompts)) / len(prompts) / num_samples)
    return _completion(prompt=prompt, n=num_samples, max_tokens=num_tokens, ignore_eos=True)


def _as_long(prompt: str | list[int], ids: list[int]) -> str | list[int]:
    return prompt if isinstance(prompt, str) else ids * len(prompt)


def _grammar(text: str, **fields: Any) -> Body:
    return _completion(structured_outputs={"grammar": text}, **fields)


def line_breaks(share: float) -> Body:
    return _grammar('start: "a"' + "\n" * round(100_000 * share))


def scores_of_choices(share: float) -> Body:
    return _completion(prompt=[9] * round(1000 * share), n=128, prompt_logprobs=20, max_tokens=1)


def echoed_choices(share: float) -> Body:
    return _completion(prompt=[9] * round(1000 * share), n=128, echo=True, logprobs=20, max_tokens=1)


def scores_of_tokens(share: float) -> Body:
    return _completion(n=round(128 * share), logprobs=100, max_tokens=200, ignore_eos=True)


def no_end_of_lines(share: float) -> Body:
    return _grammar("\n" * round(130_000 * share))


def parts_left_out(share: float) -> Body:
    return _grammar("start: " + '("a" | "b")? ' * round(9_000 * share))


def optional_signs(share: float) -> Body:
    return _completion(guided_regex="[a-z]?" * round(990 * share))


def required_patterns(share: float) -> Body:
    named = {str(i): {"pattern": f"^[a-z]{{{i}}}$"} for i in range(round(900 * share))}
    return _completion(guided_json={"required": ["0"], "properties": named})


def unbounded_scores(share: float) -> Body:
    return _completion(n=128, logprobs=100, max_tokens=1_000)


def many_derivations(share: float) -> Body:
    return _grammar(ALIKE, n=round(32 * share), max_tokens=60)


def dense_rules(share: float) -> Body:
    rules = [f"r{i}" for i in range(12)]
    lines = [f"{rule}: " + " | ".join(f"{a} {b}" for a in rules for b in rules) + " | /[a-z ]/" for rule in rules]
    return _grammar("start: r0\n" + "\n".join(lines), n=round(16 * share), max_tokens=30)


def references(share: float) -> Body:
    named = {"a": {"enum": ["$ref", *map(str, range(2000))]}}
    return _completion(guided_json={"$defs": named, "anyOf": [{"$ref": "#/$defs/a"}] * round(200 * share)})


def patterns(share: float) -> Body:
    pattern = {"type": "string", "pattern": "^([a-z]{1,40}[0-9]?)+$"}
    return _completion(
        guided_json={"type": "object", "properties": {f"p{i}": pattern for i in range(round(900 * share))}}
    )


def optional_parts(share: float) -> Body:
    return _completion(guided_regex="a?" * round(10_000 * share))


def alternatives(share: float) -> Body:
    return _grammar("start: " + " | ".join(f'"w{i}"' for i in range(round(20_000 * share))))


def special_tokens(share: float) -> Body:
    return _completion(prompt=[[0] * round(8000 * share)] * 32, n=128, max_tokens=1)


def many_ids(share: float) -> Body:
    return _completion(prompt=[[9] * round(1000 * share)] * 1024, n=8, max_tokens=1)


def shown_ids(share: float) -> Body:
    return _completion(prompt=[[9] * round(8000 * share)] * 64, n=128, max_tokens=1, return_token_ids=True, stream=True)


def scores_of_prompts(share: float) -> Body:
    return _completion(prompt=[[9] * round(2000 * share)] * 24, prompt_logprobs=20, max_tokens=1)


def streamed_echo(share: float) -> Body:
    return _completion(prompt=[[9] * round(2000 * share)] * 24, echo=True, logprobs=20, max_tokens=1, stream=True)


def told_again(share: float) -> Body:
    asked = {"top_logprobs": 100, "include": ["message.output_text.logprobs"], "stream": True}
    return RESPONSES, {"input": "Hi", "max_output_tokens": round(1000 * share), **asked}


def best_of_many(share: float) -> Body:
    return _completion(n=1, best_of=128, max_tokens=round(500 * share), ignore_eos=True)


def far_filter(share: float) -> Body:
    return _completion(n=round(128 * share), top_k=1000, top_p=0.9, max_tokens=50, ignore_eos=True)


def flat_filter(share: float) -> Body:
    return _completion(n=round(128 * share), temperature=100, top_p=0.02, max_tokens=50, ignore_eos=True)


def candidates(share: float) -> Body:
    return _completion(use_beam_search=True, best_of=32, temperature=0, max_tokens=round(200 * share), ignore_eos=True)


def streamed_beams(share: float) -> Body:
    asked = {"use_beam_search": True, "best_of": 32, "n": 32, "temperature": 0, "stream": True}
    return _completion(prompt=["Up"] * round(40 * share), max_tokens=100, **asked)


def repeated_shape(share: float) -> Body:
    words = " | ".join(f'"w{i}"' for i in range(round(5_000 * share)))
    return _grammar("start: " + words, prompt=["Hi"] * 128, max_tokens=2)


def long_queue(share: float) -> Body:
    return _completion(prompt=["Hi"] * round(64 * share), n=128, max_tokens=100)


def stops(share: float) -> Body:
    return _completion(n=round(128 * share), stop=["x" * 500] * 4, max_tokens=200, ignore_eos=True)


def biases(share: float) -> Body:
    return _completion(n=round(128 * share), logit_bias={str(i): 1 for i in range(1000)}, max_tokens=50)


def tools(share: float) -> Body:
    function = {
        "name": "f",
        "parameters": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(50)}},
    }
    named = [{"type": "function", "function": function | {"name": f"f{i}"}} for i in range(round(100 * share))]
    return CHAT, {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": named,
        "tool_choice": "required",
        "max_tokens": 8,
    }


def turns(share: float) -> Body:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    pair = [{"role": "assistant", "tool_calls": [call]}, {"role": "function", "name": "f", "content": "x"}]
    return CHAT, {"messages": [{"role": "user", "content": "Hi"}, *pair * round(4000 * share)], "max_tokens": 8}


def nested_tag(share: float) -> Body:
    depth = round(500 * share)
    tag = '{"type":"sequence","elements":[' * depth + '{"type":"any_text"}' + "]}" * depth
    return _completion(structured_outputs={"structural_tag": tag})


DEAR: dict[str, Callable[[float], Body]] = {
    "line breaks of a grammar": line_breaks,
    "scores of a prompt x choices": scores_of_choices,
    "echoed prompt x choices": echoed_choices,
    "scores of tokens x choices": scores_of_tokens,
    "a grammar of very many derivations x choices": many_derivations,
    "a grammar of dense rules x choices": dense_rules,
    "references x members": references,
    "patterns of a schema": patterns,
    "optional parts of an expression": optional_parts,
    "alternatives of a rule": alternatives,
    "special tokens x prompts x choices": special_tokens,
    "ids x prompts x choices": many_ids,
    "streamed ids of prompts x choices": shown_ids,
    "scores of many prompts": scores_of_prompts,
    "a streamed echo of many prompts": streamed_echo,
    "scores that a stream tells again": told_again,
    "the best of many samples": best_of_many,
    "filters that reach far x choices": far_filter,
    "a filter of flat scores x choices": flat_filter,
    "candidates of beams": candidates,
    "streamed beams of many prompts": streamed_beams,
    "a shape x prompts": repeated_shape,
    "a queue of one key": long_queue,
    "stops x choices": stops,
    "biases x choices": biases,
    "tools x properties": tools,
    "calls x answers": turns,
    "a nested tag as text": nested_tag,
    "a grammar of line breaks alone": no_end_of_lines,
    "parts of a rule that may be left out": parts_left_out,
    "optional signs of an expression": optional_signs,
    "required patterns": required_patterns,
    "more scores than may be": unbounded_scores,
}
# One sample, whose steps few tokens share: an honest one is charged as little for its time.
ONE_STREAM = ("scores that a stream tells again", "a prompt and a few tokens")
# Large, and what clients really send: they are answered.
HONEST: dict[str, Callable[[float], Body]] = {
    "a prompt and a few tokens": lambda _: _completion(max_tokens=60),
    "a long prompt": lambda share: _completion(prompt=[9] * round(1000 * share), max_tokens=8),
    "n = 128": lambda _: _completion(n=128, max_tokens=8),
    "64 prompts": lambda _: _completion(prompt=["Once upon a time"] * 64),
}
# Honest ones after which a server has used every block, and each process done once what takes memory.
WARMING: tuple[Body, ...] = (
    *((COMPLETIONS, {"prompt": f"{number} lifts go up. " * 120, "max_tokens": 2}) for number in range(12)),
    (COMPLETIONS, {"prompt": "Hi", "max_tokens": 8, "guided_json": {"type": "object"}}),
    (COMPLETIONS, {"prompt": [9] * 1000, "max_tokens": 20, "n": 128, "prompt_logprobs": 20, "logprobs": 100,
                   "temperature": 1, "top_p": 0.9, "frequency_penalty": 1, "logit_bias": {"9": 1}}),
    (COMPLETIONS, {"prompt": "Hi", "max_tokens": 8, "use_beam_search": True, "best_of": 32, "temperature": 0}),
    (COMPLETIONS, {"prompt": ["Up and down."] * 32, "max_tokens": 1, "n": 128}),
)  # fmt: skip


def encoded(body: Body) -> tuple[str, bytes]:
    return body[0], json.dumps(body[1]).encode()
