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


@pytest.mark.parametrize("file", ["deploy/Containerfile", "docs/deploying.md"])
def test_podman_is_told_to_keep_the_health_check(file: str) -> None:
    lines = re.findall(r"^[# ] +podman build .*$", (DEPLOY.parent / file).read_text(), re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", CONTAINERFILE, re.MULTILINE)
    assert lines and all(" --format docker " in line for line in lines)


@pytest.mark.parametrize(("index", "has_compiler"), [("cpu", False), ("cu130", True)])
def test_the_last_stage_has_the_compiler_that_triton_needs_where_there_is_a_gpu(
    tmp_path: Path, index: str, has_compiler: bool
) -> None:
    before, build, last = re.split(r"^FROM .*$", CONTAINERFILE, flags=re.MULTILINE)
    default = re.findall(r"^ARG (TORCH_INDEX)=(.*)/cpu$", before, re.MULTILINE)
    assert default and all("\nARG TORCH_INDEX\n" in stage for stage in (build, last))
    [script] = re.findall(r"^RUN (case .*esac)$", last, re.MULTILINE | re.DOTALL)
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    apt.chmod(0o755)
    script = script.replace("rm -rf", "echo would remove")
    variables = {"PATH": f"{tmp_path}:/bin:/usr/bin", "TORCH_INDEX": f"{default[0][1]}/{index}"}
    subprocess.run(["sh", "-c", script], env=variables, check=True, capture_output=True)
    asked = (tmp_path / "asked").read_text() if has_compiler else ""
    assert ("gcc libc6-dev" in asked) is has_compiler
    assert (tmp_path / "asked").exists() is has_compiler


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
