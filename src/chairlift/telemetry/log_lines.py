"""Log lines: text for people, or one JSON object a line for machines.

Always: a JSON line has `time`, `level`, `logger` and `message`, then the record's `fields`. Messages, fields and
tracebacks have bounds (logged prompts and answers have none), hold no control characters and cannot look like another
line. User names and passwords in addresses are left out. Once set up, no line waits for the log to be read.
"""

import atexit
import contextlib
import json
import logging
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from typing import Any

MAX_TEXT = 2048  # characters of a message or a field
MAX_TRACEBACK = 16_384
MAX_WAITING = 2**20  # bytes of lines; a longer line waits alone
_FLUSH_S = 1.0
WHOLE_FIELDS = ("prompt", "output")  # of `--log-prompts`
_IN_ADDRESS = re.compile(r"(?<=://)[^\s/@]+@")
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNFIT_IN_LINES = re.compile(_UNFIT.pattern.replace(r"\x00-\x1f", r"\x00-\x09\x0b-\x1f"))
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _line(record.created, record.levelname, record.name, _short(record.getMessage(), MAX_TEXT))
        line |= {name: _bounded(name, value) for name, value in getattr(record, "fields", {}).items()}
        if record.exc_info:
            line["exception"] = _short(self.formatException(record.exc_info), MAX_TRACEBACK)
        return _escaped(_UNFIT, json.dumps(line, ensure_ascii=False, default=str))


class TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # of another handler, without bounds
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _escaped(_UNFIT, _short(record.message, MAX_TEXT))
        fields = getattr(record, "fields", {})
        words = [f" {name}={_word(_bounded(name, value))}" for name, value in fields.items()]
        return super().formatMessage(record) + "".join(words)

    def formatException(self, ei: Any) -> str:
        """Each line behind a bar, with which no line of the log begins."""
        text = _escaped(_UNFIT_IN_LINES, _short(super().formatException(ei), MAX_TRACEBACK))
        return "\n".join(f"| {line}" for line in text.split("\n"))


def set_up_logging(level: str, form: str) -> None:
    """For this process."""
    handler = _QueuedLines()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    atexit.register(flush_log)


class _QueuedLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.queue = LogQueue(partial(write_whole, sys.stderr.fileno()), _dropped)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put(self.format(record))
        except Exception:
            self.handleError(record)


def say(text: str, level: str = "INFO") -> None:
    """Prints a line whatever the level."""
    line, queues = said(text, level), _queues()
    for queue in queues:
        queue.put(line)
    if not queues:
        with contextlib.suppress(OSError):  # a full disk of the log, say
            print(line, file=sys.stderr, flush=True)


def flush_log() -> None:
    """Before this process ends; takes a second at most."""
    for queue in _queues():
        queue.flush()


def num_dropped() -> int:
    """Lines of this process that were not written."""
    return sum(queue.num_dropped for queue in _queues())


def _queues() -> "list[LogQueue]":
    """One, where logging is set up."""
    return [handler.queue for handler in logging.getLogger().handlers if isinstance(handler, _QueuedLines)]


def _dropped(count: int) -> str:
    return said(
        f"{count} log line{'s were' if count > 1 else ' was'} dropped: the log was not read or is full", "WARNING"
    )


def said(text: str, level: str = "INFO") -> str:
    """A line that the server prints whatever the level, in the format of the others."""
    if any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers):
        return json.dumps(_line(time.time(), level, "chairlift", text), ensure_ascii=False)
    return f"chairlift: {'warning: ' if level == 'WARNING' else ''}{text}"


def _line(at: float, level: str, logger: str, message: str) -> dict[str, object]:
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": moment, "level": level.lower(), "logger": logger, "message": message}


def _bounded(name: str, value: object) -> object:
    return value if name in WHOLE_FIELDS or not isinstance(value, str) else _short(value, MAX_TEXT)


def _short(text: str, most: int) -> str:
    """The beginning and the end of a longer text."""
    half = most // 2
    if len(text) > most:
        text = f"{text[:half]} ... {len(text) - 2 * half:,} characters left out ... {text[-half:]}"
    return _IN_ADDRESS.sub("***@", text)


def _escaped(unfit: re.Pattern[str], text: str) -> str:
    return unfit.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _word(value: object) -> str:
    """One word, so that a client's text cannot look like another line."""
    text = str(value)
    return text if text.isprintable() and " " not in text and '"' not in text and text else json.dumps(text)


class LogQueue:
    """Lines on their way out, which a thread writes. They come out whole and in order; those beyond `MAX_WAITING`, and
    those that cannot be written, are dropped and counted, and a line says how many once the log takes lines again."""

    def __init__(self, write: Callable[[bytes], None], dropped: Callable[[int], str]) -> None:
        """`write` may block or raise `OSError`. `dropped`: the line that tells of so many lines."""
        self._write, self._dropped = write, dropped
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._lock = threading.RLock()  # a signal's handler may log too
        self._num_put = self._num_taken = 0  # bytes
        self._num_failed = self._num_refused = self._num_told = 0  # lines
        threading.Thread(target=self._run, name="log", daemon=True).start()

    @property
    def num_dropped(self) -> int:
        return self._num_failed + self._num_refused

    def put(self, line: str) -> None:
        data = f"{line}\n".encode(errors="backslashreplace")
        with self._lock:
            if 0 < self._num_waiting > MAX_WAITING - len(data):
                self._num_refused += 1
                return
            self._num_put += len(data)
        self._lines.put(data)

    def flush(self) -> None:
        """Waits until all is written, for a second at most."""
        deadline = time.monotonic() + _FLUSH_S
        while self._num_waiting and time.monotonic() < deadline:
            time.sleep(0.001)

    @property
    def _num_waiting(self) -> int:
        return self._num_put - self._num_taken

    def _run(self) -> None:
        while True:
            data = self._lines.get()
            if not self._is_written(data):
                self._num_failed += 1
            self._num_taken += len(data)
            if self._num_told < self.num_dropped and self._num_waiting <= MAX_WAITING // 2:
                self._tell()

    def _tell(self) -> None:
        num_dropped = self.num_dropped
        if self._is_written(f"{self._dropped(num_dropped - self._num_told)}\n".encode()):
            self._num_told = num_dropped

    def _is_written(self, data: bytes) -> bool:
        try:
            self._write(data)
        except OSError:  # a full disk, say
            return False
        return True


def write_whole(file: int, data: bytes) -> None:
    """To a descriptor that may not block."""
    while data:
        try:
            data = data[os.write(file, data) :]
        except BlockingIOError:
            select.select([], [file], [])
