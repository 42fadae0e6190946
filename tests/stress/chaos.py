"""All chaos scripts, one after the other, in one report.

    PYTHONPATH=tests python tests/stress/chaos.py [--quick] [--only NAME ...] [--into PAGE.md]

Always: a script that takes longer than its limit is ended and counts as failed; the limits make up an hour. Prints
Markdown, and its progress on the error output; exit code 1 when any script failed. `--into` puts the tables in
place of those with the same first line on a page. `--quick`: small sizes, mostly with a tiny random model, in less than
a minute on two cores.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fakes.tiny_model import write_tiny_model

TELL_S = 15.0  # between two signs of life
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


class Script(NamedTuple):
    name: str
    limit_s: float
    quick: tuple[str, ...]  # arguments; "tiny" stands for a tiny model
    quick_limit_s: float = 60.0


SCRIPTS = (
    Script("kills", 900, ("--quick", "--model", "tiny")),
    Script("deaths", 600, ("--quick", "--model", "tiny")),
    Script("overload", 300, ("--seconds", "2", "--slo", "3")),
    Script("disconnect", 600, ("--quick", "--model", "tiny")),
    Script("drain", 300, ("--quick", "--model", "tiny")),
    Script("api", 900, ("--quick",)),
    Script("strangers", 600, ("--quick", "--model", "tiny")),
    Script("files", 600, ("--files", "60")),
)


class Report(NamedTuple):
    script: Script
    verdict: str
    took_s: float
    printed: str

    @property
    def is_well(self) -> bool:
        return self.verdict == "all well"


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the chaos scripts.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[script.name for script in SCRIPTS], default=[])
    parser.add_argument("--into", type=Path, help="a page whose tables are to be these")
    options = parser.parse_args()
    chosen = [script for script in SCRIPTS if not options.only or script.name in options.only]
    with tempfile.TemporaryDirectory() as folder:
        tiny = write_tiny_model(Path(folder) / "tiny") if options.quick else None
        reports = [run(script, tiny, Path(folder) / "printed") for script in chosen]
    summary = "| script | | seconds |\n|---|---|---:|\n"
    for script, verdict, took_s, _ in reports:
        summary += f"| {script.name} | {verdict} | {took_s:.0f} |\n"
    summary += f"| all | | {sum(report.took_s for report in reports):.0f} |\n"
    print(f"\n{summary}", flush=True)
    if options.into:
        put([*([] if options.only else [summary]), *(report.printed for report in reports)], options.into)
    return 0 if all(report.is_well for report in reports) else 1


def run(script: Script, tiny: Path | None, printed: Path) -> Report:
    """`tiny`: the model of a quick run."""
    path = Path(__file__).parent / f"{script.name}.py"
    arguments = [] if tiny is None else [str(tiny) if word == "tiny" else word for word in script.quick]
    limit_s = script.limit_s if tiny is None else script.quick_limit_s
    print(f"\n## {script.name}\n\n`{script.name}.py {' '.join(script.quick if tiny else ())}`\n", flush=True)
    began = time.monotonic()
    with printed.open("w") as out:
        # In a session of its own, so that its servers can be ended with it.
        process = subprocess.Popen([sys.executable, str(path), *arguments], stdout=out, start_new_session=True)
    try:
        code = wait(process, script.name, limit_s)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    verdict = "all well" if code == 0 else f"FAILED: took more than {limit_s:.0f} s" if code is None else "FAILED"
    report = Report(script, verdict, time.monotonic() - began, printed.read_text())
    print(f"{report.printed}\n{verdict}, in {report.took_s:.0f} s", flush=True)
    return report


def wait(process: subprocess.Popen[bytes], name: str, limit_s: float) -> int | None:
    """The exit code; None if it took too long."""
    began = time.monotonic()
    while (gone_s := time.monotonic() - began) < limit_s:
        try:
            return process.wait(min(TELL_S, limit_s - gone_s))
        except subprocess.TimeoutExpired:
            print(f"{name}: {time.monotonic() - began:.0f} s of at most {limit_s:.0f}", file=sys.stderr, flush=True)
    return None


def put(printed: list[str], page: Path) -> None:
    text = page.read_text()
    tables = {table.partition("\n")[0]: table for part in printed for table in TABLE.findall(part)}
    page.write_text(TABLE.sub(lambda old: tables.get(old[0].partition("\n")[0], old[0]), text))


if __name__ == "__main__":
    sys.exit(main())
