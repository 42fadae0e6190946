"""Hostile requests against a real server: from its own description, and from what a description does not say.

    PYTHONPATH=tests python tests/stress/api.py [--quick] [--bodies 3000] [--raw 2000] [--examples 50] [--seed 0]

Schemathesis goes through /openapi.json: statuses, media types, headers and bodies of all answers must be described, and
no server error among them. Then Hypothesis makes bodies of all APIs with hostile fields, and bytes that are hardly
HTTP. Always: each is answered or its connection closed within 10 s, never with a 5xx status (504 aside: it may have
asked for little time) or an internal error; in the end no process was replaced, a token is made when asked for, and all
blocks are free. Prints a table in Markdown; exit code 1 when anything of this is not so.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fakes.served import serve
from fakes.tiny_model import write_tiny_model
from stress.api_requests import Hostile, bodies, garbage
from stress.client import processes, settle

LIMIT_S = 10.0
QUIET_S = 0.5  # nothing more comes on a connection that may stay open
# Dawdlers are told so in time for the limit; no answer is long.
SERVER = ("--frontends", 2, "--max-model-len", 256, "--max-receive-seconds", 2, "--num-blocks", 400)
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip
CONFIG = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "4xx", 504]\n'
INTERNAL = (b'"code":"500"', b'"type":"api_error"', b"predict_failed")  # an internal error in an answer that had begun


@dataclass
class Tally:
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    slowest_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description="Send hostile requests.")
    parser.add_argument("--quick", action="store_true", help="100 bodies, 100 raw, 3 examples of each route")
    parser.add_argument("--bodies", type=int, default=3000)
    parser.add_argument("--raw", type=int, default=2000)
    parser.add_argument("--examples", type=int, default=50, help="of each route, beyond those that cover its fields")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.quick:
        options.bodies, options.raw, options.examples = 100, 100, 3
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serve(folder / "log", "--model", write_tiny_model(folder / "tiny"), *SERVER) as served:
            before = sorted(process.pid for process in processes(served.process.pid))
            schemas = httpx.get(f"{served.url}/openapi.json", timeout=30).json()["components"]["schemas"]
            described = schemathesis(served.url, folder, options)
            fuzz(served.url, bodies(schemas), options.bodies, 8, options.seed, tally)
            fuzz(served.url, garbage(), options.raw, 40, options.seed, tally)  # many of these wait
            tally.wrong += [f"{name} is {value:g} in the end" for name, value in settle(served.url).items() if value]
            if httpx.get(f"{served.url}/health/generate", timeout=30).status_code != 200:
                tally.wrong.append("no token is made in the end")
            if sorted(process.pid for process in processes(served.process.pid)) != before:
                tally.wrong.append("a process was replaced")
            logged = re.search(r"(?:.* ERROR |Traceback)(?s:.*)", served.output)
            tally.wrong += [f"the log says: {logged[0][:5000]}"] if logged else []
    return report(described, tally)


def schemathesis(url: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """What it found, in its own words."""
    phases = "fuzzing" if options.quick else "coverage,fuzzing"
    (folder / "schemathesis.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "schemathesis.toml"), "run"]
    command += [f"{url}/openapi.json", "--exclude-path", "/live", "--checks", ",".join(CHECKS), "--no-shrink"]
    command += ["--max-examples", str(options.examples), "--seed", str(options.seed), "--continue-on-failure"]
    command += ["--request-timeout", str(LIMIT_S), "--phases", phases, "--no-color"]
    command += ["--report", "json", "--report-json-path", str(folder / "found.json")]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if run.returncode:
        print(run.stdout, run.stderr, file=sys.stderr)
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def fuzz(url: str, requests: st.SearchStrategy[Hostile], count: int, at_once: int, number: int, tally: Tally) -> None:
    with asyncio.Runner() as runner:

        @seed(number)
        @settings(
            max_examples=max(1, count // at_once),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(requests, min_size=at_once, max_size=at_once))
        def try_some(batch: list[Hostile]) -> None:
            runner.run(_all(url, batch, tally))

        try_some()


async def _all(url: str, batch: list[Hostile], tally: Tally) -> None:
    await asyncio.gather(*(_try(url, hostile, tally) for hostile in batch))


async def _try(url: str, hostile: Hostile, tally: Tally) -> None:
    began, received = time.monotonic(), bytearray()
    try:
        async with asyncio.timeout(LIMIT_S):
            await _exchange(url, hostile.sent, received)
        outcome = "closed"
    except TimeoutError:
        outcome = "hangs"
    except OSError:  # the server closed while there was more to send
        outcome = "closed"
    tally.slowest_s = max(tally.slowest_s, time.monotonic() - began)
    statuses = re.findall(rb"(?m)^HTTP/1\.[01] (\d{3}) ", bytes(received))
    if statuses:
        outcome = "hangs" if outcome == "hangs" else max(statuses).decode()
    tally.outcomes[hostile.kind][outcome] += 1
    if outcome == "hangs" or (outcome >= "500" and outcome not in ("504", "closed")) or _is_internal(received):
        tally.wrong.append(f"{outcome}: {hostile.sent[:600]!r} got {bytes(received[:300])!r}")


def _is_internal(received: bytearray) -> bool:
    return any(mark in received for mark in INTERNAL)


async def _exchange(url: str, sent: bytes, received: bytearray) -> None:
    """Sends all of it and reads until the server closes, or is done with a connection that may stay open."""
    where = urlsplit(url)
    stays_open = b"connection: close" not in sent.lower()
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(sent)
        received += await reader.read(65536)
        with suppress(TimeoutError):
            while piece := await asyncio.wait_for(reader.read(65536), QUIET_S if stays_open else LIMIT_S):
                received += piece
    finally:
        writer.close()


def report(described: dict[str, Any], tally: Tally) -> int:
    cases, operations = described["test_cases"], described["operations"]
    print("| hostile requests | |\n|---|---:|")
    print(f"| Schemathesis: routes, cases | {operations['tested']}, {cases['generated']} |")
    print(f"| Schemathesis: failures | {cases['unique_failures'] + cases['errored']} |")
    for kind, outcomes in sorted(tally.outcomes.items()):
        print(f"| {kind} | {', '.join(f'{outcome} {count}' for outcome, count in sorted(outcomes.items()))} |")
    print(f"| requests of both kinds | {sum(sum(counts.values()) for counts in tally.outcomes.values())} |")
    print(f"| slowest answer, s | {tally.slowest_s:.1f} |")
    print(f"| wrong | {len(tally.wrong)} |")
    for line in tally.wrong[:20]:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if tally.wrong or described["exit_code"] else 0


if __name__ == "__main__":
    sys.exit(main())
