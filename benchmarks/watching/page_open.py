"""The cost of an open page for a server under load: throughput with and without it, in turns.

    chairlift serve ... & python benchmarks/watching/page_open.py --url http://127.0.0.1:8000 --concurrency 1500

One load (`chairlift bench`, closed loop) runs all the time; after a warm-up, windows with a page open and windows
without follow each other, so that both see the same machine. Tokens are those the server counts at /metrics, read at
both ends of a window. Prints each pair and the median of their ratios; a page here is a reader of /live, as the
browser's is.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path


def tokens(url: str) -> int:
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    return sum(int(float(value)) for value in re.findall(r"^chairlift_generated_tokens_total\S* (\S+)$", text, re.M))


class Page:
    """Reads /live, and explains a request each five seconds, as a person at the page would."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = threading.Event()
        self.num_bytes = 0
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> "Page":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        asked = time.monotonic()
        with urllib.request.urlopen(self._url + "/live", timeout=30) as stream:
            while not self._is_over.is_set():
                line = stream.readline()
                self.num_bytes += len(line)
                shown = re.search(rb'"bars":\[\[(\d+),', line)
                if shown and time.monotonic() - asked > 5:
                    asked = time.monotonic()
                    try:
                        urllib.request.urlopen(f"{self._url}/live/requests/{int(shown[1])}", timeout=30).read()
                    except urllib.error.HTTPError as error:
                        print(f"request {int(shown[1])}: {error}")


def rate(url: str, seconds: float) -> float:
    began, before = time.monotonic(), tokens(url)
    time.sleep(seconds)
    after, ended = tokens(url), time.monotonic()
    return (after - before) / (ended - began)


def measure(url: str, seconds: float, pairs: int) -> None:
    ratios = []
    for pair in range(pairs):
        rates = {}
        for is_open in (True, False) if pair % 2 else (False, True):  # the order alternates
            if is_open:
                with Page(url):
                    rates[True] = rate(url, seconds)
            else:
                rates[False] = rate(url, seconds)
        ratios.append(rates[True] / rates[False])
        print(f"closed {rates[False]:10.1f} tokens/s, open {rates[True]:10.1f}, ratio {ratios[-1]:.4f}", flush=True)
    print(f"median of {pairs} ratios: {statistics.median(ratios):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a window")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds before the first window")
    parser.add_argument(
        "--count", type=int, default=30_000, help="requests of the load, which must outlast the windows"
    )
    parser.add_argument("--lengths", default="prompt=50-200,output=100-300")
    options, more = parser.parse_known_args()  # unknown options are for the load
    with tempfile.TemporaryDirectory() as folder:
        workload = f"lengths:{options.lengths},count={options.count}"
        command = [sys.executable, "-m", "chairlift", "bench", "--url", options.url, "--workload", workload]
        command += ["--arrivals", f"closed:concurrency={options.concurrency}", "--out", folder, *more]
        log = Path(folder) / "log"
        load = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT)
        try:
            before = tokens(options.url)
            while tokens(options.url) == before and load.poll() is None:  # it writes its requests first
                time.sleep(0.5)
            time.sleep(options.warm_up)
            assert load.poll() is None, f"the load ended: {log.read_text()}"
            measure(options.url, options.seconds, options.pairs)
        finally:
            load.terminate()
            load.wait()


if __name__ == "__main__":
    main()
