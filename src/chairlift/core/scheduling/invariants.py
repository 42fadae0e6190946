"""What always holds between steps, as a function that raises AssertionError; tests call it after every step."""

from chairlift.core.request import State
from chairlift.core.scheduling.scheduler import Scheduler


def check(scheduler: Scheduler) -> None:
    live, limits, size = scheduler.live, scheduler.limits, scheduler.pool.block_size
    scheduler.tables.check(list(live.values()))
    scheduler.check_slots()
    assert len(scheduler.running) <= limits.max_running, "more requests run than may"
    forks = [sibling.id for progress in live.values() for sibling in progress.siblings]
    queues = (scheduler.running, scheduler.waiting, scheduler.preempted, scheduler.arriving, scheduler.leaving, forks)
    listed = [request for queue in queues for request in queue]
    assert sorted(listed) == sorted(live), f"live requests {sorted(live)} but the queues hold {sorted(listed)}"
    for progress in live.values():
        name = f"request {progress.id}"
        prompt = progress.request.prompt
        assert progress.num_computed <= progress.num_known <= progress.limit, f"{name}: counts out of order"
        assert progress.num_pending >= 0, f"{name}: negative pending"
        assert progress.tokens[: len(prompt)] == list(prompt), f"{name}: prompt changed"
        if progress.state is State.RUNNING:
            assert not progress.host_blocks, f"{name}: runs and lies outside"
            assert progress.num_published * size <= progress.num_computed, f"{name}: published what is not computed"
            assert progress.num_computed <= len(progress.blocks) * size, f"{name}: computed past its blocks"
            num_drafts = limits.max_drafts if progress.awaits_result else 0
            num_needed = -(-(progress.num_known + num_drafts) // size)
            assert len(progress.blocks) <= num_needed, f"{name}: holds blocks it does not need"
            for kind in scheduler.tables.kinds:
                kind.check(progress, name)
        else:
            is_empty = not progress.blocks and not progress.held
            assert is_empty and progress.num_computed == 0, f"{name}: holds blocks while it does not run"
            num_saved = limits.pages.num_saved(progress.num_saved)
            assert len(progress.host_blocks) == num_saved, f"{name}: saved tokens do not fit"
