"""Clients that read streams, as threads beside a test."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from fakes.patience import HANG_S, wait_until


class Streams:
    """Requests in flight, each in a thread of its own."""

    def __init__(self, url: str, body: dict[str, Any], num: int) -> None:
        self.num_begun = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(num)
        self._answers = [self._pool.submit(self._read, url, body) for _ in range(num)]
        wait_until(lambda: self.num_begun == num)

    def _read(self, url: str, body: dict[str, Any]) -> str:
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=HANG_S) as response:
            assert response.status_code == 200
            parts = response.iter_text()
            text = next(parts)
            with self._lock:
                self.num_begun += 1
            return text + "".join(parts)

    def texts(self) -> list[str]:
        return [answer.result(HANG_S) for answer in self._answers]
