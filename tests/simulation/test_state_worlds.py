"""Layers whose memory does not grow go on from the right state, whatever happens to a request: random small worlds on
the ledger runner, whose states depend on every token before them. Ten planted mistakes are each noticed."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from chairlift.core.events import Preempted
from chairlift.core.ids import BlockId, Content
from chairlift.core.memory.fixed import FixedTables
from chairlift.core.memory.held import Held
from chairlift.core.memory.pages import Fixed
from chairlift.core.memory.pool import Prefix
from chairlift.core.memory.window import WindowTables
from chairlift.core.plan import BlockCopy
from chairlift.core.request import Progress
from fakes.worlds.draws import full_world, mixed_world, moved_world


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(6))
def test_every_request_of_a_random_world_gets_the_tokens_it_would_get_alone(block: int) -> None:
    happened: Counter[Any] = Counter()
    for seed in range(100 * block, 100 * block + 100):
        world = mixed_world(seed).run()
        happened += world.happened
        happened["checkpoints"] += sum(len(plan.checkpoints) for plan in world.runner.plans)
    assert happened["hit"] > 50 and happened["swap"] > 5 and happened[Preempted] > 50 and happened["checkpoints"] > 500


@pytest.mark.nightly
def test_so_it_does_where_steps_do_not_fit_and_where_requests_move() -> None:
    num_moved = 0
    for seed in range(150):
        mixed_world(seed, full_world).run()
        num_moved += mixed_world(seed, moved_world, share=0.1 + 0.5 * (seed % 2)).run().counts["moved"]
    assert num_moved > 100


@pytest.mark.nightly
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.nightly) for block in range(1, 6))])
def test_thousands_more_worlds(block: int) -> None:
    for seed in range(60_000 + 600 * block, 60_600 + 600 * block):
        mixed_world(seed).run()


def _stale_checkpoint(patch: pytest.MonkeyPatch) -> None:
    def publish(self: FixedTables, progress: Progress, block: int) -> None:
        pages = self.of(progress).written.pop(block * self._size, None)  # of one tile before
        if pages is not None:
            self.pool.keep(self.place, progress.content, pages)
            self.pool.release(pages)

    patch.setattr(FixedTables, "publish", publish)


def _shared_half_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FixedTables, "_is_shared", lambda self, progress: False)


def _hit_beyond_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    usable = Fixed.num_usable

    def beyond(self: Fixed, contents: Sequence[Content], has: Callable[[Content], bool]) -> int:
        return len(contents) if usable(self, contents, has) else 0

    patch.setattr(Fixed, "num_usable", beyond)


def _forgotten_release(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FixedTables, "release", lambda self, progress: self.pool.release(self.of(progress).pages))


def _state_not_restored(patch: pytest.MonkeyPatch) -> None:
    restore = FixedTables.restore

    def other(self: FixedTables, progress: Progress, num_all: int) -> tuple[Held, list[BlockId]]:
        held, pages = restore(self, progress, num_all)
        return held, self._live(held.pages, progress.num_saved + self._size)[: len(pages)]

    patch.setattr(FixedTables, "restore", other)


def _draft_beyond_two_tiles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fixed, "max_drafts", 1 << 30)


def _window_released_too_early(patch: pytest.MonkeyPatch) -> None:
    let_go = WindowTables.let_go
    patch.setattr(WindowTables, "let_go", lambda self, progress, start: let_go(self, progress, start + 1))


def _moved_without_its_state(patch: pytest.MonkeyPatch) -> None:
    def used(self: FixedTables, progress: Progress) -> list[BlockId]:
        live = self._live(self.of(progress).pages, progress.num_computed)
        return [self.of(progress).pages[0]] * len(live)

    patch.setattr(FixedTables, "used", used)


def _fork_without_copy(patch: pytest.MonkeyPatch) -> None:
    copy_tail = FixedTables.copy_tail

    def careless(self: FixedTables, progress: Progress) -> list[BlockCopy]:
        return [BlockCopy(each.target, each.target) for each in copy_tail(self, progress)]

    patch.setattr(FixedTables, "copy_tail", careless)


def _wrong_half(patch: pytest.MonkeyPatch) -> None:
    begin = FixedTables.begin

    def other(self: FixedTables, progress: Progress, found: Prefix, num_all: int) -> tuple[Held, list[BlockCopy]]:
        held, copies = begin(self, progress, found, num_all)
        _, state = self._fixed.half(held.pages, len(found.blocks) + 1)
        return held, [BlockCopy(each.source, page) for each, page in zip(copies, state, strict=False)]

    patch.setattr(FixedTables, "begin", other)


@pytest.mark.parametrize(
    "mistake",
    [
        _stale_checkpoint, _shared_half_written, _hit_beyond_a_checkpoint, _forgotten_release, _state_not_restored,
        _draft_beyond_two_tiles, _window_released_too_early, _moved_without_its_state, _fork_without_copy, _wrong_half,
    ],
)  # fmt: skip
def test_a_planted_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        _run_all(2000)


def _run_all(count: int) -> None:
    for seed in range(count):
        mixed_world(seed).run()
