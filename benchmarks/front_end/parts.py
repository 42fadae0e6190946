"""Times the single operations between a sampled token and the bytes of its chunk; the smallest of many rounds counts.

    python benchmarks/front_end/parts.py

json     the text of a token alone, filled into a prepared chunk, and whole chunks
text     the tokens of a real text, one by one, into text
engine   the engine's side of a step: its events sorted by front end, the messages encoded and decoded; and the cost of
         a request
outlive  the cost of requests that outlive the engine: delivering a token that is kept, noting the requests of a step
"""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from servers import as_struct, filled_in, with_orjson
from tokenizers.decoders import DecodeStream

from chairlift.build import find_model
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.events import Admitted, Event, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import Chunk, StepPlan, StepResult
from chairlift.core.request import Request
from chairlift.core.score import TokenScore
from chairlift.live.recovery.step_note import NotedRunner, StepNote
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.generation import Generation
from chairlift.live.wire.messages import FromEngine, Output, Step, Submit, ToEngine
from chairlift.live.wire.recipients import Recipients
from chairlift.live.wire.switchboard import Switchboard
from chairlift.text.find import load_tokenizer
from chairlift.text.stream import TextStream
from chairlift.text.tokenizer import Tokenizer

_TEXT = Path(__file__).parents[2] / "docs" / "architecture.md"
_ROUNDS = 30


def smallest(work: Callable[[], object], count: int) -> float:
    """Microseconds for one of `count`."""
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best / count * 1e6


def show(name: str, us: float) -> None:
    print(f"  {name:58} {us:8.2f}", flush=True)


def time_json(texts: Sequence[str]) -> None:
    print("json, us a token")
    encode = msgspec.json.Encoder().encode
    ways: dict[str, Callable[[str], object]] = {
        "text alone: msgspec": encode,
        "text alone: json, as UTF-8": lambda text: json.dumps(text, ensure_ascii=False).encode(),
        "chunk: text by msgspec into what was made before": filled_in,
        "chunk: msgspec struct": as_struct,
    }
    try:
        ways["chunk: orjson dict"] = with_orjson()
        import orjson  # type: ignore[import-not-found]

        ways["text alone: orjson"] = orjson.dumps
    except ImportError:
        pass
    for name, way in sorted(ways.items(), reverse=True):
        show(name, smallest(lambda way=way: [way(text) for text in texts], len(texts)))  # type: ignore[misc]


def time_text(tokenizer: Tokenizer, ids: Sequence[int]) -> None:
    print("text, us a token")
    core = tokenizer._core

    def stream(params: SamplingParams) -> None:
        push = TextStream(tokenizer, [1], params).push
        for token in ids:
            push(token)

    def native() -> None:
        stream = DecodeStream(skip_special_tokens=True)
        for token in ids:
            stream.step(core, token)

    show("TextStream.push", smallest(lambda: stream(SamplingParams()), len(ids)))
    show("TextStream.push, one stop string", smallest(lambda: stream(SamplingParams(stop=("###",))), len(ids)))
    show("tokenizers' DecodeStream.step", smallest(native, len(ids)))
    show("tokenizers' decode of each token alone", smallest(lambda: [core.decode([i]) for i in ids], len(ids)))
    some = range(1, 200)
    show("tokenizers' decode of all so far (200 tokens)", smallest(lambda: [core.decode(ids[:n]) for n in some], 199))


class Events:
    """The parts of an engine that `Switchboard` uses; every step gives the same events."""

    def __init__(self) -> None:
        self.requests: list[RequestId] = []
        self.events: list[Event] = []

    def add(self, samples: Sequence[Any]) -> None:
        self.requests += [request.id for request in samples]

    def step(self) -> list[Event]:
        return self.events


def time_engine(running: int, num_front_ends: int, has_scores: bool) -> None:
    limits = Limits(
        vocab_size=50_000, max_model_len=8192, block_size=16, num_blocks=10**6, max_running=running,
        max_step_tokens=running,
    )  # fmt: skip
    engine = Events()
    switchboard = Switchboard(cast(Engine, engine), limits, [2], Recipients({}))
    for key in range(running):
        switchboard.submit(b"front-end-%d" % (key % num_front_ends), Submit(key, [1, 2, 3], SamplingParams(), 8189))
    engine.events = [Admitted(request, 0.0, 0) for request in engine.requests]
    switchboard.step()
    score = TokenScore(1234, 17.25, -0.5, 1, ()) if has_scores else None
    engine.events = [Token(request, 0.0, 1234, score, None) for request in engine.requests]
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(FromEngine).decode

    def messages(news: dict[bytes, list[Output]]) -> list[bytes]:
        return [encode(Step(outputs, running, 0)) for outputs in news.values()]

    news = switchboard.step()
    sent = messages(news)
    sort = smallest(switchboard.step, running)
    pack, unpack = (
        smallest(lambda: messages(news), running),
        smallest(lambda: [decode(message) for message in sent], running),
    )
    size = sum(map(len, sent)) / running
    scores = " with scores" if has_scores else ""
    print(
        f"  {running:5} running, {num_front_ends} front ends{scores:12}: sort {sort:.2f}, encode {pack:.2f}, "
        f"decode {unpack:.2f} us and {size:.0f} bytes a token; {(sort + pack) * running / 1e3:.2f} ms a step",
        flush=True,
    )


def time_submit() -> None:
    limits = Limits(
        vocab_size=50_000, max_model_len=8192, block_size=16, num_blocks=10**6, max_running=256, max_step_tokens=512
    )
    message = Submit(1, list(range(20)), SamplingParams(max_tokens=66), 66)
    data = msgspec.msgpack.encode(message)
    decode = msgspec.msgpack.Decoder(ToEngine).decode
    switchboard = Switchboard(cast(Engine, Events()), limits, [2], Recipients({}))
    keys = iter(range(10**9))

    def submit() -> None:
        for _ in range(500):
            switchboard.submit(b"front-end-0", msgspec.structs.replace(message, key=next(keys)))

    show("a request: encode", smallest(lambda: [msgspec.msgpack.encode(message) for _ in range(500)], 500))
    show("a request: decode", smallest(lambda: [decode(data) for _ in range(500)], 500))
    show("a request: Switchboard.submit", smallest(submit, 500))


class Deaf:
    """Listens to a request and does nothing, so that only the client's own time is measured."""

    def put(self, output: Output) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Idle:
    """A runner that computes nothing."""

    depth = 2

    def submit(self, plan: StepPlan) -> None: ...

    def collect(self) -> StepResult:
        return StepResult(1, [1])


def time_outliving(running: int) -> None:
    generation = Generation(cast(EngineClient, None), Submit(1, [1], SamplingParams(), 98), Deaf())
    output = Output(1, 0, 1234)
    show("a token: Generation.put", smallest(lambda: [generation.put(output) for _ in range(1000)], 1000))
    switchboard = Switchboard(cast(Engine, Events()), Limits(
        vocab_size=9, max_model_len=99, block_size=16, num_blocks=10**6, max_running=running, max_step_tokens=running
    ), [2], Recipients({}))  # fmt: skip
    for key in range(2 * running):
        switchboard.submit(b"front-end-0", Submit(key, [1], SamplingParams(), 98))
    made = [
        Request(id=RequestId(i), prompt=(1,), params=SamplingParams(), max_output=9, seed=0)
        for i in range(1, 2 * running + 1)
    ]
    chunks = [Chunk(request, 0, 1, [1], 1, ([],), 0, (request,)) for request in made]
    one, two = (StepPlan(1, tuple(half), (), running, running) for half in (chunks[:running], chunks[running:]))
    with tempfile.TemporaryDirectory() as folder:
        note = StepNote(Path(folder) / "steps")
        runner = NotedRunner(Idle(), note, switchboard.recipients.keys_of)

        def step(*plans: StepPlan) -> None:
            for plan in plans:
                runner.submit(plan)
                runner.collect()

        show(f"a step of {running}: note the same again", smallest(lambda: step(*[one] * 20), 20))
        show(f"a step of {running}: note others", smallest(lambda: step(*[one, two] * 10), 20))
        show("a request: note it", smallest(lambda: [note.take_in(b"front-end-0", 10**6) for _ in range(100)], 100))
        waiting = {b"front-end-0": set(range(10**6, 10**6 + 4096))}
        show("a plan: note 4096 that wait", smallest(lambda: note.plan(waiting), 1))


def main() -> None:
    tokenizer = load_tokenizer(find_model(Settings()).source, None)
    ids = tokenizer.encode(_TEXT.read_text(), add_special=False)
    time_json([tokenizer.piece(token) for token in ids])
    time_text(tokenizer, ids)
    print("engine")
    for running in (256, 1024):
        for num_front_ends in (1, 2, 4):
            time_engine(running, num_front_ends, has_scores=False)
        time_engine(running, 1, has_scores=True)
    time_submit()
    print("outlive, us")
    time_outliving(512)


if __name__ == "__main__":
    main()
