import json
from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.lab.sim.calibration.calibrate import Calibrator, calibrate, host_s, line, step_s
from chairlift.lab.sim.calibration.grid import Span, grid, plan_of
from chairlift.lab.sim.profile import load_profile
from fakes.ledger import LedgerRunner
from fakes.tiny_model import write_tiny_model

LIMITS = Limits(vocab_size=50, max_model_len=300, block_size=4, num_blocks=100, max_running=8, max_step_tokens=16)


def test_the_grid_stays_within_the_limits() -> None:
    steps = grid(LIMITS)
    assert len(steps) == len(set(steps)) > 15
    for plan in (plan_of(step, LIMITS) for step in steps):
        assert plan.num_tokens == sum(chunk.count for chunk in plan.chunks) <= LIMITS.max_step_tokens
        assert len(plan.chunks) <= LIMITS.max_running
        blocks = [block for chunk in plan.chunks for block in chunk.blocks]
        assert len(set(blocks)) == len(blocks)
        assert max(blocks) < LIMITS.num_blocks
    assert {plan_of(step, LIMITS).num_tokens for step in steps} >= {1, 2, 4, 8, 16}


def test_a_quick_grid_is_smaller_but_reaches_as_far() -> None:
    quick, whole = grid(LIMITS, is_quick=True), grid(LIMITS)
    assert len(quick) < len(whole)
    largest = [max(sum(span.count for span in step) for step in steps) for steps in (quick, whole)]
    assert largest == [16, 16]


def test_rows_just_beyond_a_tile_are_timed_too() -> None:
    steps = grid(replace(LIMITS, max_step_tokens=512, max_running=64, num_blocks=1000, max_model_len=2000))
    assert {sum(span.count for span in step) for step in steps} >= {128, 136, 256, 272, 512}
    assert max(sum(span.count for span in step) for step in steps) == 512


def test_many_decodes_have_uneven_contexts_with_the_same_mean() -> None:
    steps = grid(replace(LIMITS, max_step_tokens=64, max_running=64, num_blocks=5000, max_model_len=4000))
    of_many = [step for step in steps if len(step) == 64]
    assert sorted(sum(span.start + 1 for span in step) // 64 for step in of_many) == [48, 128, 256]
    assert all(max(span.start for span in step) > 3 * sum(span.start for span in step) / 64 for step in of_many)


def test_decodes_come_first_in_a_plan() -> None:
    plan = plan_of((Span(7), Span(3), Span(0, 5), Span(4, 2, has_sample=False)), LIMITS)
    assert plan.num_decodes == 2
    assert [len(chunk.samples) for chunk in plan.chunks] == [1, 1, 1, 0]


def test_any_runner_can_be_calibrated() -> None:
    runner = SleepyLedger(LIMITS.num_blocks, LIMITS.block_size, LIMITS.vocab_size, num_host_blocks=20)
    seen: list[tuple[int, int]] = []
    found = calibrate(runner, LIMITS, 20, is_quick=True, watch=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == len(runner.plans)
    assert len(found.measured) == len(grid(LIMITS, is_quick=True))
    assert found.fit.cost.linear[-1][0] == 16
    assert found.fit.cost.linear_s(16) > 0
    moved = [plan for plan in runner.plans if plan.swap_outs]
    assert moved
    assert all(plan.swap_ins for plan in moved)


def test_only_the_first_round_of_all_warms_up() -> None:
    runner = SleepyLedger(LIMITS.num_blocks, LIMITS.block_size, LIMITS.vocab_size, num_host_blocks=0)
    calibrator, count = Calibrator(runner, LIMITS, 0, is_quick=True), len(grid(LIMITS, is_quick=True))
    calibrator.time(1)
    assert len(runner.plans) == 2 * count
    calibrator.time(2)
    assert len(runner.plans) == 4 * count


def test_shapes_are_timed_up_and_down_by_size() -> None:
    runner = SleepyLedger(LIMITS.num_blocks, LIMITS.block_size, LIMITS.vocab_size, num_host_blocks=0)
    Calibrator(runner, LIMITS, 0, is_quick=True).time(1)
    rows = [plan.num_tokens for plan in runner.plans]
    half = len(rows) // 2
    assert rows[:half] == sorted(rows[:half], reverse=True)
    assert rows[half:] == sorted(rows[half:])


class Device:
    """Takes `depth` plans: 2 s of the host for each, 6 s of its own, and 100 s more for the first one it sees."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.now, self._busy_until = 0.0, 0.0
        self._ready: list[float] = []
        self._has_seen = False

    def submit(self, plan: StepPlan) -> None:
        assert len(self._ready) < self.depth
        self.now += 2.0
        self._busy_until = max(self._busy_until, self.now) + 6.0 + 100.0 * (not self._has_seen)
        self._has_seen = True
        self._ready.append(self._busy_until)

    def collect(self) -> StepResult:
        self.now = max(self.now, self._ready.pop(0))
        return StepResult(0, [])


def test_a_step_takes_as_long_as_it_does_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of((Span(7),), LIMITS)
    for depth, first_s, later_s in ((1, 108.0, 8.0), (2, 6.0, 6.0), (3, 6.0, 6.0)):
        device = Device(depth)
        monkeypatch.setattr("time.perf_counter", lambda device=device: device.now)
        assert [step_s(device, plan), step_s(device, plan)] == [first_s, later_s]
        assert not device._ready


def test_what_an_idle_device_waits_for_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(2)
    monkeypatch.setattr("time.perf_counter", lambda: device.now)
    calibrator = Calibrator(device, LIMITS, 0, is_quick=True)
    calibrator.time(1)
    cost = calibrator.result().fit.cost
    assert (cost.start_s, cost.start_row_s) == (pytest.approx(2.0), pytest.approx(0.0))


def test_a_line_goes_through_most_points_and_never_falls() -> None:
    points = [(rows, 0.5 + 0.001 * rows) for rows in (1, 8, 64, 512, 1024, 2048, 4096)]
    assert line([*points, (4096, 40.0)]) == (pytest.approx(0.5), pytest.approx(0.001))
    assert line([(1, 3.0), (100, 2.0), (1000, 1.0)]) == (pytest.approx(2.0), 0.0)
    assert line([(7, 3.0)]) == (3.0, 0.0)
    assert line([]) == (0.0, 0.0)


def test_the_rows_that_a_runner_pads_to_are_part_of_the_profile() -> None:
    runner = SleepyLedger(LIMITS.num_blocks, LIMITS.block_size, LIMITS.vocab_size, num_host_blocks=0)
    assert calibrate(runner, LIMITS, 0, is_quick=True).fit.cost.rungs == ()
    runner.rungs = [4, 16]
    cost = calibrate(runner, LIMITS, 0, is_quick=True).fit.cost
    assert cost.rungs == (4, 16)
    assert cost.linear_s(5) == cost.linear_s(16)


class SleepyLedger(LedgerRunner):
    """Blocks that hold nothing yet may be read: a calibration computes the middles of texts without beginnings."""

    def __init__(self, num_blocks: int, block_size: int, vocab_size: int, num_host_blocks: int) -> None:
        super().__init__(num_blocks, block_size, vocab_size, 1, num_host_blocks)
        self.memory = [[0] * block_size for _ in range(num_blocks)]


def test_the_engines_own_work_is_small_but_counted() -> None:
    assert 0 < host_s(LIMITS) < 1e-3
    assert 0 < host_s(replace(LIMITS, num_blocks=2, max_model_len=8)) < 1e-2


@pytest.mark.slow
def test_a_profile_of_a_real_model_is_written_and_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIRLIFT_MAX_RUNNING", "16")
    monkeypatch.setenv("CHAIRLIFT_MAX_STEP_TOKENS", "64")
    monkeypatch.setenv("CHAIRLIFT_MAX_MODEL_LEN", "2048")
    model, out = write_tiny_model(tmp_path / "tiny"), tmp_path / "tiny-here.json"
    assert main(["calibrate", "--model", str(model), "--out", str(out), "--quick", "--no-serve"]) == 0
    assert f"wrote {out}" in capsys.readouterr().out
    profile = load_profile(str(out))
    assert (profile.name, profile.model, profile.max_running, profile.max_step_tokens) == ("tiny-here", "tiny", 16, 64)
    assert profile.cost.swap_token_s >= 0.0
    assert len(profile.measured) > 10
    workload = "lengths:prompt=10-90,output=5-20,count=40"
    assert main(["simulate", "--workload", workload, "--profile", str(out), "--model", "tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finished"] == 40


def test_a_place_that_does_not_exist_is_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "--model", "/no/such/model", "--out", str(tmp_path / "a" / "b.json")]) == 2
    assert "b.json: cannot be written: no such folder" in capsys.readouterr().err
