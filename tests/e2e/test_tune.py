"""Tuning from the command line: with a real model, interrupted, and its page in a real browser."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from PIL import Image

from chairlift.config.options.resolve import resolve
from chairlift.lab.tune.files import write
from chairlift.lab.tune.report import TuneReport
from chairlift.lab.tune.tuning import Tuning
from fakes.browser import needs_browser, shoot
from fakes.patience import HANG_S
from fakes.tiny_model import write_tiny_model
from fakes.tuned import KNOBS, work

pytestmark = pytest.mark.nightly

BLUE, ORANGE, GREEN = (0x2B, 0x6C, 0xB0), (0xC0, 0x56, 0x21), (0x2F, 0x85, 0x5A)  # the front, the default, the pick


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "chairlift", "tune", *map(str, arguments)]


def test_a_real_model_is_calibrated_tuned_and_run(tmp_path: Path) -> None:
    model, out = write_tiny_model(tmp_path / "tiny"), tmp_path / "out"
    given = ("--workload", "lengths:prompt=4-60,output=2-40,count=12", "--arrivals", "none", "--model", model)
    few = ("--max-model-len", "512", "--threads", "1", "--minutes", "0.02", "--json", "--out", out)
    done = subprocess.run(command(*given, *few), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "calibrating" in done.stderr
    rounds = re.search(r"verifying, round 1 of (\d), the defaults: ", done.stderr)  # as many as there is time for
    assert rounds is not None
    result = json.loads(done.stdout)
    assert result["not_verified"] is None
    default, *others = result["verified"]
    assert default["changes"] == {} and others
    for verified in result["verified"]:
        assert len(verified["measured"]) == int(rounds[1])
        for report in (verified["predicted"], *verified["measured"]):
            assert report["finished"] == verified["requests"]
            assert report["total_s"] > 0
    assert resolve({}, out / "tuned.yaml").model == str(model)
    assert "Real runs of" in (out / "tune.md").read_text()


@contextmanager
def on_two_cores() -> Iterator[None]:
    """What is started here, so that it takes its time on a large machine too."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def processor_s(pid: int) -> float:
    """Of a process and those that it started."""
    process = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children()))


def test_interrupted_it_writes_what_it_found(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = (
        "--workload",
        "contest",
        "--limit",
        "300",
        "--arrivals",
        "none",
        "--profile",
        "h200-llama2-7b",
        "--out",
        out,
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with on_two_cores(), subprocess.Popen(command(*given), **pipes) as process:
        assert process.stderr is not None
        assert "searching" in process.stderr.readline()
        before_s = processor_s(process.pid)
        while processor_s(process.pid) < before_s + 10.0:  # of fifty; workers take some to start
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert stdout.startswith("Interrupted")
    result = json.loads((out / "tune.json").read_text())
    assert result["partial"] is True
    assert result["configurations"] > 1
    resolve({}, out / "tuned.yaml")


@needs_browser
def test_the_page_shows_its_picture_in_a_browser(tmp_path: Path) -> None:
    out, shot = tmp_path / "out", tmp_path / "page.png"
    tuning = Tuning(work(), KNOBS, HANG_S, num_workers=1, least=24)  # something is better than the defaults
    tuning.run(lambda text: None)
    write(TuneReport(tuning, "small.jsonl", "synthetic", "as given"), out)
    shoot((out / "tune.html").as_uri(), shot, 1100, 1400)
    with Image.open(shot) as image:
        seen = image.convert("RGB").getcolors(1 << 24) or []
    counts = {colour: count for count, colour in seen}
    assert counts.get(BLUE, 0) > 200  # the front and the bars of what matters
    assert counts.get(ORANGE, 0) > 10
    assert counts.get(GREEN, 0) > 10
