"""When an engine tells its figures, on a clock that is set by hand; and what a front end makes of them."""

from typing import Any, cast

import pytest
from msgspec.structs import replace

from chairlift.live.wire.feeds import PERIOD_S, FiguresFeed
from chairlift.live.wire.link import Seen
from chairlift.live.wire.messages import FromEngine, Told
from chairlift.telemetry.metrics.figures import Counts, Figures


class World:
    def __init__(self) -> None:
        self.now, self.counted, self.sent = 100.0, Figures(born=1), list[tuple[bytes, Figures]]()
        self.feed = FiguresFeed(cast(Any, self), lambda: self.now, self._send)

    def figures(self) -> Figures:
        return self.counted

    def histograms(self) -> list[Counts]:
        return []

    def _send(self, front_end: bytes, message: FromEngine) -> None:
        assert isinstance(message, Told)
        self.sent.append((front_end, message.figures))

    def make(self, tokens: int) -> None:
        self.counted = replace(self.counted, generated_tokens=self.counted.generated_tokens + tokens)

    def show(self) -> list[tuple[bytes, Figures]]:
        self.sent.clear()
        self.feed.show([b"one", b"two"])
        return list(self.sent)


def test_changes_are_told_to_all_once_a_period() -> None:
    world = World()
    world.make(5)
    assert world.show() == [(b"one", world.counted), (b"two", world.counted)]
    world.make(5)
    world.now += PERIOD_S / 2
    assert world.show() == []
    world.now += PERIOD_S / 2
    assert len(world.show()) == 2
    world.now += PERIOD_S
    assert world.show() == []  # nothing has changed


def test_what_is_urgent_is_told_at_once() -> None:
    world = World()
    world.show()
    world.counted = replace(world.counted, drains=1)
    world.sent.clear()
    world.feed.show([b"one"], is_urgent=True)
    assert world.sent == [(b"one", world.counted)]


def test_an_engine_that_rests_wakes_for_what_it_has_not_told_and_for_nothing_else() -> None:
    world = World()
    assert world.feed.wait_ms == 0
    world.show()
    assert world.feed.wait_ms is None
    world.make(5)
    world.now += 0.25
    assert world.feed.wait_ms == pytest.approx(750, abs=1)
    world.now += 10.0
    assert world.feed.wait_ms == 0


def test_a_front_end_that_comes_is_told_at_once() -> None:
    world = World()
    world.show()
    world.sent.clear()
    world.feed.welcome(b"late")
    assert world.sent == [(b"late", world.counted)]


def test_tokens_a_second_are_those_of_the_last_figures_and_end_when_none_come() -> None:
    seen = Seen()
    seen.take(Figures(born=1, generated_tokens=100), now=10.0)
    seen.take(Figures(born=1, generated_tokens=150, prompt_tokens=40, cached_tokens=10), now=12.0)
    assert seen.shown(12.5)["tokens_per_s"] == 25.0
    assert seen.shown(12.5)["cached_share"] == 0.25
    assert seen.shown(20.0)["tokens_per_s"] == 0.0


def test_another_engine_begins_at_nothing() -> None:
    seen = Seen()
    seen.take(Figures(born=1, generated_tokens=100), now=10.0)
    seen.take(Figures(born=2, generated_tokens=900), now=11.0)
    assert seen.shown(11.0)["tokens_per_s"] == 0.0
