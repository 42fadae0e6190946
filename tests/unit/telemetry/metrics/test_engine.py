import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.engine import Engine
from chairlift.core.events import Admitted, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Group
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import FinishReason, Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.clock import WallClock
from chairlift.telemetry.metrics.engine import EngineMetrics
from chairlift.telemetry.metrics.figures import HISTOGRAMS
from chairlift.telemetry.metrics.series import SERIES
from chairlift.telemetry.metrics.store import Store
from chairlift.telemetry.stopwatch import Stopwatch
from fakes.ledger import LedgerRunner
from fakes.requests import make_request, make_samples, make_search
from fakes.scrapes import Scrape, own_values

SMALL = {"vocab_size": 50, "max_model_len": 64, "block_size": 4, "num_blocks": 64, "max_running": 8}


@pytest.fixture(autouse=True)
def _own_values() -> Iterator[None]:
    with own_values():
        yield


def make_engine(folder: Path, preemption: Preemption | None = None, **limits: Any) -> Engine:
    sizes = Limits(**{**SMALL, "max_step_tokens": 32, **limits})
    scheduler = Scheduler(sizes, Fcfs(), preemption=preemption)
    host, clock = preemption.num_host_blocks if preemption else 0, WallClock()
    stopwatch = Stopwatch(
        LedgerRunner(
            sizes.num_blocks, sizes.block_size, sizes.vocab_size, num_host_blocks=host, kinds=sizes.pages.kinds
        ),
        clock,
    )
    observer = EngineMetrics(Store(folder, "engine"), scheduler, stopwatch)
    return Engine(scheduler, stopwatch, clock, observer)


def run(engine: Engine, *arrivals: tuple[Request, ...]) -> None:
    for samples in arrivals:
        engine.add(samples)
    while engine.has_work:
        engine.step()


def test_tokens_steps_and_times_are_counted(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    run(engine, (make_request(1, range(10), 5),), (make_request(2, range(20, 27), 3),))
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_prompt_tokens_total") == 17
    assert scrape.value("chairlift_generated_tokens_total") == 8
    assert scrape.value("chairlift_inter_token_seconds_count") == 8 - 2
    for name in ("queue", "prefill", "decode"):
        assert scrape.value(f"chairlift_{name}_seconds_count") == 2
    steps = scrape.value("chairlift_step_tokens_count")
    assert scrape.value("chairlift_step_tokens_sum") == 17 + 8 - 2
    for part in ("schedule", "prepare", "run", "commit"):
        assert scrape.value("chairlift_step_seconds_count", part=part) == steps == 5


def test_histograms_are_told_as_they_are_shown(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    run(engine, (make_request(1, range(10), 5),), (make_request(2, range(20, 27), 3),))
    assert isinstance(engine.observer, EngineMetrics)
    scrape = Scrape.of(tmp_path)
    for (name, *labels), told in zip(HISTOGRAMS, engine.observer.histograms(), strict=True):
        part = dict(zip(SERIES[name].labels, labels, strict=True))
        assert sum(told.buckets) == scrape.value(f"{name}_count", **part) > 0
        assert told.total == pytest.approx(scrape.value(f"{name}_sum", **part))
    engine.add((make_request(3, range(5), 2),))
    engine.step()
    shown = scrape.value("chairlift_step_tokens_count")
    assert sum(engine.observer.histograms()[HISTOGRAMS.index(("chairlift_step_tokens",))].buckets) == shown + 1


def test_keys_and_values_that_came_and_did_not_are_counted(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, Preemption(num_host_blocks=8))
    for id, is_whole in ((1, True), (2, False), (3, False)):
        engine.add((replace(make_request(id, range(10), 5), output=(1, 2), num_moved=11),))
        engine.arrive(RequestId(id), is_whole)
        engine.abort(RequestId(id))
    engine.step()
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_kv_fetches_total", outcome="whole") == 1
    assert scrape.value("chairlift_kv_fetches_total", outcome="failed") == 2


def test_the_time_with_a_step_in_flight_goes_on_from_the_last_engine(tmp_path: Path) -> None:
    busy_s = []
    for id in (1, 2):
        engine = make_engine(tmp_path)
        run(engine, (make_request(id, range(10), 5),))
        assert isinstance(engine.runner, Stopwatch)
        busy_s.append(engine.runner.busy_s)
    assert min(busy_s) > 0
    assert Scrape.of(tmp_path).value("chairlift_step_busy_seconds_total") == pytest.approx(sum(busy_s))


def test_late_steps_are_counted(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    assert isinstance(engine.runner, Stopwatch)
    run(engine, (make_request(1, range(10), 5),))
    assert Scrape.of(tmp_path).value("chairlift_steps_late_total") == 0
    engine.runner.num_late = 3
    run(engine, (make_request(2, range(10), 5),))
    assert Scrape.of(tmp_path).value("chairlift_steps_late_total") == 3


def test_cached_prompt_tokens_and_the_state_of_blocks_are_told(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    run(engine, (make_request(1, range(9), 2),))
    run(engine, (make_request(2, range(9), 2),))
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_prompt_tokens_cached_total") == 8
    blocks = {state: scrape.value("chairlift_kv_blocks", state=state) for state in ("free", "cached", "held")}
    assert blocks == {"free": 62, "cached": 2, "held": 0}
    assert scrape.value("chairlift_kv_capacity_blocks") == 64
    assert scrape.value("chairlift_requests_running") == 0


def test_prompt_tokens_that_were_cached_for_some_layers_alone_are_counted(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, groups=(Group("fixed", 1, 1 << 20, 1),))
    run(engine, (make_request(1, range(25), 2),))
    run(engine, (make_request(2, [*range(13), 40, 41], 2),))
    run(engine, (make_request(3, [*range(13), 42, 43], 2),))
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_prompt_tokens_missed_total") == 12
    assert scrape.value("chairlift_prompt_tokens_cached_total") == 12


def test_running_and_waiting_are_shown_while_they_are(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, max_running=2)
    for i in range(5):
        engine.add((make_request(i + 1, range(8), 20),))
    engine.step()
    time.sleep(0.11)
    engine.step()
    scrape = Scrape.of(tmp_path)
    assert (scrape.value("chairlift_requests_running"), scrape.value("chairlift_requests_waiting")) == (2, 3)
    assert scrape.value("chairlift_kv_blocks", state="held") >= 4


@pytest.mark.parametrize("kind", ["recompute", "swap"])
def test_preemptions_are_counted_by_kind(tmp_path: Path, kind: str) -> None:
    engine = make_engine(tmp_path, Preemption(mode=kind, num_host_blocks=20), num_blocks=8)
    run(engine, *((make_request(i, range(i, i + 10), 12),) for i in (1, 2)))
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_preemptions_total", kind=kind) > 0
    assert scrape.value("chairlift_generated_tokens_total") == 24
    assert scrape.value("chairlift_prompt_tokens_total") == 20, "a prompt that is computed again counts once"


def test_samples_share_their_prompt_and_the_words_of_a_search_come_at_no_distance(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    run(engine, make_samples(1, range(10), 3, 4), make_search(9, range(30, 40), 2, 4))
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_prompt_tokens_total") == 20
    assert scrape.value("chairlift_inter_token_seconds_count") == 3 * 3


def test_a_request_that_goes_on_from_another_engine_is_not_counted_again(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    request = make_request(1, range(10), 5)
    made = Request(id=RequestId(1), prompt=request.prompt, params=request.params, max_output=5, seed=1, output=(3, 4))
    run(engine, (made,))
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_prompt_tokens_total") == 0
    assert scrape.value("chairlift_queue_seconds_count") == 0
    assert scrape.value("chairlift_generated_tokens_total") == 3


def test_a_request_that_two_engines_began_with_counts_once(tmp_path: Path) -> None:
    first = make_engine(tmp_path, max_step_tokens=8)
    first.add((make_request(1, range(20), 5),))
    first.step()
    time.sleep(0.11)
    first.step()  # and dies, with the prompt almost through
    run(make_engine(tmp_path), (make_request(1, range(20), 5),))
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_prompt_tokens_total") == 20
    for name in ("queue", "prefill", "decode"):
        assert scrape.value(f"chairlift_{name}_seconds_count") == 1


def test_samples_that_go_on_without_the_first_do_not_count_its_prompt_nor_its_wait(tmp_path: Path) -> None:
    run(make_engine(tmp_path), make_samples(1, range(10), 3, 4)[1:])
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_prompt_tokens_total") == 0
    assert scrape.value("chairlift_queue_seconds_count") == 0
    assert scrape.value("chairlift_generated_tokens_total") == 8


def test_times_between_tokens_are_those_of_the_events(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    observer = engine.observer
    one, two = RequestId(1), RequestId(2)
    for id in (1, 2):
        observer.added((make_request(id, range(5)),), 10.0)
    observer.happened([Admitted(one, 10.5, 0), Admitted(two, 12.0, 0)])
    observer.happened([Token(one, 13.0, 7, None, None), Token(two, 13.0, 7, None, None)])
    observer.happened([Token(one, 13.25, 7, None, None), Token(two, 13.25, 7, None, FinishReason.LENGTH)])
    observer.happened([Token(one, 15.25, 7, None, FinishReason.STOP)])
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_inter_token_seconds_sum") == pytest.approx(0.25 + 0.25 + 2.0)
    assert scrape.value("chairlift_inter_token_seconds_bucket", le="0.3") == 2
    assert scrape.value("chairlift_queue_seconds_sum") == pytest.approx(0.5 + 2.0)
    assert scrape.value("chairlift_prefill_seconds_sum") == pytest.approx(2.5 + 1.0)
    assert scrape.value("chairlift_decode_seconds_sum") == pytest.approx(2.25 + 0.25)
    assert scrape.value("chairlift_inference_seconds_sum") == pytest.approx(4.75 + 1.25)
