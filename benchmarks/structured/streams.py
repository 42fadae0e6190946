"""Streams whose answers are held to a shape, beside the same streams without, in one run: what the masks cost.

    python benchmarks/structured/streams.py [--model DIR --load-format dummy --dtype bfloat16] [--streams 64,256]
        [--tokens 256] [--repeats 3] [--temperature 1]

Every stream has one of the shapes below, which all go on for longer than is asked for, so both kinds make the same
number of tokens. One line of JSON for each number of streams: tokens per second of each kind and their ratio, the
middle of the repeats.
"""

import argparse
import json
import statistics
import time
from typing import Any

from chairlift import LLM, SamplingParams
from chairlift.core.structured import Structured

_PROMPT = 32  # tokens
_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email", "maxLength": 30},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 5},
    },
    "required": ["name", "age", "email", "tags"],
    "additionalProperties": False,
}
_MANY = {f"field_{i}": {"type": ["string", "integer", "null"], "maxLength": 12} for i in range(150)}
SHAPES = {
    "list of objects": Structured.json_schema({"type": "array", "items": _PERSON, "minItems": 500}),
    "150 properties": Structured.json_schema(
        {"type": "object", "properties": _MANY, "required": list(_MANY), "additionalProperties": False}
    ),
    "any JSON": Structured.json_schema({"type": "array", "minItems": 5000}),
    "regex": Structured.regex(r"([A-Z]{2,4}-[0-9]{3,6}(\.[a-z]+)?; ){1000}"),
}


def tokens_per_s(llm: LLM, count: int, num_tokens: int, temperature: float, shapes: list[Structured | None]) -> float:
    prompts = [{"prompt_token_ids": [(7 * i + j) % 1000 + 10 for j in range(_PROMPT)]} for i in range(count)]
    params = [
        SamplingParams(
            structured_outputs=shapes[i % len(shapes)],
            ignore_eos=shapes[i % len(shapes)] is None,
            max_tokens=None,  # as many as the context holds: the shapes need more
            temperature=temperature,
            seed=i,
        )
        for i in range(count)
    ]
    began = time.perf_counter()
    made = sum(len(each.outputs[0].token_ids) for each in llm.generate(prompts, params, use_tqdm=False))
    assert made == count * num_tokens, f"{made} of {count * num_tokens} tokens: a shape was complete too soon"
    return made / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--streams", default="64,256")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--each", action="store_true", help="each shape by itself too")
    args = parser.parse_args()
    counts = [int(count) for count in args.streams.split(",")]
    settings: dict[str, Any] = {"load_format": args.load_format, "dtype": args.dtype, "exact": args.exact}
    llm = LLM(args.model, **settings, max_running=max(counts), max_model_len=_PROMPT + args.tokens)
    kinds = {"all": list(SHAPES.values())} | ({name: [shape] for name, shape in SHAPES.items()} if args.each else {})
    for name, shapes in kinds.items():
        for count in counts:
            tokens_per_s(llm, count, args.tokens, args.temperature, [None, *shapes])  # captures, makes grammars
            plain, held = [], []
            for _ in range(args.repeats):
                plain.append(tokens_per_s(llm, count, args.tokens, args.temperature, [None]))
                held.append(tokens_per_s(llm, count, args.tokens, args.temperature, list(shapes)))
            without, with_shape = statistics.median(plain), statistics.median(held)
            figures = {
                "without": round(without, 1),
                "with": round(with_shape, 1),
                "ratio": round(with_shape / without, 3),
            }
            print(json.dumps({"shapes": name, "streams": count, **figures}), flush=True)


if __name__ == "__main__":
    main()
