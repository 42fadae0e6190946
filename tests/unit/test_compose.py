"""deploy/compose.yaml and CITATION.cff: valid, and the services closed, and in agreement with the image."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from chairlift.server.app import create_app

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]


def faults(path: Path, schema: str) -> str:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_the_compose_file_is_valid() -> None:
    assert faults(COMPOSE, "compose-spec") == ""


def test_a_compose_file_with_a_mistake_is_not(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("read_only:", "readonly:"))
    assert "readonly" in faults(wrong, "compose-spec")


def test_the_citation_is_valid() -> None:
    assert faults(ROOT / "CITATION.cff", "citation-file-format") == ""


def test_each_service_has_a_profile_of_its_name() -> None:
    """Both publish one port: without profiles they would start together."""
    assert {name: service["profiles"] for name, service in SERVICES.items()} == {"cpu": ["cpu"], "gpu": ["gpu"]}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_may_write_to_its_home_and_tmp_alone(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"] and service["tmpfs"] == ["/tmp"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    [user] = re.findall(r"^USER (\d+)$", CONTAINERFILE, re.MULTILINE)
    [home] = re.findall(r"^WORKDIR (/home/.*)$", CONTAINERFILE, re.MULTILINE)
    assert (service["user"], service["volumes"]) == (user, [f"cache:{home}"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_reached_by_this_machine_alone_at_the_port_of_the_image(name: str) -> None:
    [port] = re.findall(r"^EXPOSE (\d+)$", CONTAINERFILE, re.MULTILINE)
    assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
    [route] = re.findall(rf"http://127\.0\.0\.1:{port}(/[\w/]+)", SERVICES[name]["healthcheck"]["test"][-1])
    assert route in {getattr(each, "path", None) for each in create_app.__globals__["_ROUTES"]}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_built_by_arguments_that_the_containerfile_has(name: str) -> None:
    build = SERVICES[name]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).samefile(ROOT / "deploy" / "Containerfile")
    assert set(build.get("args", {})) <= set(re.findall(r"^ARG (\w+)=", CONTAINERFILE, re.MULTILINE))


def test_a_gpu_is_asked_for_where_torch_has_cuda() -> None:
    index = {name: service["build"].get("args", {}).get("TORCH_INDEX", "/cpu") for name, service in SERVICES.items()}
    has_gpu = {name: "devices" in str(service.get("deploy")) for name, service in SERVICES.items()}
    assert {name: not each.endswith("/cpu") for name, each in index.items()} == has_gpu == {"cpu": False, "gpu": True}
