"""Kills the engine at random moments under concurrent streams, and looks for tokens lost, repeated or different.

    PYTHONPATH=tests python tests/stress/kills.py [--quick] [--kills 20] [--streams 64] [--seed 0] [--no-exact]

A server is started (the embedded model unless one is named, with `--exact`), a set of requests is answered undisturbed,
and then streams ask for the same again and again while the engine is killed. Every answer must be whole: its stream
stays open, each sample has as many tokens as were asked for, and with `--exact` they are the undisturbed ones, as are
their log-probabilities. Recovery is the time from a death to the first token of any stream after it. Prints a table and
exits with 1 if anything was lost. `--quick`: 2 kills under 8 streams.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from fakes.served import Served, serve

_LEFT_OVERS_S = 0.1  # what the dead engine had sent may still arrive
_PATIENCE_S = 120.0
_TOKENS_BETWEEN = 16  # most tokens of each stream between two deaths
_WORDS = ("the", "lift", "goes", "up", "a", "hill", "and", "down", "where", "snow", "lies", "deep", "still")


@dataclass
class Answer:
    """What a stream said, by sample."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    scores: dict[int, list[float]] = field(default_factory=dict)
    text: dict[int, str] = field(default_factory=dict)
    usage: tuple[int, int] = (0, 0)
    problems: list[str] = field(default_factory=list)


@dataclass
class Tally:
    answers: int = 0
    tokens: int = 0
    resumed: int = 0  # answers during which the engine died at least once
    problems: list[str] = field(default_factory=list)
    last_token: float = 0.0
    num_deaths: int = 0


def requests(rng: random.Random, count: int, num_tokens: int) -> list[dict[str, Any]]:
    """Greedy and sampled, with one or several samples, with and without log-probabilities."""
    made = []
    for i in range(count):
        body = {
            "prompt": " ".join(rng.choice(_WORDS) for _ in range(rng.choice([1, 20, 80]))),
            "max_tokens": rng.randint(num_tokens // 2, num_tokens), "ignore_eos": True, "seed": i,
            "temperature": 0.0 if i % 2 else 0.8, "n": 1 + (i % 5 == 0), "stream": True, "return_token_ids": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        made.append(body | ({"logprobs": 1} if i % 3 == 0 else {}))
    return made


async def ask(client: httpx.AsyncClient, body: dict[str, Any], tally: Tally) -> Answer:
    answer, is_done = Answer(), False
    try:
        async with client.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                answer.problems.append(f"status {response.status_code}: {(await response.aread())[:200]!r}")
                return answer
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    is_done = True
                elif line.startswith("data: "):
                    _take(answer, json.loads(line[6:]), tally)
    except httpx.HTTPError as error:
        answer.problems.append(f"the stream broke: {error!r}")
    if not is_done:
        answer.problems.append("the stream has no end")
    return answer


def _take(answer: Answer, event: dict[str, Any], tally: Tally) -> None:
    if "error" in event:
        answer.problems.append(f"an error in the stream: {event['error']['message']}")
        return
    if event.get("usage"):
        answer.usage = (event["usage"]["prompt_tokens"], event["usage"]["completion_tokens"])
    for choice in event["choices"]:
        index = choice["index"]
        answer.text[index] = answer.text.get(index, "") + choice["text"]
        tokens = choice.get("token_ids") or []
        if tokens:
            answer.tokens.setdefault(index, []).extend(tokens)
            tally.tokens += len(tokens)
            tally.last_token = time.monotonic()
        if choice.get("logprobs"):
            answer.scores.setdefault(index, []).extend(choice["logprobs"]["token_logprobs"])


def compare(body: dict[str, Any], want: Answer, got: Answer, exact: bool) -> list[str]:
    """What is wrong with an answer, given the undisturbed one."""
    problems = list(got.problems)
    for index in range(body["n"]):
        count = len(got.tokens.get(index, []))
        if count != body["max_tokens"]:
            problems.append(f"sample {index} has {count} tokens instead of {body['max_tokens']}")
    if got.usage != want.usage:
        problems.append(f"the usage is {got.usage} instead of {want.usage}")
    if exact:
        for what, had, has in (("token", want.tokens, got.tokens), ("log-probability", want.scores, got.scores)):
            problems += [
                f"sample {i}: {_difference(what, had.get(i, []), has.get(i, []))}" for i in had if had[i] != has.get(i)
            ]
        problems += ["the text is not that of the tokens"] if got.text != want.text and not problems else []
    return problems


def _difference(what: str, had: Sequence[float], has: Sequence[float]) -> str:
    """Of two lists that are not equal."""
    for place, (old, new) in enumerate(zip(had, has, strict=False)):
        if old != new:
            return f"{what} {place} of {len(had)} is {new}, undisturbed {old}"
    return f"{len(has)} of {len(had)}: each a {what}"


async def stream(
    client: httpx.AsyncClient, asked: Iterator[int], bodies: list[dict[str, Any]], wanted: list[Answer], tally: Tally,
    exact: bool, is_over: asyncio.Event,
) -> None:  # fmt: skip
    while not is_over.is_set():
        index, before = next(asked) % len(bodies), tally.num_deaths
        got = await ask(client, bodies[index], tally)
        tally.answers += 1
        tally.resumed += tally.num_deaths > before
        tally.problems += [f"request {index}: {p}" for p in compare(bodies[index], wanted[index], got, exact)]


async def kill(server: Served, rng: random.Random, tally: Tally, num_streams: int, count: int) -> list[float]:
    """Kills the engine once it has made some tokens; how long each time until there were tokens again."""
    took = []
    for number in range(count):
        # Counted in tokens, a moment means the same on any machine; few more often than many.
        enough = tally.tokens + num_streams * _TOKENS_BETWEEN * rng.random() ** 2
        while tally.tokens < enough:
            await asyncio.sleep(0.001)
        died = time.monotonic()
        os.kill(server.pids()[0], signal.SIGKILL)
        tally.num_deaths += 1
        while tally.last_token < died + _LEFT_OVERS_S:
            if time.monotonic() - died > _PATIENCE_S:
                tally.problems.append(f"no token within {_PATIENCE_S:.0f} s of death {number + 1}")
                return took
            await asyncio.sleep(0.005)
        took.append(tally.last_token - died)
    return took


async def run(server: Served, options: argparse.Namespace) -> tuple[Tally, list[float], float]:
    rng = random.Random(options.seed)
    bodies = requests(rng, min(48, options.streams), options.tokens)
    tally, is_over = Tally(), asyncio.Event()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=None, limits=limits) as client:
        wanted = await asyncio.gather(*(ask(client, body, Tally()) for body in bodies))
        tally.problems += [f"undisturbed: {problem}" for answer in wanted for problem in answer.problems]
        began, asked = time.monotonic(), iter(range(10**9))
        streams = [
            asyncio.ensure_future(stream(client, asked, bodies, wanted, tally, options.exact, is_over))
            for _ in range(options.streams)
        ]
        while not tally.tokens:
            await asyncio.sleep(0.01)
        took = await kill(server, rng, tally, options.streams, options.kills)
        is_over.set()
        await asyncio.gather(*streams)
    return tally, took, time.monotonic() - began


def table(options: argparse.Namespace, tally: Tally, took: list[float], wall_s: float) -> str:
    rows = [
        ("kills", f"{tally.num_deaths}"),
        ("concurrent streams", f"{options.streams}"),
        ("answers, of them with a death in between", f"{tally.answers}, {tally.resumed}"),
        ("tokens", f"{tally.tokens:,}"),
        ("answers lost, cut, or with tokens repeated, skipped or different", f"{len(tally.problems)}"),
        ("recovery, median", f"{statistics.median(took):.2f} s" if took else "none"),
        ("recovery, longest", f"{max(took):.2f} s" if took else "none"),
        ("wall time", f"{wall_s:.0f} s"),
    ]
    return "\n".join(["| engine kills | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows)])


def parsed(description: str | None, takes_options: bool, parts: Sequence[str] = ()) -> argparse.Namespace:
    """The command line of a stress test; `takes_options`: for the server too; `parts`: of which one may be chosen."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=120, help="of the longest answers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model")
    parser.add_argument("--exact", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--quick", action="store_true")
    if parts:
        parser.add_argument("--only", choices=parts)
    if takes_options:
        parser.add_argument("options", nargs="*", help="for the server, after --")
    options = parser.parse_args()
    if options.quick:
        options.kills, options.streams, options.tokens = 2, 8, 40
    return options


def main() -> int:
    options = parsed(__doc__, takes_options=True)
    arguments = [*(["--exact"] if options.exact else []), *(["--model", options.model] if options.model else [])]
    arguments += options.options
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder) / "log", *arguments) as server:
        tally, took, wall_s = asyncio.run(run(server, options))
        if tally.problems:
            print(server.output[-4000:], file=sys.stderr)
    print(table(options, tally, took, wall_s))
    for problem in tally.problems[:20]:
        print(f"\n{problem}")
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
