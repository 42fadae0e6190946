"""One simulated run and its trace."""

import random
from dataclasses import replace
from pathlib import Path

from chairlift.config.settings import Settings
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.replay import replay
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.item import Item
from chairlift.telemetry.trace import Trace, summarize


def test_a_trace_with_time_outside_the_steps_sums_up_to_its_run(tmp_path: Path) -> None:
    profile = replace(load_profile("h200-llama2-7b"), arrival_s=0.05, arrival_token_s=1e-4)
    rng = random.Random(1)
    items = [Item(prompt_tokens=rng.randint(5, 900), output_tokens=9, arrival_s=0.0) for _ in range(60)]
    for arrivals in ("none", "poisson:rate=40", "closed:concurrency=9"):
        path = tmp_path / "trace.jsonl"
        report = run(Settings(), profile, items, parse_arrivals(arrivals), trace=path)
        assert report.ttft_s.p50 > 0.05 or arrivals.startswith("closed")
        assert summarize(Trace(path)) == report
        assert replay(Trace(path)).difference is None


def test_replicas_of_one_server_share_its_front_ends() -> None:
    profile = replace(load_profile("h200-llama2-7b"), arrival_token_s=0.001, frontends=1)
    items = [Item(prompt_tokens=100, output_tokens=2, arrival_s=0.0) for _ in range(8)]
    report = run(Settings(replicas=4), profile, items, parse_arrivals("none"))
    assert 0.8 < report.ttft_s.max < 1.0, "one prompt after the other"
    assert run(Settings(replicas=4), replace(profile, frontends=4), items, parse_arrivals("none")).ttft_s.max < 0.7
