"""The Grafana dashboard: whole, and about series that there are."""

import json
import re
from pathlib import Path
from typing import Any

from chairlift.telemetry.metrics.series import SERIES

DASHBOARD = Path(__file__).parents[4] / "deploy" / "grafana.json"
ENDS = ("_bucket", "_sum", "_count")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def queries() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def test_every_panel_asks_the_chosen_data_source_and_has_its_own_place() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    for panel in panels:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"]
    assert {each["name"] for each in dashboard()["templating"]["list"]} == {"datasource", "instance"}


def test_queries_name_series_as_they_are_shown() -> None:
    shown = {f"{s.name}{end}" for s in SERIES.values() if s.kind == "histogram" for end in ENDS}
    shown |= {s.name for s in SERIES.values() if s.kind != "histogram"}
    asked = {name for query in queries() for name in re.findall(r"chairlift_[a-z_]+", query)}
    assert asked <= shown


def test_every_series_is_on_a_panel() -> None:
    text = "\n".join(queries())
    assert [name for name in SERIES if name not in text] == []


def test_brackets_of_queries_close() -> None:
    for query in queries():
        for one, other in ("()", "{}", "[]"):
            assert query.count(one) == query.count(other)
