import json
import logging
from collections.abc import Iterator

import pytest

from chairlift.telemetry.log_lines import JsonLines, TextLines, said

FIELDS = {"id": "abc", "ttft_s": 0.25, "output": 'two\nlines "quoted"'}


class Kept(logging.Handler):
    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tests.log_lines")
    logger.setLevel("INFO")
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def test_a_line_of_json_holds_the_message_and_what_else_was_said(logger: logging.Logger) -> None:
    kept = Kept(JsonLines())
    logger.addHandler(kept)
    logger.info("request %s", "ended", extra={"fields": FIELDS})
    (line,) = kept.lines
    assert "\n" not in line
    read = json.loads(line)
    assert read.pop("time").endswith("Z")
    assert read == {"level": "info", "logger": "tests.log_lines", "message": "request ended", **FIELDS}


def test_an_exception_stays_on_its_line_of_json(logger: logging.Logger) -> None:
    kept = Kept(JsonLines())
    logger.addHandler(kept)
    try:
        raise ValueError("no")
    except ValueError as error:
        logger.error("failed", exc_info=error)
    (line,) = kept.lines
    assert "\n" not in line
    assert "ValueError: no" in json.loads(line)["exception"]


def test_text_has_the_fields_as_words_and_stays_on_one_line(logger: logging.Logger) -> None:
    kept = Kept(TextLines())
    logger.addHandler(kept)
    logger.info("request ended", extra={"fields": FIELDS})
    (line,) = kept.lines
    assert line.endswith(r'INFO tests.log_lines: request ended id=abc ttft_s=0.25 output="two\nlines \"quoted\""')


def test_what_the_server_says_of_itself_is_a_line_of_json_too() -> None:
    assert said("ready") == "chairlift: ready"
    kept, root = Kept(JsonLines()), logging.getLogger()
    root.addHandler(kept)
    try:
        assert json.loads(said("ready"))["message"] == "ready"
    finally:
        root.removeHandler(kept)
