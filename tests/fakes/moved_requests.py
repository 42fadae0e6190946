"""Requests that begin in one engine and go on in another with their keys and values, on real runners."""

from collections.abc import Sequence
from dataclasses import replace

from chairlift.core.engine import Engine
from chairlift.core.events import Exported, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.request import Request
from chairlift.core.scheduling.invariants import check
from chairlift.core.scheduling.preemption import Preemption
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.runner.hooks import MovesBlocks
from fakes.clocks import CountingClock

Tokens = dict[RequestId, list[int]]


def engine_of(runner: Runner, limits: Limits, num_host_blocks: int = 0) -> Engine:
    preemption = Preemption(num_host_blocks=num_host_blocks)
    return Engine(Scheduler(limits, Fcfs(), preemption=preemption), runner, CountingClock())


def run_apart(engine: Engine, requests: Sequence[Request]) -> Tokens:
    """Without a move."""
    for request in requests:
        engine.add((request,))
    tokens: Tokens = {}
    while engine.has_work:
        _note(engine, tokens)
    return tokens


def run_moved(source: Engine, target: Engine, requests: Sequence[Request], num_tokens: int) -> tuple[Tokens, int]:
    """Moves each after so many tokens; its tokens, and how many positions did not have to be computed again."""
    tokens: Tokens = {}
    for request in requests:
        source.add((request,))
    asked: set[RequestId] = set()
    num_moved = 0
    while source.has_work or target.has_work:
        for request in requests:
            if len(tokens.get(request.id, ())) >= num_tokens and request.id not in asked:
                asked.add(request.id)
                source.leave(request.id)
        for event in _note(source, tokens):
            if event.request in source.scheduler.live and event.blocks:
                num_moved += event.num_tokens
                _move(source, target, event)
        _note(target, tokens)
    return tokens, num_moved


def _note(engine: Engine, tokens: Tokens) -> list[Exported]:
    events = engine.step()
    check(engine.scheduler)
    for event in events:
        if isinstance(event, Token):
            tokens.setdefault(event.request, []).append(event.token)
    return [event for event in events if isinstance(event, Exported)]


def _move(source: Engine, target: Engine, event: Exported) -> None:
    assert isinstance(source.runner, MovesBlocks)
    assert isinstance(target.runner, MovesBlocks)
    mine, theirs = source.runner.host_memory, target.runner.host_memory
    assert mine is not None
    assert theirs is not None
    assert mine.layout == theirs.layout
    progress = source.scheduler.live[event.request]
    piece = memoryview(bytearray(len(event.blocks) * mine.block_bytes))
    mine.read(event.blocks, piece)
    output = tuple(progress.tokens[len(progress.request.prompt) :])
    source.abort(event.request)
    target.add((replace(progress.request, output=output, num_moved=event.num_tokens),))
    theirs.write(target.scheduler.incoming(event.request), piece)
    target.arrive(event.request, is_whole=True)
