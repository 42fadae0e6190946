"""Moving a request's keys and values to another engine against computing them again there, in milliseconds.

    python benchmarks/replicas/moving.py [--model MODEL] [--lengths 128 512 1024 2048] [--repeats 5]

Two engines of one model in this process, each with all threads; one computes at a time. `out` and `in`: the steps that
move blocks to the host and back, the second with a token of its own; `copy` and `fetch`: between host memory and a
piece in shared memory, with its checksum; `tcp`: fetched over a socket of the loopback interface instead, `curve`: the
same with a cluster key, as between machines, where `far` is the whole move. Medians.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from chairlift.build import find_model, load, make_engine, rules_of
from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.events import Exported
from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request
from chairlift.live.moving.fetch import Fetcher
from chairlift.live.moving.shelf import Shelf
from chairlift.live.moving.sockets import PieceClient, PieceServer
from chairlift.live.moving.ticket import Ticket
from chairlift.live.wire.curve import Curve

_PARTS = ("out", "copy", "fetch", "tcp", "curve", "in")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 1024, 2048])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    model = find_model(Settings(model=given.model, replicas=2, kv_memory=512 << 20, prefix_cache=False))
    loaded = [load(model) for _ in range(2)]
    engines = [make_engine(each.runner, each.limits, rules_of(model.settings, each)) for each in loaded]
    memories = [each.host_memory for each in loaded]
    assert memories[0] is not None
    print("tokens      MB  recompute     move      far  " + "".join(f"{part:>7}" for part in _PARTS))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder, key = Path(name), Curve("00" * 32)
        servers = [PieceServer(folder, "tcp://127.0.0.1:*", curve) for curve in (None, key)]
        ways = [(Fetcher(folder), None)]
        ways += [(Fetcher(None, PieceClient(c)), each.address) for c, each in zip((None, key), servers, strict=True)]
        for length in given.lengths:
            runs = [_measure(engines, memories, folder, ways, length, i) for i in range(given.repeats)]
            recompute, num_bytes, *parts = (statistics.median(column) for column in zip(*runs, strict=True))
            out, copy, fetched, _, curve, back = parts = [1000 * part for part in parts]
            move, far = out + copy + fetched + back, out + copy + curve + back
            shown = "".join(f"{part:7.1f}" for part in parts)
            print(f"{length:6} {num_bytes / 1e6:7.1f} {1000 * recompute:10.1f} {move:8.1f} {far:8.1f}  {shown}")


def _measure(engines, memories, folder, ways, length, run):  # type: ignore[no-untyped-def]
    """Seconds to compute the prompt, bytes, and seconds of each part of a move."""
    source, target = engines
    params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
    prompt = tuple((7 * i + run) % 30_000 + 5 for i in range(length))
    request = Request(id=RequestId(1_000_000 + run), prompt=prompt, params=params, max_output=8, seed=0)
    source.add((request,))
    recompute_s = _seconds(lambda: _until_output(source, request.id))
    source.leave(request.id)
    events, out_s = _timed(source.step)
    (event,) = [event for event in events if isinstance(event, Exported)]
    num_bytes = len(event.blocks) * memories[0].block_bytes
    shelf = Shelf(folder, 4 * num_bytes)
    put = partial(shelf.put, num_bytes, partial(memories[0].read, event.blocks))
    piece, copy_s = _timed(put)
    tokens = source.scheduler.live[request.id].tokens
    source.abort(request.id)
    moved = replace(request, output=tuple(tokens[length:]), num_moved=event.num_tokens)
    target.add((moved,))
    take = partial(memories[1].write, target.scheduler.incoming(request.id))
    fetches_s = []
    for fetcher, address in ways:
        ticket = Ticket(piece.path.name, "", 1, b"", num_bytes, piece.checksum, address)
        fetches_s.append(_seconds(partial(fetcher.fetch, ticket, time.monotonic() + 60, take)))
        piece = put()  # the blocks are still there: nothing has run since
    target.arrive(request.id, is_whole=True)
    in_s = _seconds(target.step)
    target.abort(request.id)
    return recompute_s, num_bytes, out_s, copy_s, *fetches_s, in_s


def _until_output(engine: Engine, request: RequestId) -> None:
    while engine.scheduler.live[request].num_output == 0:
        engine.step()


def _timed(call):  # type: ignore[no-untyped-def]
    began = time.monotonic()
    result = call()
    return result, time.monotonic() - began


def _seconds(call) -> float:  # type: ignore[no-untyped-def]
    return float(_timed(call)[1])


if __name__ == "__main__":
    main()
