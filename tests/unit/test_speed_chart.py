"""The README's chart shows what the results say, and is drawn from the figures as they are now."""

from pathlib import Path

import pytest
import yaml

from fakes.benchmark import load_benchmark

DOCS = Path(__file__).parents[2] / "docs"
GROUPS = yaml.safe_load((DOCS / "results" / "speed.yaml").read_text())


def test_every_figure_stands_in_its_source_and_the_picture_is_theirs() -> None:
    chart = load_benchmark("readme/speed_chart")
    assert [chart.unfounded(group) for group in GROUPS] == [[]] * len(GROUPS)
    assert chart.drawn(GROUPS) == (DOCS / "pictures" / "speed.svg").read_text()


def test_a_figure_nobody_measured_is_found() -> None:
    chart = load_benchmark("readme/speed_chart")
    assert chart.unfounded({**GROUPS[0], "bars": {**GROUPS[0]["bars"], "another": "0.123"}}) == ["0.123"]


def test_less_time_is_a_longer_bar() -> None:
    chart = load_benchmark("readme/speed_chart")
    group = {"bars": {"chairlift": "2", "another": "8"}}
    assert chart.speeds(group) == {"chairlift": pytest.approx(0.25), "another": 1.0}
    assert chart.speeds({**group, "less": True}) == {"chairlift": 1.0, "another": pytest.approx(0.25)}
