"""A pytest plugin: notes each test's wide fixtures, which several tests share, how long it takes and how it ends."""

import json
import os
from pathlib import Path

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0" and session.items:
        wide = {item.nodeid: _wide_fixtures(item) for item in session.items if isinstance(item, pytest.Function)}
        Path(os.environ["FIXTURES"]).write_text(json.dumps(wide))


def _wide_fixtures(item: pytest.Function) -> list[str]:
    """Of the tests' own: where they are defined, and their name."""
    found = [definitions[-1] for definitions in item._fixtureinfo.name2fixturedefs.values()]
    return [f"{each.baseid}::{each.argname}" for each in found if each.baseid and each.scope != "function"]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        with Path(os.environ["OUTCOMES"]).open("a") as file:
            file.write(f"{report.nodeid}\t{report.duration}\t{report.outcome}\n")
