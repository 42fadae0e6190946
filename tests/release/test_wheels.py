"""What the wheels of both processors hold is for the systems that their names promise, whichever machine built them."""

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from chairlift.runner.native import library

KERNELS = "chairlift/runner/native/_kernels.abi3.so"
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
SYSTEM = r"(libc|libm|libpthread|ld-linux-[\w-]+)\.so\.\d+"  # of glibc; what else it needed would have to be shipped
pytestmark = [pytest.mark.nightly, pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")]


def kernels(wheel: Path) -> ELFFile:
    return ELFFile(io.BytesIO(zipfile.ZipFile(wheel).read(KERNELS)))


def glibc(kernels: ELFFile) -> tuple[int, ...]:
    """The oldest that has every symbol."""
    needed = [section for section in kernels.iter_sections() if isinstance(section, GNUVerNeedSection)]
    names = [each.name for section in needed for _, versions in section.iter_versions() for each in versions]
    return max(tuple(int(part) for part in name.removeprefix("GLIBC_").split(".")) for name in names)


def test_there_is_a_wheel_for_each_processor(wheels: dict[str, Path]) -> None:
    assert set(wheels) == set(MACHINES)
    assert all(re.search(r"-py3-none-manylinux\w*(\.manylinux\w+)*\.whl$", path.name) for path in wheels.values())


@pytest.mark.parametrize("processor", MACHINES)
def test_the_kernels_are_for_the_processor_and_the_systems_of_the_name(wheels: dict[str, Path], processor: str) -> None:
    found = kernels(wheels[processor])
    assert found["e_machine"] == MACHINES[processor]
    [major, minor] = re.findall(r"manylinux_(\d+)_(\d+)_", wheels[processor].name)[0]
    assert glibc(found) <= (int(major), int(minor)) <= (2, 28)


@pytest.mark.parametrize("processor", MACHINES)
def test_the_kernels_need_the_system_alone_and_offer_all_that_is_called(
    wheels: dict[str, Path], processor: str
) -> None:
    found = kernels(wheels[processor])
    dynamic = next(section for section in found.iter_sections() if isinstance(section, DynamicSection))
    needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
    assert needed and all(re.fullmatch(SYSTEM, name) for name in needed), needed
    symbols = found.get_section_by_name(".dynsym").iter_symbols()
    assert set(library._SIGNATURES) <= {each.name for each in symbols if each["st_shndx"] != "SHN_UNDEF"}


def test_an_index_takes_the_files_and_shows_their_page(wheels: dict[str, Path], sdist: Path) -> None:
    pytest.importorskip("twine", reason="needs twine (make wheel)")
    files = [str(path) for path in (sdist, *wheels.values())]
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == len(files)
