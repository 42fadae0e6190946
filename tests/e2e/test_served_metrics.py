"""What a whole server tells of itself, through front ends that share a port and an engine that is killed."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.otlp import Receiver, Span, receiver
from fakes.patience import HANG_S, wait_until
from fakes.scrapes import Scrape
from fakes.served import Served, chairlift, serve

ASK: dict[str, Any] = {"prompt": "Hello", "max_tokens": 5, "ignore_eos": True}
SMALL = ("--kv-memory", "64MiB", "--max-running", "8", "--kernels", "torch", "--dtype", "float32")
CLUSTER = {"chairlift_members", "chairlift_joins_refused_total", "chairlift_connections_turned_away_total"}
ADAPTERS = {f"chairlift_adapter_{what}_total" for what in ("requests", "tokens", "requests_refused")}
DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"


@pytest.fixture(scope="module")
def spans() -> Iterator[Receiver]:
    with receiver() as got:
        yield got


@pytest.fixture(scope="module")
def served(spans: Receiver, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("server") / "log"
    told = ("--vllm-metric-names", "--otlp-endpoint", spans.url, "--log-requests", "--log-format", "json")
    with serve(log, "--model", tiny_model, *SMALL, "--frontends", "2", *told) as server:
        yield server


def scrape_of(server: Served) -> Scrape:
    """By a connection of its own, which either front end may take."""
    return Scrape(httpx.get(f"{server.url}/metrics", timeout=HANG_S).text)


def ask(server: Served, **more: Any) -> None:
    assert httpx.post(f"{server.url}/v1/completions", json={**ASK, **more}, timeout=HANG_S).status_code == 200


def all_shown(server: Served, num_requests: float) -> Scrape:
    """Once both front ends have shown what they counted."""

    def is_shown(scrape: Scrape) -> bool:
        return scrape.has("chairlift_requests_total") and scrape.value("chairlift_requests_total") >= num_requests

    wait_until(lambda: is_shown(scrape_of(server)))
    return scrape_of(server)


@pytest.mark.nightly
def test_either_front_end_answers_for_the_whole_server(served: Served) -> None:
    before = scrape_of(served)
    num_before = before.value("chairlift_requests_total") if before.has("chairlift_requests_total") else 0
    for _ in range(10):
        ask(served)
    all_shown(served, num_before + 10)
    for _ in range(8):
        scrape = scrape_of(served)
        assert scrape.value("chairlift_requests_total") == num_before + 10
        assert scrape.value("chairlift_generated_tokens_total") == before.value("chairlift_generated_tokens_total") + 50
        assert scrape.value("vllm:generation_tokens_total") == scrape.value("chairlift_generated_tokens_total")
        assert scrape.value("chairlift_step_seconds_count", part="run") > 0
    _, front_ends = served.pids()
    assert len(front_ends) == 2


@pytest.mark.nightly
def test_every_query_of_the_dashboard_names_a_series_that_is_there_or_comes_with_more(served: Served) -> None:
    ask(served)
    wait_until(lambda: scrape_of(served).has("chairlift_trace_spans_total"))  # sent and counted later
    scrape = all_shown(served, 1)
    names = {name for name, _ in scrape.samples}
    asked = set(re.findall(r"\b(?:chairlift|process)_[a-z_]+", DASHBOARD.read_text()))
    assert len(asked) > 20
    assert {name for name in asked if not name.startswith("chairlift_device_")} - CLUSTER - ADAPTERS <= names
    assert not (CLUSTER | ADAPTERS) & names
    assert not any(name.startswith("chairlift_device_") for name in names)
    assert scrape.value("chairlift_step_busy_seconds_total") > 0


@pytest.mark.slow
def test_counts_do_not_go_back_when_the_engine_is_killed(served: Served) -> None:
    ask(served)
    before = all_shown(served, 1)
    engine, _ = served.pids()
    os.kill(engine, signal.SIGKILL)
    deadline = time.monotonic() + HANG_S
    last, saw_no_gauge = before.counters(), False
    last_restarts = before.value("chairlift_engine_restarts_total")
    while True:
        scrape = scrape_of(served)
        now = scrape.counters()
        back = {key: (value, now.get(key)) for key, value in last.items() if now.get(key, -1.0) < value}
        assert not back
        last = now
        saw_no_gauge = saw_no_gauge or not scrape.has("chairlift_requests_running")
        restarts = scrape.value("chairlift_engine_restarts_total")
        if restarts == last_restarts + 1 and scrape.has("chairlift_requests_running"):
            break
        assert time.monotonic() < deadline, served.output
        time.sleep(0.05)
    assert saw_no_gauge, "what a dead engine last ran was shown as running"
    wait_until(lambda: httpx.get(f"{served.url}/health", timeout=HANG_S).status_code == 200)
    ask(served)
    after = scrape_of(served)
    assert after.value("chairlift_generated_tokens_total") >= before.value("chairlift_generated_tokens_total") + 5


@pytest.mark.slow
def test_what_a_front_end_had_open_when_it_died_is_counted_as_failed(served: Served) -> None:
    ask(served)
    before = all_shown(served, 1)
    body = {**ASK, "max_tokens": 90_000, "stream": True, "n": 2}  # one request, whatever it asks for
    with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=HANG_S) as response:
        lines = response.iter_lines()
        next(lines)
        for front_end in served.pids()[1]:
            os.kill(front_end, signal.SIGKILL)
    wait_until(lambda: num_restarts(served) == before.value("chairlift_front_end_restarts_total") + 2)
    scrape = scrape_of(served)
    assert scrape.value("chairlift_requests_total", outcome="failed", reason="front_end_died") == 1, served.output
    now = scrape.counters()
    assert all(now[key] >= value for key, value in before.counters().items())


def num_restarts(server: Served) -> float | None:
    """Of front ends; None while none answers."""
    with suppress(httpx.TransportError):
        return scrape_of(server).value("chairlift_front_end_restarts_total")
    return None


@pytest.mark.slow
def test_a_request_is_traced_and_logged_as_json_under_its_id(served: Served, spans: Receiver) -> None:
    response = httpx.post(f"{served.url}/v1/completions", json=ASK, headers={"X-Request-Id": "my-id"}, timeout=HANG_S)
    assert response.headers["x-request-id"] == "my-id"

    def own() -> list[Span]:
        return [span for span in spans.spans if span.attributes.get("chairlift.request_id") == "my-id"]

    wait_until(lambda: len(own()) >= 4)
    (request,) = [span for span in own() if not span.parent]
    parts = {span.name: span for span in own() if span.parent == request.id}
    assert set(parts) == {"queue", "prefill", "decode"}
    assert parts["queue"].end_ns <= parts["prefill"].end_ns <= parts["decode"].end_ns <= request.end_ns
    wait_until(lambda: '"my-id"' in served.output)
    lines = [json.loads(line) for line in served.output.splitlines()]
    (line,) = [line for line in lines if line["logger"] == "chairlift.requests" and line["id"] == "my-id"]
    assert (line["output_tokens"], line["reason"]) == (5, "length")


def test_an_endpoint_that_is_no_url_is_refused_before_anything_starts() -> None:
    done = chairlift("serve", "--otlp-endpoint", "localhost")
    assert done.returncode == 2
    assert "must be an http or https URL" in done.stderr
