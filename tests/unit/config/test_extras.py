"""Packages that only some commands need."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.config.extras import EXTRAS, check_extra
from chairlift.core.errors import InvalidConfig

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def lack(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_tune_says_what_it_lacks_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lack(monkeypatch, "optuna")
    assert main(["tune", "--workload", "a file that is not looked at"]) == 2
    assert capsys.readouterr() == ("", "chairlift: error: tune needs optuna: pip install 'chairlift[tune]'\n")


def test_all_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lack(monkeypatch, *EXTRAS["otel"])
    with pytest.raises(InvalidConfig, match="opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http: pip"):
        check_extra("tracing", "otel")


def packages_of(requirements: list[str]) -> set[str]:
    """Their names, with those of the extras that they name."""
    names: set[str] = set()
    for each in requirements:
        extras = re.fullmatch(r"chairlift\[(.*)\]", each)
        for extra in extras[1].split(",") if extras else ():
            names |= packages_of(PROJECT["optional-dependencies"][extra])
        if not extras:
            names.add(re.split(r"[<>=]", each)[0])
    return names


def test_each_extra_brings_the_packages_that_are_looked_for() -> None:
    for extra, modules in EXTRAS.items():
        assert packages_of(PROJECT["optional-dependencies"][extra]) == set(modules.values())
        assert packages_of(PROJECT["optional-dependencies"]["dev"]) >= set(modules.values())


def test_none_of_them_comes_with_every_install_and_all_that_does_has_an_upper_bound() -> None:
    optional = {package for modules in EXTRAS.values() for package in modules.values()}
    assert not packages_of(PROJECT["dependencies"]) & optional
    assert [each for each in PROJECT["dependencies"] if "<" not in each] == []


@pytest.mark.slow
def test_serving_imports_none_of_them() -> None:
    parts = (
        "cli.main",
        "llm",
        "serving.parent",
        "serving.engine",
        "serving.front_end",
        "server.sockets.run",
        "runner.start.load",
    )
    modules = ", ".join(f"chairlift.{part}" for part in parts)
    names = sorted({module.partition(".")[0] for modules in EXTRAS.values() for module in modules})
    code = f"import sys, {modules}; print([name for name in {names} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_server_on_a_cpu_needs_no_triton() -> None:
    program = "import sys; sys.modules['triton'] = None; import chairlift.build, chairlift.runner.start.load"
    subprocess.run([sys.executable, "-c", program], check=True)
