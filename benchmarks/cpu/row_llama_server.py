"""llama.cpp's server: 32 slots, continuous batching, prompts as token ids over HTTP on the loopback.

With --server it is that program; without, the server inside the package xllamacpp, whose wheel is built for any
processor of the architecture and takes several times as long (on ARM it has no dot products). The source package of
llama-cpp-python holds all of llama.cpp, which finds the processor's instructions when it is built on it:

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python && tar xzf llama_cpp_python-*.tar.gz
    cmake -S llama_cpp_python-*/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON
    cmake --build build --target llama-server llama-quantize
"""

import argparse
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import workload

SLOTS = 32
CONTEXT = SLOTS * 512


def main() -> None:
    arguments = workload.parser()
    arguments.add_argument("--server", metavar="PROGRAM", help="llama-server (default: that of xllamacpp)")
    args = arguments.parse_args()
    with (program if args.server else package)(args) as url, ThreadPoolExecutor(SLOTS) as threads:

        def run(requests: workload.Requests) -> list[int]:
            return list(threads.map(lambda request: complete(url, *request), requests))

        workload.measure(args, "llama-server" if args.server else "llama-server (xllamacpp's wheel)", run)


def complete(url: str, prompt: list[int], count: int) -> int:
    body = {"prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=900) as response:
        return int(json.load(response)["tokens_predicted"])


@contextmanager
def program(args: argparse.Namespace) -> Iterator[str]:
    port, threads = free_port(), str(workload.THREADS)
    command = [args.server, "-m", args.model, "--port", str(port), "-np", str(SLOTS), "-c", str(CONTEXT)]
    command += ["-t", threads, "-tb", threads, "--cache-ram", "0"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        while not is_healthy(url):
            assert server.poll() is None, f"{args.server} ended with {server.returncode}"
            time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait(20)


@contextmanager
def package(args: argparse.Namespace) -> Iterator[str]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.port, params.n_parallel, params.n_ctx = free_port(), SLOTS, CONTEXT
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = workload.THREADS
    params.cache_ram_mib = 0
    server = xllamacpp.Server(params)  # returns when the model is loaded
    yield server.listening_address


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1):
            return True
    except OSError:  # not listening yet, or loading
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
