"""Clients of others against real servers: `make clients`, or `make clients ARGS=--agents` for the coding agents alone.
`make clients ARGS="--peer vllm=CHECKOUT"` runs test files of others instead (peers/suites.py).

Installs the clients into build/clients, apart from the project's own environment, and prints a line for each check.
Those of npm need node; the agents are 0.8 GB. Libraries are tried with the embedded model, agents with a random one.
"""

import argparse
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from coding_agents import try_agents
from peers.suites import SUITES, try_peers

from fakes.served import serve

HERE = Path(__file__).parent
PEERS = f"run the test files of {', '.join(SUITES)} alone, from a checkout"
BUILD = HERE.parents[1] / "build" / "clients"


def install_python() -> None:
    if not (BUILD / "venv").exists():
        venv.create(BUILD / "venv", with_pip=True)
    pip = [str(BUILD / "venv" / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(HERE / "requirements.txt")], check=True)


def install_npm() -> None:
    # Modules are looked for beside the file that imports them.
    for name in ("package.json", "checks.mjs"):
        shutil.copy(HERE / name, BUILD)
    subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit"], cwd=BUILD, check=True)


def try_libraries(has_npm: bool) -> int:
    install_python()
    with serve(BUILD / "server.log") as served:
        failed = subprocess.run([BUILD / "venv" / "bin" / "python", HERE / "checks.py", served.url]).returncode
        if has_npm:
            failed |= subprocess.run(["node", "checks.mjs", served.url], cwd=BUILD).returncode
    return failed


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", action="store_true", help="try the coding agents alone")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=CHECKOUT", help=PEERS)
    parser.add_argument("--choose", default="", metavar="EXPRESSION", help="of the tests of peers, as pytest -k")
    args = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    if args.peer:
        return try_peers(BUILD, args.peer, args.choose)
    has_npm = shutil.which("npm") is not None and shutil.which("node") is not None
    if has_npm:
        install_npm()
    else:
        print("left out: the clients of npm, since there is no node")
    failed = 0 if args.agents else try_libraries(has_npm)
    return failed | (try_agents(BUILD) if has_npm else 0)


if __name__ == "__main__":
    sys.exit(main())
