import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from chairlift.core.attributes import Attributes
from chairlift.lab.sim.comparison.compare import VariantReport, compare, to_csv, to_json, to_text
from chairlift.lab.sim.comparison.picture import axis_of, charts, figures, write
from chairlift.lab.sim.comparison.vary import parse_vary, variants
from chairlift.lab.sim.profile import DEFAULT, load_profile
from chairlift.lab.workload.item import Item
from chairlift.telemetry.report import Slo


def items() -> Iterator[Item]:
    """Mostly short answers, and a few long ones at the end, where first-come suffers."""
    for i in range(40):
        yield Item(
            prompt_tokens=20,
            output_tokens=200 if i >= 38 else 10 + i % 5,
            attributes=Attributes(user="ann" if i % 2 else "bob"),
        )


def rows(*vary: str, slo: Slo | None = None) -> list[VariantReport]:
    wanted = variants(parse_vary(vary), "none", {"max_running": "8"}, None, {})
    return list(compare(wanted, list(items()), load_profile(DEFAULT), slo=slo))


def test_longest_first_needs_fewer_steps_when_long_answers_come_last() -> None:
    first_come, longest = rows("policy=fcfs,longest-first")
    assert longest.report.steps < first_come.report.steps
    assert longest.report.finished == first_come.report.finished == 40


def test_the_table_has_a_line_for_each_run_and_leaves_out_what_never_happened() -> None:
    head, *lines = to_text(rows("policy=fcfs,longest-first")).splitlines()
    assert [line.split()[0] for line in lines] == ["fcfs", "longest-first"]
    assert "ttft p99 ms" in head
    assert "goodput" not in head
    assert "swapped" not in head
    assert "goodput/s" in to_text(rows("policy=fcfs", slo=Slo(ttft=1.0)))


def test_rows_that_differ_in_nothing_are_named() -> None:
    text = to_text(rows("policy=fcfs,longest-first,fcfs:victim=newest"))
    assert text.endswith("\n\nidentical in every figure: fcfs, fcfs:victim=newest")


def test_blocks_saved_have_a_column_where_prompts_begin_alike() -> None:
    def alike() -> Iterator[Item]:
        for i in range(12):
            ids = (0, i + 1)  # the first 192 tokens are the same, the rest is its own
            yield Item(prompt_tokens=200, output_tokens=20, hash_ids=ids, hash_block=192, arrival_s=0.5 * (i > 0))

    wanted = variants(parse_vary(["prefix-cache=on,off"]), "trace", {"max_running": "12"}, None, {})
    found = list(compare(wanted, list(alike()), load_profile(DEFAULT)))
    assert "saved blocks" in to_text(found)
    assert "saved blocks" not in to_text(rows("policy=fcfs"))
    shared, apart = [row.report for row in found]
    assert shared.blocks_saved.max == 10 * 12  # eleven at once, twelve blocks of 16 tokens each, held once
    assert apart.blocks_saved.max == 0
    assert apart.blocks.max - shared.blocks.max == 10 * 12
    assert to_json(found)[0]["report"]["blocks_saved"]["max"] == 120


def test_csv_and_json_hold_the_same_figures() -> None:
    found = rows("policy=fcfs", "max-running=4,8")
    table = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert [row["max_running"] for row in table] == ["4", "8"]
    for row, entry in zip(table, to_json(found), strict=True):
        assert float(row["total_s"]) == entry["report"]["total_s"]
        assert row["goodput_per_s"] == ""


def test_charts_are_curves_when_the_last_setting_is_a_number() -> None:
    assert axis_of(rows("policy=fcfs", "max-running=2,4,8")) == ("max-running", [2.0, 4.0, 8.0])
    delays = rows("prefill=delay:factor=0,delay:factor=0.5,delay:factor=2")
    assert axis_of(delays) == ("prefill delay:factor", [0.0, 0.5, 2.0])
    assert axis_of(rows("max-running=4,8", "policy=fcfs,longest-first")) is None
    assert axis_of(rows()) is None


def test_percentiles_of_a_figure_share_a_chart() -> None:
    found = {title: len(columns) for title, columns in figures(rows("policy=fcfs,longest-first")).items()}
    assert found["ttft, ms"] == found["tpot, ms"] == 3
    assert found["total s"] == 1
    assert "cached tok" not in found


@pytest.mark.parametrize(("vary", "shape"), [("policy=fcfs,longest-first", "<rect"), ("max-running=2,4,8", "<path")])
def test_the_page_and_the_picture_have_a_chart_for_each_figure(tmp_path: Path, vary: str, shape: str) -> None:
    found = rows(vary)
    paths = write(found, "a <test>", tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["compare.csv", "compare.json", "compare.svg", "compare.html"]
    picture, page = paths[2].read_text(), paths[3].read_text()
    for chart in charts(found):
        assert shape in chart.inside
        assert chart.inside in picture and chart.inside in page
    assert "a &lt;test&gt;" in page and "a &lt;test&gt;" in picture
    assert "http" not in page, "needs no other file"


def test_a_wide_range_of_values_is_shown_on_a_logarithmic_axis() -> None:
    assert "max-running, logarithmic" in charts(rows("max-running=1,8,64"))[0].inside
    assert "logarithmic" not in charts(rows("max-running=4,8,64"))[0].inside


def test_the_same_rows_give_the_same_charts() -> None:
    found = rows("policy=fcfs,longest-first")
    assert charts(found) == charts(found)
