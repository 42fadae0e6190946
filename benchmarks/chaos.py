"""All chaos scripts, one after the other, in one report.

    PYTHONPATH=tests python benchmarks/chaos.py [--quick] [--only NAME ...]

Always: a script that takes longer than its limit is ended and counts as failed. Prints Markdown; exit code 1 when any
script failed. `--quick`: small sizes, mostly with a tiny random model, in less than a minute on two cores.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fakes.tiny_model import write_tiny_model


class Script(NamedTuple):
    name: str
    limit_s: float
    quick: tuple[str, ...]  # arguments; "tiny" stands for a tiny model
    quick_limit_s: float = 60.0


SCRIPTS = (
    Script("kills", 900, ("--quick", "--model", "tiny")),
    Script("overload", 300, ("--seconds", "3")),
    Script("disconnect", 1800, ("--quick", "--model", "tiny")),
    Script("drain", 300, ("--quick", "--model", "tiny")),
    Script("api", 900, ("--quick",)),
    Script("files", 3600, ("--files", "60")),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the chaos scripts.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[script.name for script in SCRIPTS], default=[])
    options = parser.parse_args()
    chosen = [script for script in SCRIPTS if not options.only or script.name in options.only]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny_model(Path(folder) / "tiny") if options.quick else None
        failed = [script.name for script in chosen if not run(script, tiny)]
    print(f"\n{len(chosen)} scripts in {time.monotonic() - began:.0f} s; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def run(script: Script, tiny: Path | None) -> bool:
    """Whether all went well. `tiny`: the model of a quick run."""
    path = Path(__file__).parent / f"chaos_{script.name}.py"
    arguments = [] if tiny is None else [str(tiny) if word == "tiny" else word for word in script.quick]
    limit_s = script.limit_s if tiny is None else script.quick_limit_s
    print(f"\n## {script.name}\n\n`chaos_{script.name}.py {' '.join(script.quick if tiny else ())}`\n", flush=True)
    began = time.monotonic()
    # In a session of its own, so that its servers can be ended with it.
    process = subprocess.Popen([sys.executable, str(path), *arguments], start_new_session=True)
    try:
        code: int | None = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    verdict = "all well" if code == 0 else f"FAILED: took more than {limit_s:.0f} s" if code is None else "FAILED"
    print(f"\n{verdict}, in {time.monotonic() - began:.0f} s", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
