"""A replay hears again what users were served in other replicas."""

from pathlib import Path

from chairlift.config.scheduler import Rules
from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.policies.fair_share import FairShare
from chairlift.core.policy import Service
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.replay import replay
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.trace import Trace
from fakes.clocks import CountingClock
from fakes.ledger import LedgerRunner
from fakes.requests import make_request

LIMITS = Limits(vocab_size=50, max_model_len=64, block_size=4, num_blocks=64, max_running=1, max_step_tokens=32)


def test_the_order_of_users_is_the_recorded_one(tmp_path: Path) -> None:
    path, scheduler = tmp_path / "trace", Scheduler(LIMITS, FairShare())
    recorder = Recorder(path, scheduler, Rules(policy="fair-share"), "ledger", "virtual", 1)
    runner = LedgerRunner(LIMITS.num_blocks, LIMITS.block_size, LIMITS.vocab_size)
    engine = Engine(scheduler, runner, CountingClock(), recorder)
    for id in range(1, 9):
        engine.add((make_request(id, [id, 2], 3, user="ab"[id % 2]),))
    for step in range(40):
        engine.served_elsewhere([Service("a", 1.0, step % 7, 2 * (step % 3))])
        engine.step()
    recorder.close()
    assert replay(Trace(path)).difference is None
    lines = path.read_text().splitlines()
    assert any('"elsewhere"' in line for line in lines)
    deaf = tmp_path / "deaf"
    deaf.write_text("\n".join(line for line in lines if '"elsewhere"' not in line) + "\n")
    assert replay(Trace(deaf)).difference is not None
