"""Layers with windows release what lies behind them, and no request loses a token by it: random small worlds on the
ledger runner, which notices every page that is not what a token should see."""

from collections.abc import Callable, Sequence

import pytest

from chairlift.core.events import Admitted, Preempted
from chairlift.core.ids import BlockId, Content
from chairlift.core.memory.beside import Beside
from chairlift.core.memory.pages import Window
from chairlift.core.memory.window import WindowTables
from chairlift.core.request import Progress
from fakes.worlds.draws import full_world, moved_world, random_world


def _run_all(count: int) -> None:
    for seed in range(count):
        random_world(seed, windows=True).run()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(6))
def test_every_request_of_a_random_world_gets_the_tokens_it_would_get_alone(block: int) -> None:
    worlds = [random_world(seed, windows=True).run() for seed in range(100 * block, 100 * block + 100)]
    events = [event for world in worlds for event in world.events]
    assert sum(isinstance(event, Admitted) and event.num_cached > 0 for event in events) > 50
    assert sum(isinstance(event, Preempted) and event.is_swapped for event in events) > 5
    assert sum(isinstance(event, Preempted) and not event.is_swapped for event in events) > 50


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(2))
def test_so_it_does_with_drafts(block: int) -> None:
    worlds = [random_world(seed, drafts=True, windows=True).run() for seed in range(100 * block, 100 * block + 100)]
    assert sum(world.runner.num_accepted for world in worlds) > 300


@pytest.mark.nightly
def test_so_it_does_where_steps_do_not_fit() -> None:
    for seed in range(120):
        for drafts in (False, True):
            full_world(seed, drafts=drafts, windows=True).run()


@pytest.mark.nightly
def test_so_it_does_when_it_moves_between_engines() -> None:
    num_moved = 0
    for seed in range(150):
        world = moved_world(seed, 0.1 + 0.5 * (seed % 2), windows=True).run()
        num_moved += world.counts["moved"]
    assert num_moved > 100


def test_a_page_released_a_token_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = WindowTables.let_go

    def eager(self: WindowTables, progress: Progress, start: int) -> None:
        let_go(self, progress, start + 1)

    monkeypatch.setattr(WindowTables, "let_go", eager)
    with pytest.raises(AssertionError, match="seed"):
        _run_all(100)


def test_a_prefix_with_a_gap_in_its_window_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Window, contents: Sequence[Content], has: Callable[[Content], bool]) -> int:
        return max((count for count, content in enumerate(contents, 1) if has(content)), default=0)

    def some(self: Beside, contents: Sequence[Content]) -> list[BlockId]:
        anywhere = next(iter(self._pages.values()), ())
        return [page for content in contents for page in self._pages.get(content, anywhere)]

    monkeypatch.setattr(Window, "num_usable", careless)
    monkeypatch.setattr(Beside, "of", some)
    with pytest.raises((AssertionError, KeyError)):
        _run_all(200)


@pytest.mark.nightly
@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.nightly) for block in range(1, 6))])
def test_thousands_more_worlds(block: int) -> None:
    for seed in range(50_000 + 600 * block, 50_600 + 600 * block):
        random_world(seed, drafts=seed % 2 == 0, windows=True).run()
