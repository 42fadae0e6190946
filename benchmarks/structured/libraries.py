"""llguidance, as chairlift uses it, beside xgrammar, which vLLM uses by default: a grammar's first mask, later masks.

    pip install --target DIR --no-deps xgrammar apache-tvm-ffi
    PYTHONPATH=DIR python benchmarks/structured/libraries.py [--tokenizer FOLDER] [--passes 5]

Both follow the same tokens, drawn at random from llguidance's masks, in turns. One line of JSON for each grammar and
library: milliseconds until the first mask of a grammar that was never seen, and microseconds of later masks (median,
mean, largest), each position the least of the passes, in one thread.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import xgrammar
from llguidance import LLMatcher, LLTokenizer
from structured.first_token import schema_of

from chairlift import LLM
from chairlift.core.structured import Structured
from chairlift.text.structured.grammar import LIMITS, grammar_of
from chairlift.text.structured.vocabulary import grammar_vocabulary

_PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_CODE = r"([A-Z]{2,4}-[0-9]{3,6}(\.[a-z]+)?; ){5,9}"
_SQL = """root ::= "SELECT " columns " FROM " name (" WHERE " name " = " value)?
columns ::= name (", " name)*
name ::= [a-z_]+
value ::= [0-9]+ | "'" [^']* "'"
"""
Case = tuple[Structured, Callable[[xgrammar.GrammarCompiler], Any]]
CASES: dict[str, Case] = {
    "two properties": (
        Structured.json_schema(_PERSON), lambda compiler: compiler.compile_json_schema(json.dumps(_PERSON))
    ),
    "150 properties": (
        Structured.json_schema(schema_of(0, 150)),
        lambda compiler: compiler.compile_json_schema(json.dumps(schema_of(0, 150))),
    ),
    "any JSON": (Structured.json_object(), lambda compiler: compiler.compile_builtin_json_grammar()),
    "regex": (Structured.regex(_CODE), lambda compiler: compiler.compile_regex(_CODE)),
    "SQL": (Structured.grammar(_SQL), lambda compiler: compiler.compile_grammar(_SQL)),
}  # fmt: skip


class Llguidance:
    def __init__(self, vocabulary: LLTokenizer, case: Case, words: np.ndarray[Any, Any]) -> None:
        self._matcher = LLMatcher(vocabulary, grammar_of(case[0]), limits=LIMITS, log_level=0)
        self._words = words

    def mask(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)

    def take(self, token: int) -> bool:
        return bool(self._matcher.consume_tokens([token]))


class Xgrammar:
    def __init__(self, info: Any, case: Case, bits: torch.Tensor) -> None:
        compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._matcher = xgrammar.GrammarMatcher(case[1](compiler))
        self._bits = bits

    def mask(self) -> None:
        self._matcher.fill_next_token_bitmask(self._bits)

    def take(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))


def drawn(vocabulary: LLTokenizer, case: Case, words: np.ndarray[Any, Any], most: int) -> list[int]:
    matcher, rng, tokens = Llguidance(vocabulary, case, words), random.Random(5), []
    for _ in range(most):
        matcher.mask()
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        token = int(rng.choice(allowed))
        if not matcher.take(token):
            break
        tokens.append(token)
    return tokens


def timed(make: Callable[[], Llguidance | Xgrammar], tokens: list[int], passes: int) -> dict[str, float]:
    first, least = [], [float("inf")] * len(tokens)
    for _ in range(passes):
        began = time.thread_time()
        matcher = make()
        matcher.mask()
        first.append(time.thread_time() - began)
        for place, token in enumerate(tokens):
            began = time.thread_time()
            matcher.mask()
            least[place] = min(least[place], time.thread_time() - began)
            if not matcher.take(token):
                break
    us = [1e6 * each for each in least if each < float("inf")]
    figures = {"median_us": statistics.median(us), "mean_us": statistics.fmean(us), "largest_us": max(us)}
    return {"first_ms": round(1000 * min(first), 2)} | {name: round(value, 1) for name, value in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    torch.set_num_threads(1)
    llm = LLM(args.model)
    tokenizer = llm.tokenizer
    size, end_ids = tokenizer.vocab_size, [tokenizer.eos_id or 0]
    vocabulary = grammar_vocabulary(tokenizer, size, end_ids)
    spelled = [tokenizer.spelling[token] for token in range(size)]
    info = xgrammar.TokenizerInfo(spelled, vocab_type=xgrammar.VocabType.RAW, vocab_size=size, stop_token_ids=end_ids)
    words, bits = np.zeros(-(-size // 32), np.int32), xgrammar.allocate_token_bitmask(1, size)
    for name, case in CASES.items():
        tokens = drawn(vocabulary, case, words, args.tokens)
        for library, make in (
            ("llguidance", lambda: Llguidance(vocabulary, case, words)),  # noqa: B023
            ("xgrammar", lambda: Xgrammar(info, case, bits)),  # noqa: B023
        ):
            figures = timed(make, tokens, args.passes)
            print(json.dumps({"grammar": name, "library": library, "tokens": len(tokens), **figures}), flush=True)


if __name__ == "__main__":
    main()
