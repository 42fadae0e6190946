"""The first token of an answer with a schema that no request had before, beside one without: what a new grammar costs.

    chairlift serve --port 8000 &
    python benchmarks/structured/first_token.py [--url http://127.0.0.1:8000] [--requests 60] [--properties 150]

Requests with and without a schema in turns, one at a time, over HTTP. Every schema differs from all others in its
names, also those of other runs. One line of JSON: milliseconds to the first token of each kind, the medians, and their
difference.
"""

import argparse
import json
import statistics
import time
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit


def schema_of(number: int, num_properties: int) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": 40},
        {"type": ["integer", "null"], "minimum": 0, "maximum": 4000},
        {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 5},
        {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "number"}}, "required": ["a"],
         "additionalProperties": False},
        {"type": "string", "format": "date-time"},
    ]  # fmt: skip
    properties = {f"field_{number}_{i}": kinds[i % len(kinds)] for i in range(num_properties)}
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False
    }  # fmt: skip


def first_token_ms(address: str, body: dict[str, Any]) -> float:
    """On a connection of its own, which is closed then: the rest is not waited for."""
    sent = json.dumps(body)
    with closing(HTTPConnection(address, timeout=60)) as http:
        http.connect()
        began = time.perf_counter()
        http.request("POST", "/v1/completions", sent, {"Content-Type": "application/json"})
        response = http.getresponse()
        assert response.status == 200, response.read()
        response.readline()
        return (time.perf_counter() - began) * 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--properties", type=int, default=150)
    args = parser.parse_args()
    body = {"prompt": "An example, in JSON: " * 10, "max_tokens": 8000, "stream": True}
    plain, held, first = [], [], time.time_ns() // 1000 % 1_000_000
    address = urlsplit(args.url).netloc
    for number in range(-3, args.requests):
        # Of one token: those of random weights may be no text by themselves, and be held back.
        without = first_token_ms(address, body | {"max_tokens": 1})
        shape = {"name": "x", "schema": schema_of(first + number, args.properties)}
        with_schema = first_token_ms(address, body | {"response_format": {"type": "json_schema", "json_schema": shape}})
        if number >= 0:
            plain.append(without)
            held.append(with_schema)
    without, with_schema = statistics.median(plain), statistics.median(held)
    figures = {"without_ms": without, "with_ms": with_schema, "later_ms": with_schema - without}
    print(json.dumps({"properties": args.properties} | {name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
