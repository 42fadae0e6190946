import csv
import io
import json
from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.lab.bench.diff import diff
from chairlift.lab.bench.page import to_html
from chairlift.lab.bench.record import Ending
from chairlift.lab.bench.result import COLUMNS, BenchResult, summarize
from chairlift.lab.bench.run import Measurements
from chairlift.telemetry.report import Slo
from fakes.bench_records import record


def result(scale: float = 1.0, stopped: str = "", **about: object) -> BenchResult:
    records = [record(i, 0.1 * i, [0.1 * i + scale * (0.2 + 0.01 * j) for j in range(5)], tokens=5) for i in range(9)]
    records.append(record(9, 1.0, ending=Ending.FAILED, reason="HTTP 500: <oops>"))
    named = {"model": "m", "url": "u", "at": "now", "workload": "w", "arrivals": "none", "seed": "0"}
    return summarize(Measurements(12, 2, 1, records[::-1], [], 0.0, stopped), named | about, Slo(ttft=1.0))


def test_the_json_has_every_figure_and_every_request() -> None:
    found = json.loads(result().to_json())
    assert found["kind"] == "chairlift bench"
    assert found["partial"] is None
    assert (found["figures"]["full"], found["figures"]["failed"], found["figures"]["unsent"]) == (9, 1, 2)
    assert found["figures"]["ttft_s"]["p50"] == pytest.approx(0.2)
    assert [row["index"] for row in found["requests"]] == list(range(10))
    assert found["requests"][9]["ttft_s"] is None


def test_the_csv_has_a_row_for_each_request_in_order() -> None:
    rows = list(csv.DictReader(io.StringIO(result().to_csv())))
    assert tuple(rows[0]) == COLUMNS
    assert [int(row["index"]) for row in rows] == list(range(10))
    assert float(rows[3]["ttft_s"]) == pytest.approx(0.2)
    assert rows[9]["reason"] == "HTTP 500: <oops>"


def test_the_text_counts_and_says_why() -> None:
    lines = result().to_text().splitlines()
    assert lines[0].split(maxsplit=1)[1] == "12: 10 sent, 9 full, 0 short, 1 failed, 2 unsent"
    assert lines[1].strip() == "1 x HTTP 500: <oops>"
    assert "2 requests before, not counted; 1 of them failed" in lines[2]
    assert "PARTIAL" in result(stopped="it was interrupted").to_text()


def test_cached_tokens_are_counted_where_the_server_tells_of_them(tmp_path: Path) -> None:
    def told(*cached: int | None) -> BenchResult:
        records = [record(i, 0.0, [0.1, 0.2], tokens=2, cached=each) for i, each in enumerate(cached)]
        return summarize(Measurements(len(cached), 0, 0, records, [], 0.0, ""), {"workload": "w"})

    assert "30 prompt (12 cached), 6 output" in told(4, 8, 0).to_text()
    assert "20 prompt (0 cached)" in told(0, 0).to_text()
    assert "20 prompt, 4 output" in told(None, None).to_text()
    assert "20 prompt (4 cached)" in to_html(told(4, None), "t")
    assert [row["cached_tokens"] for row in csv.DictReader(io.StringIO(told(4, None).to_csv()))] == ["4", ""]
    (line,) = (line for line in diff(*files(tmp_path, told(2), told(4))).splitlines() if line.startswith("cached"))
    assert line.split() == ["cached_tokens", "2", "4", "+100.0%"]


def test_the_page_is_self_contained() -> None:
    page = to_html(result(stopped="it was interrupted"), "a <title>")
    assert page.count("<svg") == 8
    assert "a &lt;title&gt;" in page
    assert "<oops>" not in page
    assert "Partial: it was interrupted" in page
    assert "http://" not in page  # nothing is fetched


def test_the_page_of_an_empty_run_says_so() -> None:
    page = to_html(summarize(Measurements(3, 0, 0, [], [], 0.0, "gone"), {"model": "m"}), "t")
    assert page.count("nothing was measured") == 8
    assert "- / - ms" in page


def test_times_that_nothing_was_measured_of_are_dashes() -> None:
    of_one_token = record(0, 0.0, [0.1], tokens=1)
    text = summarize(Measurements(1, 0, 0, [of_one_token], [], 0.0, ""), {"workload": "w"}).to_text()
    (first, between) = (line.split() for line in text.splitlines() if line.startswith(("ttft", "tpot")))
    assert first == ["ttft", *["100.00"] * 5]
    assert between == ["tpot", *["-"] * 5]


def files(tmp_path: Path, *results: BenchResult) -> list[Path]:
    paths = [tmp_path / f"{name}.json" for name in "ab"]
    for path, made in zip(paths, results, strict=True):
        path.write_text(made.to_json())
    return paths


def test_two_results_are_printed_side_by_side(tmp_path: Path) -> None:
    text = diff(*files(tmp_path, result(), result(2.0)))
    row = next(line.split() for line in text.splitlines() if line.startswith("ttft p50"))
    assert row[-3:] == ["200.00", "400.00", "+100.0%"]
    assert next(line.split() for line in text.splitlines() if line.startswith("full")) == ["full", "9", "9", "="]
    assert "NOT THE SAME LOAD" not in text


def test_another_load_or_a_partial_run_is_named(tmp_path: Path) -> None:
    text = diff(*files(tmp_path, result(), result(stopped="it was interrupted", seed="1", arrivals="trace")))
    assert "NOT THE SAME LOAD: arrivals, seed differ" in text
    assert "PARTIAL: it was interrupted" in text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("{", "not JSON"), ("[]", "not the bench.json"), ('{"kind": "chairlift bench", "figures": {}}', "version None")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(InvalidConfig, match=complaint):
        diff(path, path)
    with pytest.raises(InvalidConfig, match="cannot be read"):
        diff(tmp_path / "none.json", path)


@pytest.mark.parametrize("missing", ["about", "figures.ttft_s", "figures.e2e_s.p99"])
def test_a_result_with_a_part_missing_is_refused(tmp_path: Path, missing: str) -> None:
    whole = json.loads(result().to_json())
    *outer, last = missing.split(".")
    part = whole
    for name in outer:
        part = part[name]
    del part[last]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(InvalidConfig, match="a part of it is missing"):
        diff(path, path)


def test_adapters_that_were_asked_for_are_named(tmp_path: Path) -> None:
    text = diff(*files(tmp_path, result(adapters=["sql", "chat"]), result(adapters=[*"abcdef"])))
    assert "m with sql, chat at u" in text
    assert "m with 6 adapters at u" in text
