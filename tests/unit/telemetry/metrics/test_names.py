"""What `promtool check metrics` would say of our names, and whether the handbook knows them all."""

import re
from pathlib import Path

import pytest

from chairlift.telemetry.metrics.series import SERIES, Series

BASE_UNITS = ("seconds", "bytes", "tokens", "blocks", "samples")
NOT_BASE_UNITS = ("milliseconds", "microseconds", "ms", "minutes", "hours", "percent", "kilobytes", "kib", "mib")
PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"


@pytest.mark.parametrize("series", SERIES.values(), ids=list(SERIES))
def test_a_name_follows_the_conventions(series: Series) -> None:
    assert re.fullmatch(r"chairlift_[a-z][a-z0-9]*(_[a-z0-9]+)*", series.name)
    words = series.name.split("_")
    assert (words[-1] == "total") == (series.kind == "counter")
    assert not {"counter", "gauge", "histogram", "summary", "count", "sum", "bucket"} & set(words)
    assert not set(NOT_BASE_UNITS) & set(words)
    if series.kind == "histogram":
        assert words[-1] in BASE_UNITS
    assert series.help.endswith(".")
    assert all(re.fullmatch(r"[a-z_]+", label) and label != "le" for label in series.labels)
    assert bool(series.bounds) == (series.kind == "histogram")


def test_the_handbook_tells_of_every_series_and_of_no_other() -> None:
    told = set(re.findall(r"`(chairlift_[a-z_]+?)(?:\{[a-z,=\"]+\})?`", PAGE.read_text()))
    assert told == set(SERIES)
