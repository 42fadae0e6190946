"""Answers to random JSON schemas, all checked by a validator of JSON schema: none may be wrong.

    python benchmarks/structured/valid.py [--model DIR --load-format dummy --dtype bfloat16] [--schemas 250] [--each 40]
        [--out FILE]

Schemas are drawn from a seed: nested objects, arrays, strings with patterns and formats, bounded numbers, enums, unions
and references. Half of the answers are greedy, half sampled. `--out` writes each schema with its answers, one line of
JSON, for checking elsewhere (`--check FILE`, which needs the package jsonschema-rs). Prints how many answers are valid,
cut by length, wrong.
"""

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chairlift import LLM, SamplingParams

MAX_TOKENS = 1000
_WORDS = ("name", "age", "kind", "place", "height", "notes", "tags", "owner", "since", "open", "parts", "price")
_LEAVES: tuple[dict[str, Any], ...] = (
    {"type": "boolean"}, {"type": "null"}, {"const": "fixed"}, {"enum": ["red", "green", 3, None]},
    {"type": "integer", "minimum": -40, "maximum": 4000}, {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "string", "maxLength": 24}, {"type": "string", "minLength": 2, "maxLength": 9},
    {"type": "string", "format": "date"}, {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
)  # fmt: skip


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    kind = rng.choice(("object", "object", "array", "union", "leaf") if depth < 3 else ("leaf",))
    if kind == "leaf":
        return dict(rng.choice(_LEAVES))
    if kind == "array":
        most = rng.randint(1, 4)
        return {
            "type": "array",
            "items": random_schema(rng, depth + 1),
            "minItems": rng.randint(0, most),
            "maxItems": most,
        }
    if kind == "union":
        return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
    names = rng.sample(_WORDS, rng.randint(1, 5))
    properties = {name: random_schema(rng, depth + 1) for name in names}
    required = [name for name in names if rng.random() < 0.7]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def schemas(count: int) -> list[dict[str, Any]]:
    """Every fifth refers to another."""
    rng = random.Random(7)
    made = [random_schema(rng) for _ in range(count)]
    for i in range(4, count, 5):
        item = {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 3}
        made[i] = {"$defs": {"item": random_schema(rng, 2)}} | item
    return made


def generate(args: argparse.Namespace) -> list[dict[str, Any]]:
    llm = LLM(args.model, load_format=args.load_format, dtype=args.dtype, max_model_len=2048)
    wanted = schemas(args.schemas)
    prompts, params = [], []
    for index, schema in enumerate(wanted):
        for sample in range(args.each):
            prompts.append({"prompt_token_ids": llm.tokenizer.encode(f"An example, number {sample}, as JSON:\n")})
            heat = (sample % 2) * 1.0
            params.append(
                SamplingParams(
                    structured_outputs=schema, max_tokens=MAX_TOKENS, temperature=heat, seed=index * 100 + sample
                )
            )
    began = time.perf_counter()
    answers = [each.outputs[0] for each in llm.generate(prompts, params)]
    num_tokens = sum(len(answer.token_ids) for answer in answers)
    print(f"{len(answers)} answers, {num_tokens} tokens in {time.perf_counter() - began:.0f} s")
    found = [{"text": answer.text, "finish": answer.finish_reason} for answer in answers]
    return [
        {"schema": schema, "answers": found[i * args.each : (i + 1) * args.each]} for i, schema in enumerate(wanted)
    ]


def check(lines: list[dict[str, Any]]) -> Counter[str]:
    import jsonschema_rs

    counts: Counter[str] = Counter()
    for line in lines:
        validator = jsonschema_rs.validator_for(line["schema"])
        for answer in line["answers"]:
            if answer["finish"] == "length":
                counts["cut by length"] += 1
            else:
                counts["valid" if _is_valid(validator, answer["text"]) else "wrong"] += 1
    return counts


def _is_valid(validator: Any, text: str) -> bool:
    try:
        return bool(validator.is_valid(json.loads(text)))
    except ValueError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--schemas", type=int, default=250)
    parser.add_argument("--each", type=int, default=40)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", type=Path)
    args = parser.parse_args()
    if args.check is not None:
        lines = [json.loads(line) for line in args.check.read_text().splitlines()]
    else:
        lines = generate(args)
    if args.out is not None:
        args.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        print(dict(check(lines)))


if __name__ == "__main__":
    main()
