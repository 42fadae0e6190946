"""The cost of watching a server: page open, metrics scraped each second and every request traced, against none.

    python benchmarks/watching/watched.py [--pairs 5] [--requests 48] [--clients 1] [-- OPTIONS OF serve]

Two servers with the embedded model: one plain, one that sends its spans to a receiver here, with a page open and a
scraper. They take turns with the same load, all requests at once, so that both see the same machine; which goes first
changes from pair to pair. Prints output tokens per second of each turn and the median of the pairs' ratios.
"""

import argparse
import http.server
import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from page_open import Page

COMMAND = [sys.executable, "-m", "chairlift"]


class Sink(http.server.BaseHTTPRequestHandler):
    """Accepts spans and drops them."""

    num_bytes = 0

    def do_POST(self) -> None:
        Sink.num_bytes += len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiver() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    server.shutdown()


@contextmanager
def serving(*options: str) -> Iterator[str]:
    process = subprocess.Popen(
        [*COMMAND, "serve", "--quiet", "--port", "0", *options], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        url = ""
        for line in process.stderr:
            if " on http" in line and not url:
                url = line.split(" on ")[1].strip()
            if "ready in" in line:
                break
        assert process.poll() is None, "the server ended"
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield url
    finally:
        process.terminate()
        process.wait()


@contextmanager
def scraping(url: str) -> Iterator[None]:
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.wait(1.0):
            urllib.request.urlopen(f"{url}/metrics", timeout=30).read()

    thread = threading.Thread(target=scrape)
    thread.start()
    yield
    is_over.set()
    thread.join()


def load(url: str, requests: int, clients: int) -> float:
    """Output tokens per second."""
    workload = f"lengths:prompt=32-160,output=48-96,count={requests}"
    command = [*COMMAND, "bench", "--url", url, "--workload", workload, "--arrivals", "none", "--json"]
    command += ["--clients", str(clients)]
    done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return float(done["figures"]["output_tokens_per_s"])  # the load fails unless every answer is full


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--clients", type=int, default=1, help="client processes of the load")
    parser.add_argument("options", nargs="*", help="options of both servers")
    args = parser.parse_args()
    ratios = []
    with ExitStack() as stack:
        plain = stack.enter_context(serving(*args.options))
        watched = stack.enter_context(serving(*args.options, "--otlp-endpoint", stack.enter_context(receiver())))
        for url in (plain, watched):
            load(url, args.requests, args.clients)  # warm-up
        for pair in range(args.pairs):
            rates = {}
            for url in (plain, watched) if pair % 2 else (watched, plain):
                with ExitStack() as looking:
                    if url == watched:
                        looking.enter_context(Page(url))
                        looking.enter_context(scraping(url))
                        time.sleep(0.5)
                    rates[url] = load(url, args.requests, args.clients)
            ratios.append(rates[watched] / rates[plain])
            print(
                f"plain {rates[plain]:8.1f} tokens/s, watched {rates[watched]:8.1f}, ratio {ratios[-1]:.4f}", flush=True
            )
    print(f"median of {args.pairs} ratios: {statistics.median(ratios):.4f}; {Sink.num_bytes} bytes of spans were sent")


if __name__ == "__main__":
    main()
