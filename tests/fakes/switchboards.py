"""A switchboard on the ledger runner, as the engine process and the offline interface hold one."""

from collections.abc import Callable
from typing import Any

from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Policy
from chairlift.core.ports import AdapterMemory, Drafter, HostMemory
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.adapters.reading import AdapterReading
from chairlift.live.moving.moves import Moves
from chairlift.live.wire.messages import EngineInfo
from chairlift.live.wire.recipients import Recipients
from chairlift.live.wire.switchboard import Switchboard
from fakes.clocks import CountingClock
from fakes.ledger import LedgerRunner

VOCAB_SIZE = 1000


def ledger_switchboard(
    kind: type[LedgerRunner] = LedgerRunner, eos_ids: tuple[int, ...] = (), policy: Policy | None = None,
    drafter: Drafter | None = None, num_host_blocks: int = 0, adapters: AdapterMemory | None = None,
    make_moves: Callable[[Engine, HostMemory], Moves] | None = None, **limits: Any,
) -> Switchboard:  # fmt: skip
    sizes = Limits(
        **{
            "vocab_size": VOCAB_SIZE,
            "max_model_len": 512,
            "block_size": 4,
            "num_blocks": 256,
            "max_running": 64,
            "max_step_tokens": 256,
        }
        | limits
    )
    runner = kind(sizes.num_blocks, sizes.block_size, sizes.vocab_size, num_host_blocks=num_host_blocks)
    preemption = Preemption(num_host_blocks=num_host_blocks)
    scheduler = Scheduler(sizes, policy or Fcfs(), preemption=preemption, drafter=drafter)
    engine = Engine(scheduler, runner, CountingClock())
    reading = None if adapters is None else AdapterReading(adapters, scheduler.adapters.__contains__)
    moves = None if make_moves is None else make_moves(engine, runner.host_memory)
    return Switchboard(engine, sizes, eos_ids, Recipients(scheduler.live), reading=reading, moves=moves)


def info_of(switchboard: Switchboard) -> EngineInfo:
    moves_kv = switchboard.moves is not None
    scheduler = switchboard.engine.scheduler
    return EngineInfo(scheduler.limits, "int", "ledger", moves_kv=moves_kv, counts_users=scheduler.counts_users)
