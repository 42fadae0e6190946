"""Clients of others against a server with the embedded model: `make clients`. Those of npm need node.

Installs the clients into build/clients, apart from the project's own environment, and prints a line for each check.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from fakes.served import serve

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "clients"


def install() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    if not (BUILD / "venv").exists():
        venv.create(BUILD / "venv", with_pip=True)
    pip = [str(BUILD / "venv" / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(HERE / "requirements.txt")], check=True)
    if shutil.which("npm"):
        # Modules are looked for beside the file that imports them.
        for name in ("package.json", "checks.mjs"):
            shutil.copy(HERE / name, BUILD)
        subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit"], cwd=BUILD, check=True)


def main() -> int:
    install()
    failed = 0
    with serve(BUILD / "server.log") as served:
        failed |= subprocess.run([BUILD / "venv" / "bin" / "python", HERE / "checks.py", served.url]).returncode
        if shutil.which("node"):
            failed |= subprocess.run(["node", "checks.mjs", served.url], cwd=BUILD).returncode
        else:
            print("left out: the clients of npm, since there is no node")
    return failed


if __name__ == "__main__":
    sys.exit(main())
