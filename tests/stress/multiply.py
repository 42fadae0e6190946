"""Bodies that multiply fields, drawn at random, one after another: the slowest health probe, growth, dearest body.

    PYTHONPATH=tests python tests/stress/multiply.py [--minutes 60] [--seed 0] [--model MODEL] [--out FILE] [--dear]

A server with two front ends gets n x scores x prompts x lengths x special tokens x shapes x tools x stops. Meanwhile a
client asks again and again for the server's health, on a new connection each time, so that all front ends are asked.
Bounds: a probe answers within 250 ms, and no process grows by more than 64 MiB and eight times the body. Prints what
was over, and the ten dearest bodies by processor time; the exit code says whether anything was over. --dear: the named
bodies of `dear_bodies.py`, each beside honest ones. What a body is charged is read from its key's allowance.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from fakes.served import Served, serve
from stress.client import names, written_mib
from stress.dear_bodies import ALIKE, CHAT, COMPLETIONS, DEAR, HONEST, RESPONSES, Body, encoded

PATIENCE_S = 30.0  # then the client leaves
MAX_PROBE_S = 0.25
MAX_GROWTH_MIB = 64
GROWTH_PER_BYTE = 8
PAUSE_S = 0.03
SERVER = ("--frontends", 2, "--threads", 1, "--num-blocks", 1024)


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

    @property
    def faults(self) -> Iterator[str]:
        if self.probe_s > MAX_PROBE_S:
            yield f"a probe took {self.probe_s:.2f} s"
        if self.grown_mib > MAX_GROWTH_MIB + GROWTH_PER_BYTE * self.num_bytes / 2**20:
            yield f"a process grew by {self.grown_mib:.0f} MiB"
        if self.status >= 500 and self.status != 503:
            yield f"status {self.status}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Send bodies that multiply fields.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the sizes of --dear")
    parser.add_argument("--dear", action="store_true")
    parser.add_argument("--model", help="default: the embedded one")
    parser.add_argument("--out", type=Path, help="a line of JSON a body")
    options = parser.parse_args()
    arguments: list[object] = [*SERVER, *(["--model", options.model] if options.model else [])]
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder) / "log", *arguments) as served:
        warm_up(served)
        bodies = named_bodies(options.share) if options.dear else random_bodies(options.seed, options.minutes)
        seen = []
        for about, body in bodies:
            seen.append(look(served, about, body))
            print(line(seen[-1]), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(asdict(seen[-1]) | {"body": body if len(str(body)) < 4096 else None}) + "\n")
    return report(seen)


def warm_up(served: Served) -> None:
    """Every block is used once, and each process has done what it does once."""
    for number in range(12):
        send(served, (COMPLETIONS, {"prompt": f"{number} lifts go up. " * 120, "max_tokens": 2, "logprobs": 5}))
    send(served, (COMPLETIONS, {"prompt": "Hi", "max_tokens": 8, "guided_json": {"type": "object"}}))


def named_bodies(share: float) -> Iterator[tuple[str, Body]]:
    for name, make in {**HONEST, **DEAR}.items():
        yield name, make(share)


def random_bodies(seed: int, minutes: float) -> Iterator[tuple[str, Body]]:
    until, number = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < until:
        body = random_body(random.Random(f"{seed} {number}"))
        yield f"{seed}.{number} {body[0]} {' '.join(sorted(body[1]))}", body
        number += 1


def look(served: Served, about: str, body: Body) -> Seen:
    """One body, and what becomes of the server meanwhile and shortly after."""
    named = names(served)
    fronts = [pid for pid, name in named.items() if name.startswith("front end")]
    before = {pid: written_mib(pid) for pid in named}
    cpu, front = cpu_s(named), cpu_s(fronts)
    most = dict(before)
    slowest = [0.0]

    def watch() -> None:
        for pid in most:
            with suppress(OSError):
                most[pid] = max(most[pid], written_mib(pid))

    def probe() -> None:
        began = time.monotonic()
        with suppress(httpx.HTTPError):
            httpx.get(f"{served.url}/health/live", timeout=PATIENCE_S)
        slowest[0] = max(slowest[0], time.monotonic() - began)

    began = time.monotonic()
    with again_and_again(watch), again_and_again(probe):
        status = send(served, body)
        seconds = time.monotonic() - began
        time.sleep(0.3)
        wait_idle(served)
    if names(served) != named:
        status = 599  # a process died
    grown = max(most[pid] - before[pid] for pid in named)
    num_bytes = len(encoded(body)[1])
    return Seen(about, status, num_bytes, seconds, cpu_s(named) - cpu, cpu_s(fronts) - front, slowest[0], grown)


def cpu_s(pids: Sequence[int] | dict[int, str]) -> float:
    total = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            total += sum(psutil.Process(pid).cpu_times()[:2])
    return total


def send(served: Served, body: Body) -> int:
    path, data = encoded(body)
    try:
        with httpx.stream("POST", served.url + path, content=data, timeout=PATIENCE_S,
                          headers={"Content-Type": "application/json"}) as answer:  # fmt: skip
            until = time.monotonic() + PATIENCE_S
            for _ in answer.iter_raw():
                if time.monotonic() > until:
                    break
            return answer.status_code
    except httpx.HTTPError:
        return 0


def wait_idle(served: Served) -> None:
    """Until nothing of it runs any more: work that goes on after the client left is the body's too."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(httpx.HTTPError):
            text = httpx.get(f"{served.url}/metrics", timeout=PATIENCE_S).text
            lines = [
                each
                for each in text.splitlines()
                if each.startswith(("chairlift_requests_running", "chairlift_requests_waiting"))
            ]
            if not any(float(each.split()[-1]) for each in lines):
                return
        time.sleep(0.2)


@contextmanager
def again_and_again(work: Callable[[], None]) -> Iterator[None]:
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(PAUSE_S):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


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


FIELDS: dict[str, Callable[[random.Random, str], dict[str, Any]]] = {
    "n": lambda rng, route: {"n": size(rng, 128)} if route != RESPONSES else {},
    "scores": scores,
    "shape": shape,
    "tools": tools,
    "stop": lambda rng, route: {"stop": [text(rng)[:500] for _ in range(4)]} if route != RESPONSES else {},
    "bias": lambda rng, route: {"logit_bias": {str(i): 1 for i in range(size(rng, 1024))}},
    "long": lambda rng, route: {"ignore_eos": True, "min_tokens": size(rng, 400)},
    "stream": lambda rng, route: {"stream": True},
    "beams": lambda rng, route: (
        {"use_beam_search": True, "best_of": size(rng, 32), "temperature": 0} if route == COMPLETIONS else {}
    ),
}


def line(seen: Seen) -> str:
    return (
        f"{seen.status:3} {seen.cpu_s:7.2f} s cpu ({seen.front_s:6.2f} front) {seen.seconds:6.2f} s "
        f"probe {seen.probe_s:5.2f} s  +{seen.grown_mib:4.0f} MiB  {seen.num_bytes:8} B  {seen.about[:110]}"
    )


def report(seen: Sequence[Seen]) -> int:
    over = [(each, fault) for each in seen for fault in each.faults]
    print(f"\n{len(seen)} bodies; the slowest probe {max(each.probe_s for each in seen):.2f} s, the largest growth "
          f"{max(each.grown_mib for each in seen):.0f} MiB, median processor time "
          f"{statistics.median(each.cpu_s for each in seen):.2f} s; over the bounds: {len(over)}")  # fmt: skip
    for each, fault in over:
        print(f"OVER: {fault}: {each.about[:140]}")
    print("the dearest by processor time:")
    for each in sorted(seen, key=lambda each: -each.cpu_s)[:10]:
        print(line(each))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
