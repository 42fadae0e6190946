import json
import logging
from collections.abc import Iterator

import pytest

from chairlift.telemetry.log_lines import MAX_TEXT, MAX_TRACEBACK, JsonLines, TextLines, said

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


HOSTILE = "\x1b[2J\x9b1m\r\n2026-01-01 INFO chairlift: forged" + "x" * 100_000


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_what_a_client_sent_takes_a_bounded_part_of_a_line_and_forges_none(
    logger: logging.Logger, formatter: logging.Formatter
) -> None:
    kept = Kept(formatter)
    logger.addHandler(kept)
    logger.warning("request failed: %s", HOSTILE, extra={"fields": {"path": HOSTILE}})
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        logger.error("failed", exc_info=error)
    said, failed = kept.lines
    assert len(said) < 2 * MAX_TEXT + 500
    assert len(failed) < MAX_TRACEBACK + 2000
    assert "\n" not in said
    assert not any(line.startswith("2026-01-01") for line in failed.split("\n"))
    assert "characters left out" in said and "characters left out" in failed
    assert all(character.isprintable() or character == "\n" for character in said + failed)


def test_prompts_that_are_to_be_logged_are_logged_whole(logger: logging.Logger) -> None:
    kept = Kept(JsonLines())
    logger.addHandler(kept)
    logger.info("request", extra={"fields": {"prompt": ["a" * 10_000], "output": "b" * 10_000}})
    assert len(json.loads(kept.lines[0])["output"]) == 10_000


def test_a_password_in_an_address_is_not_logged(logger: logging.Logger) -> None:
    kept = Kept(TextLines())
    logger.addHandler(kept)
    logger.warning("cannot reach %s", "http://alice:secret@collector:4318/v1/traces")
    assert kept.lines[0].endswith("cannot reach http://***@collector:4318/v1/traces")


def test_what_the_server_says_of_itself_is_a_line_of_json_too() -> None:
    assert said("ready") == "chairlift: ready"
    kept, root = Kept(JsonLines()), logging.getLogger()
    root.addHandler(kept)
    try:
        assert json.loads(said("ready"))["message"] == "ready"
    finally:
        root.removeHandler(kept)
