"""What always holds between steps, as a function that raises AssertionError; tests call it after every step."""

from chairlift.core.request import Progress, State
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.core.windows import Windows


def check(scheduler: Scheduler) -> None:
    live, limits, size = scheduler.live, scheduler.limits, scheduler.pool.block_size
    windows = limits.windows
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
            _check_window(progress, windows, name)
        else:
            is_empty = not progress.blocks and not progress.window_blocks
            assert is_empty and progress.num_computed == 0, f"{name}: holds blocks while it does not run"
            num_saved = windows.num_saved_pages(progress.num_saved)
            assert len(progress.host_blocks) == num_saved, f"{name}: saved tokens do not fit"


def _check_window(progress: Progress, windows: Windows, name: str) -> None:
    """The pages of layers with windows."""
    num_listed, rest = divmod(len(progress.window_blocks), windows.num_groups or 1)
    num_all = len(progress.blocks) * (windows.num_groups > 0)
    assert rest == 0 and num_listed <= num_all, f"{name}: other pages in windows than blocks"
    if windows.num_groups:
        num_computed, num_held = progress.num_computed, num_listed - progress.num_behind
        assert progress.num_behind <= windows.num_behind(num_computed), f"{name}: released what its next token sees"
        assert num_computed <= num_listed * windows.block_size, f"{name}: computed past the pages of windows"
        is_decoding = progress.num_known - num_computed <= 1
        assert not is_decoding or num_listed == num_all, f"{name}: decodes without pages of windows"
        # A prompt's pages go when the plan after its last is made; shared ones may come on top.
        most = windows.num_in_prompt + windows.num_seen + 1
        assert num_held <= most, f"{name}: holds pages behind its window"
