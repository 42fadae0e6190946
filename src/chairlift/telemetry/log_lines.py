"""How log lines look: text for people, or one JSON object a line for machines.

Always: a line of JSON has `time`, `level`, `logger` and `message`, then what else was said of it as `fields`.
"""

import json
import logging
import sys
import time
from datetime import UTC, datetime

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _line(record.created, record.levelname, record.name, record.getMessage())
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        return super().formatMessage(record) + "".join(f" {name}={_word(value)}" for name, value in fields.items())


def set_up_logging(level: str, form: str) -> None:
    """For this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def said(text: str) -> str:
    """What the server says of itself whatever the level, as a line like the others."""
    if any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers):
        return json.dumps(_line(time.time(), "INFO", "chairlift", text), ensure_ascii=False)
    return f"chairlift: {text}"


def _line(at: float, level: str, logger: str, message: str) -> dict[str, object]:
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": moment, "level": level.lower(), "logger": logger, "message": message}


def _word(value: object) -> str:
    """One word, whatever it is: what a client sent cannot look like another line."""
    text = str(value)
    return text if text.isprintable() and " " not in text and '"' not in text and text else json.dumps(text)
