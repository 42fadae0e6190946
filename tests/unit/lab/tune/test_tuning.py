import json
from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.config.options.resolve import resolve
from chairlift.config.settings import Settings
from chairlift.lab.report.page import to_markdown
from chairlift.lab.tune.evaluate import Evaluator, Work
from chairlift.lab.tune.files import write, yaml_of
from chairlift.lab.tune.report import TuneReport
from chairlift.lab.tune.search import Search
from chairlift.lab.tune.tuning import FINE, Tuning
from chairlift.lab.tune.verify import Verification, plan
from fakes.tuned import KNOBS, work


def tuned(on: Work, seconds: float = 60.0, least: int = 24) -> Tuning:
    tuning = Tuning(on, KNOBS, seconds, num_workers=1, least=least)
    tuning.run(lambda text: None)
    return tuning


@pytest.fixture(scope="module")
def batch() -> Tuning:
    return tuned(work())


def found(tuning: Tuning, **more: object) -> TuneReport:
    return TuneReport(tuning, "small.jsonl", "synthetic", "as given", **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_pick_beats_the_default_with_no_knob_too_many(batch: Tuning) -> None:
    assert batch.pick is not None
    assert batch.goal.is_throughput
    assert {effect.name for effect in batch.effects} == {"policy", "max_running", "max_step_tokens"}
    assert batch.gain > 0.2
    assert not batch.is_default_fine


def test_the_yaml_is_what_serve_takes(batch: Tuning, tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text(yaml_of(found(batch)))
    settings = resolve({}, path)
    assert batch.pick is not None
    assert settings == replace(Settings(), policy="longest-first", max_running=8, max_step_tokens=16)


def test_what_the_user_gave_is_in_the_yaml_too() -> None:
    given = replace(work(), settings=Settings(model="some/model", prefix_cache=False, max_model_len=200))
    text = yaml_of(found(tuned(given, seconds=0.0)))
    assert "model: some/model" in text
    assert "prefix_cache: false" in text


def test_a_default_that_was_given_over_a_preset_holds_in_the_yaml(tmp_path: Path) -> None:
    given = resolve({"preset": "llm-serving", "prefill": "mixed", "max_model_len": "200"})
    path = tmp_path / "tuned.yaml"
    path.write_text(yaml_of(found(tuned(replace(work(), settings=given), seconds=0.0))))
    settings = resolve({}, path)
    assert (settings.prefill, settings.requeue) == ("mixed", "lifo")


def test_where_nothing_is_better_the_defaults_are_fine() -> None:
    tuning = tuned(work(arrivals="poisson:rate=0.5"))  # hardly two requests ever share a step
    assert not tuning.goal.is_throughput
    assert tuning.is_default_fine
    assert "The defaults are fine" in found(tuning).verdict()
    assert [line for line in yaml_of(found(tuning)).splitlines() if not line.startswith("#")] == []


def test_a_search_that_the_time_cut_says_so_and_one_that_ended_does_not(batch: Tuning) -> None:
    cut = found(tuned(work(), seconds=0.0))
    note = "The time was over before the search was (settings tried: 1); --minutes gives it more."
    assert note in cut.notes()
    assert note in to_markdown(cut.title, cut.blocks(""))
    assert cut.to_json("")["cut_by_time"] is True
    assert not any("time was over" in each for each in found(batch).notes())
    assert found(batch).to_json("")["cut_by_time"] is False


@pytest.mark.nightly
def test_with_targets_the_pick_meets_them_and_its_capacity_is_known() -> None:
    tuning = tuned(work(arrivals="poisson:rate=9", slo="tpot_p99=12ms,ttft_p50=2s"))
    assert tuning.pick is not None and tuning.capacities is not None
    assert not tuning.is_raised  # the default misses them
    assert tuning.goal.meets(tuning.pick)
    before, after = tuning.capacities
    assert after > before
    assert "Capacity" in to_markdown("", list(found(tuning).blocks("")))


@pytest.mark.nightly
def test_where_the_default_meets_the_targets_the_highest_capacity_is_picked() -> None:
    tuning = tuned(work(arrivals="poisson:rate=0.5", slo="tpot_p99=12ms,ttft_p50=2s"))
    assert tuning.is_raised and tuning.capacities is not None and tuning.pick is not None
    before, after = tuning.capacities
    assert after > (1 + FINE) * before
    assert tuning.gain == pytest.approx(after / before - 1)
    at_given = Evaluator(work(arrivals="poisson:rate=0.5", slo="tpot_p99=12ms,ttft_p50=2s")).evaluate(
        tuning.pick.choice
    )
    assert at_given.point.latency <= 1.0
    assert f"capacity, {after:.3g} requests a second" in found(tuning).verdict()


def test_where_no_setting_has_more_capacity_the_defaults_are_fine() -> None:
    tuning = tuned(work(arrivals="poisson:rate=0.5", slo="tpot_p50=1s"))
    assert tuning.is_raised and tuning.capacities is not None and tuning.pick is not None
    assert tuning.capacities[1] >= tuning.capacities[0]
    assert tuning.is_default_fine == (tuning.gain < FINE)


def test_arrivals_are_never_made_slower() -> None:
    tuning = tuned(work(arrivals="poisson:rate=1000", slo="tpot_p50=1s"), seconds=0.0)
    assert not tuning.is_raised
    assert tuning.work.arrivals == "poisson:rate=1000"


@pytest.mark.nightly
def test_targets_that_nothing_meets_are_said_to_be_missed() -> None:
    tuning = tuned(work(slo="ttft_p99=40ms"))
    assert tuning.pick is not None
    assert not tuning.goal.meets(tuning.pick)
    assert "No setting that was tried meets ttft_p99=40ms: the nearest" in found(tuning).verdict()


def test_a_long_workload_is_searched_by_its_first_part_and_judged_as_a_whole() -> None:
    tuning = Tuning(work(150), KNOBS, 0.1, num_workers=1, least=400)
    tuning.run(lambda text: None)
    assert 100 <= tuning.num_searched < 150
    assert tuning.pick is not None and tuning.pick.report is not None
    assert tuning.pick.report.requests == 150
    assert all(evaluation.report.requests == 150 for evaluation in tuning.final if evaluation.report)


def test_an_interrupted_search_keeps_what_it_found(tmp_path: Path) -> None:
    tuning = Tuning(work(), KNOBS, 60.0, num_workers=1)

    def watch(search: Search) -> None:
        if search.num_done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuning.run(lambda text: None, watch)
    partial = found(tuning, is_partial=True)
    write(partial, tmp_path)
    result = json.loads((tmp_path / "tune.json").read_text())
    assert result["partial"] is True
    assert result["configurations"] >= 2
    assert result["verdict"].startswith("Interrupted")
    assert "(partial)" in (tmp_path / "tune.md").read_text()
    assert "Interrupted" in (tmp_path / "tuned.yaml").read_text()


def test_all_files_are_written(batch: Tuning, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    paths = write(found(batch, unverified="there is no such machine"), folder)
    assert [path.name for path in paths] == ["tuned.yaml", "tune.md", "tune.html", "tune.svg", "tune.json"]
    page, text = (folder / "tune.html").read_text(), (folder / "tune.md").read_text()
    assert page.count("<svg") == 2
    for name in ("the defaults", "the pick", "front: none is better at both", "max-running 8"):
        assert name in page and name in (folder / "tune.svg").read_text()
    assert "http" not in page  # it needs no other file
    assert "![" in text and "(tune.svg)" in text
    assert "Nothing was measured: there is no such machine." in text
    result = json.loads((folder / "tune.json").read_text())
    assert result["pick"]["changes"] == {"policy": "longest-first", "max_running": 8, "max_step_tokens": 16}
    assert result["effects"][0]["loss"] > 0
    assert len(result["all"]) == result["configurations"]


def test_the_verification_runs_what_there_is_time_for(batch: Tuning) -> None:
    candidates = batch.candidates
    assert candidates[0] == batch.default and candidates[1] == batch.pick
    assert candidates[2].choice["policy"] == "shortest-first"
    whole = plan(batch.work, batch.goal, candidates, 1e6)
    assert (len(whole.work.items), len(whole.each), whole.num_rounds) == (len(batch.work.items), 3, 2)
    longest = max(each.predicted.total_s for each in whole.each)
    part = plan(batch.work, batch.goal, candidates, 6 * (8.0 + longest))  # eight seconds of each go into loading
    assert 20 <= len(part.work.items) < len(batch.work.items)
    assert all(each.predicted.requests == len(part.work.items) for each in part.each)
    assert (len(part.each), part.num_rounds) == (3, 2)


def test_where_time_is_short_fewer_settings_and_rounds_are_run(batch: Tuning) -> None:
    extents = []
    for num_loads in (5.5, 2.5, 0.0):
        found = plan(batch.work, batch.goal, batch.candidates, 8.0 * num_loads)
        extents.append((len(found.each), found.num_rounds))
    assert extents == [(2, 2), (2, 1), (2, 1)]
    assert len(found.work.items) == 20


def test_gains_are_against_the_default_of_the_same_round(batch: Tuning) -> None:
    verification = plan(batch.work, batch.goal, batch.candidates, 1e6)
    _measure(verification, slowness=(1.0, 2.0))  # the machine is half as fast in the second round
    default, pick, _ = verification.each
    assert verification.measured_gain(pick) == pytest.approx(verification.predicted_gain(pick))
    assert verification.measured_gain(default) == 0.0
    assert verification.best(pick.choice) is pick
    text = to_markdown("", list(found(batch, verification=verification).blocks("")))
    assert f"{verification.predicted_gain(pick):+.1%} | {verification.predicted_gain(pick):+.1%}" in text


def test_a_pick_that_measures_worse_is_not_kept(batch: Tuning) -> None:
    verification = plan(batch.work, batch.goal, batch.candidates, 1e6)
    _measure(verification, slowness=(1.0, 1.0))
    default, pick, other = verification.each
    for verified in (pick, other):
        verified.measured[:] = [_slower(report, 3.0) for report in verified.measured]
    assert verification.best(pick.choice) is default


def _measure(verification: Verification, slowness: tuple[float, ...]) -> None:
    for verified in verification.each:
        verified.measured[:] = [_slower(verified.predicted, by) for by in slowness]


def _slower(report, by):  # type: ignore[no-untyped-def]
    return replace(report, total_s=by * report.total_s, output_tokens_per_s=report.output_tokens_per_s / by)
