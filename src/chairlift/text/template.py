"""Chat templates: Jinja programs that come with the weights, run in a sandbox with limits on time and size.

They have the few functions that templates of the Hugging Face format expect. Always: rendering ends with a text of at
most `MAX_CHARACTERS`, or with `TemplateFails`. A template cannot reach Python's own objects or files, nor change what
it is given. The limit on time holds in the main thread, which is where a server renders; a single operation that would
make something huge is refused before it does.
"""

import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_SECONDS = 1.0  # of processor time; the longest conversation that a body can hold takes a tenth
MAX_CHARACTERS = 64 * 2**20  # of the text, and of anything made on the way by repeating or padding
MAX_NUMBER = 10**7  # given to whatever pads, repeats or cuts
_WIDTHS = re.compile(r"\d{8,}|\*")  # of a format
_PADDING_FILTERS = ("center", "indent", "wordwrap", "batch", "slice", "truncate", "round")


class TemplateFails(Exception):
    """A template refuses what it is given, fails on it, or takes too long over it; the message says which."""


def run(template: str, variables: dict[str, Any]) -> str:
    parts: list[str] = []
    size = 0
    try:
        with _limited():
            for part in _compiled(template).generate(variables):
                size += len(part)
                if size > MAX_CHARACTERS:
                    raise TemplateFails("makes too long a text of them")
                parts.append(part)
    except TemplateFails:
        raise
    except jinja2.TemplateError as error:
        raise TemplateFails(f"refuses them: {error.message}") from error
    except RecursionError as error:
        raise TemplateFails("does not end") from error
    except Exception as error:  # a template is a program of its own and can fail in any way
        raise TemplateFails(f"fails on them: {error}") from error
    return "".join(parts)


class _Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here it only groups."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("*", "**", "%", "+"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for one, other in ((left, right), (right, left)):
                if isinstance(other, int) and not isinstance(one, int | float) and len(one) * other > MAX_CHARACTERS:
                    raise TemplateFails("repeats something too often")
        if operator == "+" and isinstance(left, str) and len(left) > MAX_CHARACTERS:
            raise TemplateFails("makes too long a text of them")
        if operator == "**" and isinstance(left, int) and isinstance(right, int) and abs(right) > 64:
            raise TemplateFails("raises a number too high")
        if operator == "%" and isinstance(left, str) and _WIDTHS.search(left):
            raise TemplateFails("pads something too far")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        _check_numbers(args, kwargs)
        if isinstance(getattr(obj, "__self__", None), str) and obj.__name__ in ("format", "format_map"):
            _check_widths(obj.__self__)
        return super().call(context, obj, *args, **kwargs)

    def handle_exception(self, source: str | None = None) -> NoReturn:
        """As it is. With frames that point into the template, as Jinja makes them, an error is a circle that holds
        everything its callers have."""
        raise cast(BaseException, sys.exception())  # in no variable: a frame that holds its error is a circle too


def _guarded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter_)  # what the filter wants to be given is written on it
    def call(*args: Any, **kwargs: Any) -> Any:
        _check_numbers(args, kwargs)
        return filter_(*args, **kwargs)

    return call


def _check_numbers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if any(isinstance(value, int) and abs(value) > MAX_NUMBER for value in (*args, *kwargs.values())):
        raise TemplateFails(f"works with a number beyond {MAX_NUMBER}")


def _check_widths(form: str) -> None:
    if _WIDTHS.search(form):
        raise TemplateFails("pads something too far")


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    for name in _PADDING_FILTERS:
        environment.filters[name] = _guarded(environment.filters[name])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment.from_string(template)


@contextmanager
def _limited() -> Iterator[None]:
    """Raises `TemplateFails` inside when too much processor time has gone by; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_running = True

    def stop(_number: int, _frame: object) -> None:
        if is_running:
            raise TemplateFails(f"takes more than {MAX_SECONDS:g} s over them")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        yield
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML characters, which a prompt must not have.
    _check_numbers((indent,), {})
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
