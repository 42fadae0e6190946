"""Option values as they arrive: strings from flags and the environment, typed values from YAML.

A parser takes either and returns the value, or raises `ValueError` with the rule it broke ("must be ...").
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chairlift.config.model_words import is_name
from chairlift.core.errors import InvalidConfig

Parser = Callable[[object], Any]

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kKmM]?)")
_COUNT_UNITS = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20}
_SUGGESTED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")  # as of `SamplingDefaults`
_NO_WORDS: Mapping[str, str] = MappingProxyType({})
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """What follows a name that is not known; a prefix that all have makes none of them closer."""
    close = get_close_matches(name.removeprefix(prefix), [each.removeprefix(prefix) for each in known], n=1)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value


def roles_text(value: object) -> str | None:
    """None for `none`: a file's roles can be taken back."""
    return None if value == "none" else text(value)


def _path(value: object) -> Path:
    return Path(text(value) if not isinstance(value, Path) else value).expanduser()


def existing_path(value: object) -> Path:
    if not (path := _path(value)).exists():
        raise ValueError("must be an existing file or folder")
    return path


def tokenizer_path(value: object) -> Path:
    """A path, or ORG/NAME: what the hub has is not known here."""
    path = _path(value)
    if not path.exists() and not is_name(str(value)):
        raise ValueError("must be an existing file or folder, or org/name on the hub")
    return path


def existing_folder(value: object) -> Path:
    if not (path := _path(value)).is_dir():
        raise ValueError("must be an existing folder")
    return path


def named_folders(value: object) -> tuple[tuple[str, Path], ...]:
    """NAME=PATH or {"name": ..., "path": ...}, several of them in a list, or a map of names to paths; a path is a
    folder or a name on the hub."""
    if isinstance(value, dict) and not {"name", "path"} <= value.keys():
        value = [f"{name}={path}" for name, path in value.items()]
    found = []
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, str) and each.lstrip().startswith("{"):
            each = json_object(each)
        if isinstance(each, Mapping):
            each = f"{each.get('name', '')}={each.get('path', '')}"
        name, _, path = each.partition("=") if isinstance(each, str) else ("", "", "")
        if not name.strip() or not path.strip():
            raise ValueError("must be NAME=PATH, such as sql=adapters/sql")
        folder = Path(path).expanduser()
        if not folder.is_dir() and not is_name(path):
            raise ValueError(f"must name an existing folder, or org/name on the hub, for {name}")
        found.append((name, folder))
    return tuple(found)


def names(value: object) -> tuple[str, ...]:
    """Text with commas between the names, or a list of such texts."""
    given = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else [None]
    found = [name.strip() for each in given for name in text(each).split(",")]
    if not all(found) or len(set(found)) != len(found):
        raise ValueError("must be names, each of them once")
    return tuple(found)


def template_text(value: object) -> str:
    """The template that a file holds, or that is given itself."""
    given = text(value)
    if "{{" in given or "{%" in given:
        return given
    try:
        return Path(given).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError("must be a readable file with a Jinja template, or the template itself") from error


def url_path(value: object) -> str:
    found = "/" + text(value).strip("/")
    if not re.fullmatch(r"(/[\w.~-]+)+", found, re.ASCII):
        raise ValueError("must be a path such as /llm")
    return found


def new_file(value: object) -> Path:
    if (path := _path(value)).is_dir() or not path.parent.is_dir():
        raise ValueError("must be a file in an existing folder")
    return path


def folder_path(value: object) -> Path:
    if (path := _path(value)).is_file() or not path.parent.is_dir():
        raise ValueError("must be a folder in an existing folder")
    return path


def check_new(folder: Path, option: str) -> None:
    """Refuses a folder with content: runs are never mixed."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidConfig(f"{option} {folder}: is there already; name a new folder, or remove it")


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise ValueError("must be true or false")


def whole(least: int, most: int = 2**31 - 1) -> Parser:
    """A whole number between `least` and `most`."""

    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value):
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"must be a whole number between {least} and {most}")
        return value

    return parse


def number(value: object) -> float:
    try:
        found = float(value) if type(value) in (int, float, str) else math.nan  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError("must be a number")
    return found


def _number_that(holds: Callable[[float], bool], rule: str) -> Parser:
    def parse(value: object) -> float:
        if not holds(found := number(value)):
            raise ValueError(f"must be {rule}")
        return found

    return parse


share = _number_that(lambda found: 0.0 < found <= 1.0, "a number above 0 and at most 1")
seconds = _number_that(lambda found: found > 0.0, "a number of seconds above 0")
seconds_or_0 = _number_that(lambda found: found == 0.0 or found >= 1.0, "a number of seconds from 1, or 0")


def num_bytes(value: object) -> int:
    """A size: a number of bytes, or a number with a unit (256MiB, 2GB)."""
    match = _SIZE.fullmatch(str(value).strip()) if type(value) in (int, str) else None
    unit = _UNITS.get(match[2].lower()) if match else None
    size = round(float(match[1]) * unit) if match and unit else 0
    if not 1 <= size < 2**60:
        raise ValueError("must be a size such as 512MiB or 2GB")
    return size


def context_length(value: object) -> int | None:
    """A number of tokens; 32k is 32,000, and 32K 32,768, as for vLLM. None for auto and -1: the model's."""
    match = _COUNT.fullmatch(str(value).strip()) if type(value) in (int, str) else None
    if value in ("auto", "-1", -1):
        return None
    size = float(match[1]) * _COUNT_UNITS[match[2]] if match else 0.0
    if not 2 <= size < 2**31 or size != int(size):
        raise ValueError("must be a number of tokens from 2, such as 4096 or 32k, or auto")
    return int(size)


def json_object(value: object) -> dict[str, Any]:
    """A map, its text, or several whose names are put together."""
    found: dict[str, Any] = {}
    for each in value if isinstance(value, list) else [value]:
        try:
            read = json.loads(each) if isinstance(each, str) else each
        except (ValueError, RecursionError):
            read = None
        if not isinstance(read, Mapping):
            raise ValueError('must be a JSON object, such as {"name": 1}')
        found |= {str(name): part for name, part in read.items()}
    return found


def generation_source(value: object) -> str:
    found = text(value)
    if found not in ("auto", "vllm") and not (Path(found).expanduser() / "generation_config.json").is_file():
        raise ValueError("must be auto, vllm, or a folder with generation_config.json")
    return found


def generation_values(value: object) -> dict[str, Any]:
    found = json_object(value)
    for name in found:
        if name not in _SUGGESTED:
            raise ValueError(f"must hold {', '.join(_SUGGESTED)} alone; requests say {name}")
    return found


def host_port(value: object) -> str:
    found = text(value)
    host, colon, port = found.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ValueError("must be HOST:PORT, such as 10.0.0.1:7000 or [fd00::1]:7000")
    return found


_ALL = ("", "*", "0.0.0.0", "[::]", "::")  # addresses of a machine


def reached(value: object) -> str:
    """An address that others connect to."""
    found = host_port(value)
    host, _, port = found.rpartition(":")
    if host in _ALL or not int(port):
        raise ValueError("must name a host and a port that others reach, such as 10.0.0.1:7000")
    return found


def reached_host(value: object) -> str:
    """The same, where any free port will do."""
    found = text(value)
    if found in _ALL:
        raise ValueError("must name a host that others reach, such as 10.0.0.1 or 10.0.0.1:7000")
    return reached(found) if ":" in found.rpartition("]")[2] else found


RAY = "ray://"


def cluster_address(value: object) -> str:
    """Where nodes join, or the Ray cluster that starts them."""
    found = text(value)
    if not found.startswith(RAY):
        return host_port(found)
    if found != f"{RAY}auto":
        host, _, _ = host_port(found.removeprefix(RAY)).rpartition(":")
        if not host:
            raise ValueError("must name the host of the Ray cluster: ray://HOST:PORT, or ray://auto")
    return found


def one_of(*names: str, also: Mapping[str, str] = _NO_WORDS) -> Parser:
    """`also`: other words for some of them."""

    def parse(value: object) -> str:
        found = also.get(value, value) if isinstance(value, str) else value
        if found not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return str(found)

    return parse


def redacted(url: str) -> str:
    """As it may be shown: `http://alice:secret@host:4318/v1?token=secret` becomes `http://***@host:4318/v1?***`."""
    scheme, slashes, rest = url.partition("//")
    _, at, host = rest.rpartition("@")
    path, mark, query = f"{scheme}{slashes}{'***' if at else ''}{at}{host}".partition("?")
    return f"{path}{mark}{'***' if query else ''}"
