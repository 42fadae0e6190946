"""Sends the requests of a batch, many at once, and hands over each answer as it comes."""

import json
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from chairlift.cli.talking.batch_file import BatchRequest, answer_line, problem_line
from chairlift.core.errors import ChairliftError
from chairlift.lab.bench.probe import answering
from chairlift.lab.bench.target import Address

_TIMEOUT_S = 3600.0  # for an answer
_BUSY = (429, 503)  # refused for now
_MAX_TRIES = 60
_PAUSE_S = 1.0
_MAX_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    line: str  # of the file of answers
    is_good: bool
    num_tokens: int = 0  # generated


def outcomes(requests: Iterable[BatchRequest], address: Address, api_key: str, concurrency: int) -> Iterator[Outcome]:
    """One for each request, in the order in which they end."""
    waiting: queue.SimpleQueue[BatchRequest] = queue.SimpleQueue()
    ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    num = 0
    for request in requests:
        waiting.put(request)
        num += 1
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {api_key}"} if api_key else {})}

    def work() -> None:
        while True:
            try:
                request = waiting.get_nowait()
            except queue.Empty:
                return
            ended.put(_outcome(request, address, headers))

    for _ in range(min(num, concurrency)):
        threading.Thread(target=work, daemon=True).start()  # an interrupt waits for none
    for _ in range(num):
        yield ended.get()


def _outcome(request: BatchRequest, address: Address, headers: dict[str, str]) -> Outcome:
    if request.problem:
        return Outcome(problem_line(request, "invalid_line", request.problem), False)
    try:
        status, id, body = _ask(request, address, headers)
    except ChairliftError as error:
        return Outcome(problem_line(request, "no_answer", str(error)), False)
    usage = body.get("usage") if isinstance(body, dict) else None
    num_tokens = int(usage.get("completion_tokens") or 0) if isinstance(usage, dict) else 0
    return Outcome(answer_line(request, status, id, body), status == 200, num_tokens)


def _ask(request: BatchRequest, address: Address, headers: dict[str, str]) -> tuple[int, str, Any]:
    """Status, request id and body; asked again where the server is busy."""
    content = json.dumps(request.body).encode()
    for num_tries in range(1, _MAX_TRIES + 1):
        with answering(address, "POST", request.path, headers, content, _TIMEOUT_S) as answer:
            body = answer.read()
            if answer.status not in _BUSY or num_tries == _MAX_TRIES:
                return answer.status, answer.getheader("X-Request-Id") or "", _decoded(body)
            pause = answer.getheader("Retry-After") or ""
        time.sleep(min(float(pause) if pause.isdecimal() else _PAUSE_S, _MAX_PAUSE_S))
    raise AssertionError("the last try returns")


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
