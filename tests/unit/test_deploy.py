"""The files in deploy/: linted, and in agreement with the server they start."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chairlift.cli.main import main
from chairlift.server.app import create_app

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
UNIT = (DEPLOY / "chairlift.service").read_text()


def test_the_containerfile_is_clean() -> None:
    lint = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([str(lint), str(DEPLOY / "Containerfile")], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


def test_the_container_starts_a_server_that_can_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    command = json.loads(re.findall(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)[-1])
    assert command[:1] == ["serve"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0


def test_the_container_is_asked_for_a_route_that_exists() -> None:
    [route] = re.findall(r"http://127\.0\.0\.1:8000(/[\w/]+)", CONTAINERFILE)
    routes = {getattr(each, "path", None) for each in create_app.__globals__["_ROUTES"]}
    assert route in routes


def test_what_the_container_copies_is_there() -> None:
    for names in re.findall(r"^COPY (?!--from)(.*) \./", CONTAINERFILE, re.MULTILINE):
        assert all((DEPLOY.parent / name).exists() for name in names.split())


def test_the_unit_stops_reloads_and_restarts_as_the_server_expects() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT)
    service = unit["Service"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert (service["KillMode"], service["Restart"]) == ("mixed", "on-failure")
    assert service["ExecStart"].split()[1:2] == ["serve"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "chairlift.service"
    copy.write_text(UNIT.replace("/opt/chairlift/bin/chairlift", "/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (found.stderr, found.returncode) == ("", 0)
