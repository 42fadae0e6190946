"""Texts that cannot fit, many at once, against a whole server: they are refused, and take no memory to speak of."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.patience import HANG_S
from fakes.served import serve

NUM_BYTES = 8 * 2**20 - 200
WORDS = ("The quick brown fox jumps over the lazy dog, and then it rests. " * (NUM_BYTES // 64))[:NUM_BYTES]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": WORDS},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": WORDS}]},
    "/tokenize": {"prompt": WORDS[:500_000]},
    "/models/any/generate": {"inputs": WORDS},
}
MIB = 2**20


def peak_bytes(pid: int) -> int:
    """Of its memory, since it was asked last."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return int(line.split()[1]) * 1024


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux, which tells the peak of a process")
def test_six_of_the_longest_texts_at_once_make_no_process_grow(tiny_model: Path, tmp_path: Path) -> None:
    options = ("--model", tiny_model, "--kv-memory", "64MiB", "--kernels", "torch", "--frontends", "1")
    with serve(tmp_path / "log", *options) as served:
        engine, [front_end] = served.pids()
        httpx.post(f"{served.url}/tokenize", json={"prompt": WORDS[:100_000]}, timeout=HANG_S)  # the first is dearer
        for path, body in BODIES.items():
            content = json.dumps(body).encode()
            before = {pid: _settled(pid) for pid in (engine, front_end)}
            with ThreadPoolExecutor(6) as pool:
                posts = [pool.submit(httpx.post, served.url + path, content=content, timeout=HANG_S) for _ in range(6)]
                answers = [post.result() for post in posts]
            for pid, base in before.items():
                assert peak_bytes(pid) - base < 64 * MIB, path
            assert all(_is_refused(path, answer) for answer in answers), answers[0].text[:200]


def _settled(pid: int) -> int:
    peak_bytes(pid)
    return peak_bytes(pid)


def _is_refused(path: str, answer: httpx.Response) -> bool:
    return "out of range" in answer.text if path.startswith("/models") else answer.status_code in (200, 400)
