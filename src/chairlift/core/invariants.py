"""What always holds between steps, as a function that raises AssertionError; tests call it after every step."""

from chairlift.core.request import State
from chairlift.core.scheduler import Scheduler


def check(scheduler: Scheduler) -> None:
    live, limits, size = scheduler.live, scheduler.limits, scheduler.pool.block_size
    scheduler.pool.check([progress.blocks for progress in live.values()])
    assert len(scheduler.running) <= limits.max_running, "more requests run than may"
    unborn = [sibling.id for progress in live.values() for sibling in progress.siblings]
    places = [
        *scheduler.running,
        *(p.id for p in scheduler.waiting),
        *(p.id for p in scheduler.preempted),
        *unborn,
    ]
    assert sorted(places) == sorted(live), f"live requests {sorted(live)} but places hold {sorted(places)}"
    for progress in live.values():
        name = f"request {progress.id}"
        assert progress.num_computed <= progress.num_known <= progress.limit, f"{name}: counts out of order"
        assert progress.num_pending >= 0, f"{name}: negative pending"
        assert progress.tokens[: len(progress.request.prompt)] == list(progress.request.prompt), (
            f"{name}: prompt changed"
        )
        assert progress.num_published * size <= progress.num_computed, f"{name}: published what is not computed"
        if progress.state is State.RUNNING:
            assert progress.num_computed <= len(progress.blocks) * size, f"{name}: computed past its blocks"
            # While anything is computed there is at most one block that is not needed for it or for what is known.
            assert len(progress.blocks) * size < progress.num_known + size, f"{name}: holds blocks it does not need"
        else:
            assert not progress.blocks and progress.num_computed == 0, f"{name}: holds blocks while it does not run"
