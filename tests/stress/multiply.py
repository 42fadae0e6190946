"""Bodies that multiply fields, drawn at random, one after another: the slowest health probe, growth, dearest body.

    PYTHONPATH=tests python tests/stress/multiply.py [--minutes 60] [--seed 0] [--model MODEL] [--out FILE] [--dear]

A server with two front ends gets n x scores x prompts x lengths x special tokens x shapes x tools x stops. Bounds: a
probe of its health waits 250 ms at most, and no process grows by more than 64 MiB and eight times the body beyond what
honest large bodies took. A body that is over meets a server of its own again: a probe must wait again, and what grows
is measured beyond what an honest body of as many tokens took there. Prints what was over, and the ten dearest bodies by
processor time; the exit code says whether anything was over. --dear: the named bodies of `dear_bodies.py`, honest ones
among them, with what each is charged for a second of processor time; a kind below half of the median is over. The model
is by default a tiny random one with the embedded one's vocabulary, so that most of the time is not the model's.
"""

import argparse
import json
import random
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from fakes.served import Served, serve
from fakes.tiny_model import write_wide_model
from stress.beside import GROWTH_PER_BYTE, MAX_GROWTH_MIB, MAX_PROBE_S, MIB, bare_server, beside, wait_idle
from stress.client import names
from stress.dear_bodies import (
    ALIKE,
    CHAT,
    COMPLETIONS,
    DEAR,
    HONEST,
    ONE_STREAM,
    RESPONSES,
    WARMING,
    Body,
    as_many_tokens,
    encoded,
)

PATIENCE_S = 20.0  # then the client leaves
SERVER = ("--frontends", 2, "--threads", 1, "--num-blocks", 1024)
KEY = "a-key-with-an-allowance"
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
SLOT = struct.Struct("<8sddd")  # of an allowance: name, requests and tokens left, when
AGAIN = "again: "
_LEAST_S = 0.05  # of processor time: kinds that take less are not judged by it


@dataclass(frozen=True)
class Seen:
    about: str
    status: int  # 0: the client left
    num_bytes: int
    seconds: float
    cpu_s: float  # of all processes
    front_s: float  # of the front ends
    probe_s: float  # the slowest
    grown_mib: float
    grown: str  # the process
    charged: int  # tokens
    said: str  # the beginning of the answer

    @property
    def charged_a_second(self) -> float:
        return self.charged / max(self.cpu_s, 0.01)  # which can be measured

    @property
    def faults(self) -> Iterator[str]:
        if self.probe_s > MAX_PROBE_S:
            yield f"a probe took {self.probe_s:.2f} s"
        if self.grown_mib > MAX_GROWTH_MIB + GROWTH_PER_BYTE * self.num_bytes / MIB:
            yield f"{self.grown} grew by {self.grown_mib:.0f} MiB"
        if self.status >= 500 and self.status != 503:
            yield f"status {self.status}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Send bodies that multiply fields.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the sizes of --dear")
    parser.add_argument("--dear", action="store_true")
    parser.add_argument("--model")
    parser.add_argument("--out", type=Path, help="a line of JSON a body")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, bare_server() as bare:
        folder = Path(name)
        (folder / "keys").write_text(f"- {{key: {KEY}, requests_per_minute: 1, tokens_per_minute: 1}}\n")
        arguments = "--model", options.model or write_wide_model(folder / "wide"), "--api-key-file", folder / "keys"
        with looking(bare, *arguments) as look:
            bodies = named_bodies(options.share) if options.dear else random_bodies(options.seed, options.minutes)
            seen = []
            for about, body in bodies:
                seen.append(look.at(about, body))
                print(line(seen[-1]), flush=True)
                if any(seen[-1].faults) and seen[-1].status < 500:
                    with looking(bare, *arguments) as own:
                        own.warm(3 * (as_many_tokens(body),))
                        seen[-1] = own.at(AGAIN + about, body)
                    print(line(seen[-1]), flush=True)
                if options.out:
                    text = {"body": body if len(str(body)) < 4096 else None}
                    with options.out.open("a") as file:
                        file.write(json.dumps(asdict(seen[-1]) | text) + "\n")
    return report(seen, options.dear)


def named_bodies(share: float) -> Iterator[tuple[str, Body]]:
    for name, make in {**HONEST, **DEAR}.items():
        yield name, make(share)


def random_bodies(seed: int, minutes: float) -> Iterator[tuple[str, Body]]:
    until, number = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < until:
        body = random_body(random.Random(f"{seed} {number}"))
        yield f"{seed}.{number} {body[0]} {' '.join(sorted(body[1]))}", body
        number += 1


@contextmanager
def looking(bare_port: int, *arguments: object) -> Iterator["Look"]:
    with tempfile.TemporaryDirectory() as name, serve(Path(name, "log"), *SERVER, *arguments) as served:
        yield Look(served, bare_port)


class Look:
    """At what bodies do to a server."""

    def __init__(self, served: Served, bare_port: int) -> None:
        self._served, self._bare_port = served, bare_port
        self._purse = Purse(served)
        self._idle = 0.0  # processor seconds a second: of the probes
        self._peak: Mapping[int, float] = {}
        self.warm(3 * WARMING)  # memory is looked at now and then
        began = time.monotonic()
        self._idle = self.at("nothing", None).cpu_s / (time.monotonic() - began)

    def warm(self, bodies: Sequence[Body]) -> None:
        """What they take is no growth from here on."""
        with beside(self._served, self._bare_port, peak=self._peak) as found:
            for body in bodies:
                self._purse.fill()
                send(self._served, body)
                wait_idle(self._served, HEADERS)
        self._peak = {pid: max(most, self._peak.get(pid, 0.0)) for pid, most in found.most.items()}

    def at(self, about: str, body: Body | None) -> Seen:
        """One body, and what becomes of the server meanwhile and shortly after."""
        named = names(self._served)
        fronts = [pid for pid, name in named.items() if name.startswith("front end")]
        self._purse.fill()
        cpu, front, began = cpu_s(named), cpu_s(fronts), time.monotonic()
        with beside(self._served, self._bare_port, peak=self._peak) as found:
            status, said = (0, "") if body is None else send(self._served, body)
            seconds = time.monotonic() - began
            time.sleep(0.3 if body else 3)
            wait_idle(self._served, HEADERS)
        if names(self._served) != named:
            status = 599  # a process died
        idle_s = self._idle * (time.monotonic() - began)
        pid, grown_mib = found.grown
        return Seen(
            about, status, len(encoded(body)[1]) if body else 0, seconds, cpu_s(named) - cpu - idle_s,
            cpu_s(fronts) - front - idle_s, found.probe_s, grown_mib, named[pid], self._purse.spent(), said,
        )  # fmt: skip


class Purse:
    """The allowance of the one key, in the file where front ends keep it: what a body is charged is gone from it."""

    def __init__(self, served: Served) -> None:
        opened = [file.path for pid in served.pids()[1] for file in psutil.Process(pid).open_files()]
        self._file = next(Path(path) for path in opened if Path(path).name == "rates")

    def fill(self) -> None:
        """A full one takes a body of any size."""
        name, _, _, at = SLOT.unpack(self._read())
        if at:
            with self._file.open("r+b") as file:
                file.write(SLOT.pack(name, 1.0, 1.0, time.monotonic()))

    def spent(self) -> int:
        """Tokens."""
        _, _, tokens, at = SLOT.unpack(self._read())
        return round(1.0 - tokens) if at else 0

    def _read(self) -> bytes:
        return self._file.read_bytes()[: SLOT.size]


def cpu_s(pids: Sequence[int] | dict[int, str]) -> float:
    total = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            total += sum(psutil.Process(pid).cpu_times()[:2])
    return total


def send(served: Served, body: Body) -> tuple[int, str]:
    """The status, 0 where the client left before, and the beginning of the answer."""
    path, data = encoded(body)
    said = b""
    try:
        with httpx.stream("POST", served.url + path, content=data, timeout=PATIENCE_S, headers=HEADERS) as answer:
            until = time.monotonic() + PATIENCE_S
            for part in answer.iter_raw():
                said = said or part[:300]
                if time.monotonic() > until:
                    break
            return answer.status_code, said.decode(errors="replace")
    except httpx.HTTPError as error:
        return 0, repr(error)


def random_body(rng: random.Random) -> Body:
    """Two to five fields that multiply; sizes of all orders."""
    route = rng.choice([COMPLETIONS] * 4 + [CHAT] * 2 + [RESPONSES])
    body: dict[str, Any] = {
        "max_tokens" if route != RESPONSES else "max_output_tokens": size(rng, 400),
        "temperature": 1,
    }
    if route == COMPLETIONS:
        body["prompt"] = prompt(rng)
    elif route == CHAT:
        body["messages"] = [{"role": "user", "content": text(rng)} for _ in range(size(rng, 200))]
    else:
        body["input"] = text(rng)
    for field in rng.sample(sorted(FIELDS), rng.randint(1, 4)):
        body.update(FIELDS[field](rng, route))
    return route, body


def size(rng: random.Random, most: int) -> int:
    return max(1, round(most ** rng.random()))


def text(rng: random.Random) -> str:
    piece = rng.choice(["word ", "a", "\n", "€", "\ud83d\ude00", "<|im_end|>", "{", "0", "ｗ", "\u0301", " "])
    return piece * size(rng, rng.choice([20, 2_000, 200_000]))


def prompt(rng: random.Random) -> object:
    ids = [rng.choice([0, 1, 2, 9, 300, 40_000])] * size(rng, 8_000)
    one = rng.choice([text(rng), ids])
    return one if rng.random() < 0.5 else [one] * size(rng, 64)


def scores(rng: random.Random, route: str) -> dict[str, Any]:
    if route == CHAT:
        return {"logprobs": True, "top_logprobs": size(rng, 100)}
    return {"logprobs": size(rng, 100)} | ({"prompt_logprobs": size(rng, 20)} if rng.random() < 0.4 else {"echo": True})


def shape(rng: random.Random, route: str) -> dict[str, Any]:
    kind = rng.choice(["regex", "grammar", "json", "choice", "tag"])
    count = size(rng, rng.choice([10, 1_000, 20_000]))
    if kind == "regex":
        part = rng.choice(["a?", "(a|b)", "[a-z]{1,9}", "(ab|a)*", "\\w+", ".", "\\p{L}", "(a{1,9}){1,9}"])
        value: object = part * count
    elif kind == "grammar":
        value = rng.choice([
            ALIKE, "\n" * count, "start: " + " | ".join(f'"w{i}"' for i in range(count)),
            "start: r0\n" + "\n".join(f"r{i}: r{i + 1} | r{i + 1} r{i + 1}" for i in range(count)) + f'\nr{count}: "a"',
            "start: " + '"a" ' * count, f'start: ("a"? "b"?){{0,{count}}}', 'root ::= "a"\n' * count,
        ])  # fmt: skip
    elif kind == "json":
        value = schema(rng, count)
        return (
            {"guided_json": value}
            if route != RESPONSES
            else {"text": {"format": {"type": "json_schema", "name": "x", "schema": value}}}
        )
    elif kind == "choice":
        value = [f"{i} {'x' * size(rng, 50)}" for i in range(count)]
    else:
        value = json.dumps({"type": "sequence", "elements": [{"type": "any_text"}] * count})
    name = {"regex": "regex", "grammar": "grammar", "choice": "choice", "tag": "structural_tag"}[kind]
    return {"structured_outputs": {name: value}}


def schema(rng: random.Random, count: int) -> dict[str, Any]:
    few = min(count, 1_000)
    doubled = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(few)}
    return rng.choice([
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(count)}, "required": ["p0"]},
        {"enum": list(range(count))},
        {"anyOf": [{"const": i} for i in range(count)]},
        {"type": "array", "items": {"type": "integer"}, "minItems": count, "maxItems": 2 * count},
        {"type": "string", "minLength": count, "maxLength": 2 * count},
        {"type": "string", "pattern": "^" + "[a-c]?" * min(count, 3_000) + "$"},
        {"$defs": {"a": {"enum": [str(i) for i in range(few)]}}, "anyOf": [{"$ref": "#/$defs/a"}] * few},
        {"$defs": doubled | {f"d{few}": {"type": "null"}}, "$ref": "#/$defs/d0"},
    ])  # fmt: skip


def tools(rng: random.Random, route: str) -> dict[str, Any]:
    made = [{"name": f"f{i}", "parameters": schema(rng, size(rng, 200))} for i in range(size(rng, 128))]
    if route == CHAT:
        return {"tools": [{"type": "function", "function": each} for each in made], "tool_choice": "required"}
    return {"tools": [{"type": "function", **each} for each in made]} if route == RESPONSES else {}


def filters(rng: random.Random, route: str) -> dict[str, Any]:
    kinds = {
        "temperature": rng.choice([0.1, 1.5, 100]), "top_p": rng.choice([0.02, 0.3, 0.999]),
        "top_k": size(rng, 40_000), "min_p": rng.choice([1e-9, 0.1, 0.9]),
        "frequency_penalty": 1, "repetition_penalty": 1.2,
    }  # fmt: skip
    names = set(kinds) - (
        {"min_p", "top_k", "repetition_penalty", "frequency_penalty"} if route == RESPONSES else set()
    )
    return {name: kinds[name] for name in rng.sample(sorted(names), rng.randint(1, len(names)))}


FIELDS: dict[str, Callable[[random.Random, str], dict[str, Any]]] = {
    "n": lambda rng, route: {"n": size(rng, 128)} if route != RESPONSES else {},
    "scores": scores,
    "shape": shape,
    "tools": tools,
    "stop": lambda rng, route: {"stop": [text(rng)[:500] for _ in range(4)]} if route != RESPONSES else {},
    "bias": lambda rng, route: {"logit_bias": {str(i): 1 for i in range(size(rng, 1024))}},
    "long": lambda rng, route: {"ignore_eos": True},
    "filters": filters,
    "stream": lambda rng, route: {"stream": True},
    "beams": lambda rng, route: (
        {"use_beam_search": True, "best_of": size(rng, 32), "temperature": 0} if route == COMPLETIONS else {}
    ),
}


def line(seen: Seen) -> str:
    return (
        f"{seen.status:3} {seen.cpu_s:7.2f} s cpu ({seen.front_s:6.2f} front) {seen.seconds:6.2f} s probe "
        f"{seen.probe_s:5.2f} s +{seen.grown_mib:4.0f} MiB {seen.num_bytes:8} B {seen.charged:7} tokens "
        f"{seen.about[:110]}"
    )


def report(seen: Sequence[Seen], has_kinds: bool) -> int:
    over = [f"{fault}: {each.about[:140]}" for each in seen for fault in each.faults]
    if has_kinds:
        over += charges(seen)
    print(f"\n{len(seen)} bodies; the slowest probe {max(each.probe_s for each in seen):.2f} s, the largest growth "
          f"{max(each.grown_mib for each in seen):.0f} MiB, median processor time "
          f"{statistics.median(each.cpu_s for each in seen):.2f} s; over the bounds: {len(over)}")  # fmt: skip
    for fault in over:
        print(f"OVER: {fault}")
    print("the dearest by processor time:")
    for each in sorted(seen, key=lambda each: -each.cpu_s)[:10]:
        print(line(each))
    return 1 if over else 0


def charges(seen: Sequence[Seen]) -> Iterator[str]:
    """Prints what kinds of bodies are charged; gives those that are too cheap. One stream is judged beside an honest
    one, and honest bodies are not."""
    all_kinds = statistics.median(each.charged_a_second for each in seen if each.cpu_s > _LEAST_S)
    one_stream = min(each.charged_a_second for each in seen if each.about in ONE_STREAM and each.about in HONEST)
    print("\n| kind | status | bytes | tokens charged | processor s | tokens a second | of the median |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for each in seen:
        kind = each.about.removeprefix(AGAIN)
        share = each.charged_a_second / all_kinds
        print(f"| {kind} | {each.status or 'left'} | {each.num_bytes:,} | {each.charged:,} | {each.cpu_s:.2f} "
              f"| {each.charged_a_second:,.0f} | {share:.2f} |")  # fmt: skip
        median = one_stream if kind in ONE_STREAM else all_kinds
        if each.charged_a_second < median / 2 and each.cpu_s > _LEAST_S and kind not in HONEST:
            yield f"{share:.2f} of what the median kind is charged for such a time: {kind}"


if __name__ == "__main__":
    sys.exit(main())
