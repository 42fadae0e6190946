"""Jinja's sandbox for chat templates, in which no single operation makes anything large or takes long.

Always: a text has at most `MAX_CHARACTERS`, and all lists of a rendering together `MAX_GATHERED`, counting repeated
parts. Operations that can multiply their input are checked first; texts and lists have only the methods that templates
use, and there are no filters for web pages. The sum of many operations is bounded in `template`, by time and memory.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import nodes, pass_context, pass_environment
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_int, do_round, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

MAX_CHARACTERS = 16 * 2**20  # of a text; a body is 8 MiB unless the operator says otherwise
MAX_WRITTEN = 4 * 2**20  # of a list as text or JSON, where escapes can make twelve of each, and of a filled-in format
MAX_GATHERED = 32 * 2**20  # of all lists of a rendering: comparing two takes no longer than so many characters
MAX_SMALL = 10_000  # a width, the length of a format, the pairs of a dict (of one hash, they take their square)
MAX_BITS = 4096  # of a product or a power
MAX_MESSAGE = 500  # characters of an error
_ITEM = 16  # characters that take as much memory as a small value in a list
_ESCAPED = 5  # characters for each, at most, when a text is escaped for HTML
_WIDTHS = re.compile(r"\d{5}|%[-+ #0\d.]*\*|:[^{}:]*\{")  # five digits, or a width given as an argument
_left: ContextVar[int] = ContextVar("left")  # of MAX_GATHERED, for this rendering


class TemplateFails(Exception):
    """A template refuses its input, fails on it, or takes too much for it; the message says which."""


class TemplateTooCostly(TemplateFails):
    """It takes too much time or memory: trying it on other forms of the input would cost as much again."""


def grant() -> None:
    """Begin a rendering."""
    _left.set(MAX_GATHERED)


def joined(parts: Iterable[str]) -> str:
    texts, size = [], 0
    for part in parts:
        size += len(part)
        _fit(size)
        texts.append(part)
    return "".join(texts)


def _fit(size: int, limit: int | None = None) -> None:
    if size > (MAX_CHARACTERS if limit is None else limit):
        raise TemplateTooCostly("makes too much of them")


def _weight(value: Any, limit: int) -> int:
    """An upper bound on the characters of a value as text, escapes aside."""
    total, waiting = 0, [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, list | tuple | dict):
            waiting += (*value, *value.values()) if isinstance(value, dict) else value
            total += _ITEM * len(value)
        elif isinstance(value, Namespace):  # may hold itself
            raise TemplateFails("puts a namespace into a list")
        else:
            total += _ITEM + (value.bit_length() // 3 if isinstance(value, int) else 0)
        _fit(total, limit)
    return total


def _gathered(value: Any, times: int = 1) -> Any:
    """Counts a list or dict that the template makes."""
    weight = _weight(value, _left.get()) * times
    _fit(weight, _left.get())
    _left.set(_left.get() - weight)
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    _weight(value, MAX_WRITTEN)
    return str(value)


# The size of what operators, methods and filters make, checked before they run


def _plus(left: Any, right: Any) -> None:
    if isinstance(left, str) and isinstance(right, str):
        _fit((len(left) + len(right)) * (1 if type(left) is type(right) else _ESCAPED))
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        _gathered(min(left, right, key=len))  # the longer one was counted when it was made: lists grow in loops


def _times(left: Any, right: Any) -> None:
    for one, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(one, int):
            _fit(one.bit_length() + times.bit_length(), MAX_BITS)
        elif isinstance(times, int) and isinstance(one, str):
            _fit(len(one) * times)
        elif isinstance(times, int) and isinstance(one, list | tuple):
            _gathered(one, max(0, times))


def _power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _fit(left.bit_length() * abs(right), MAX_BITS)


def _fill(form: Any, values: Any, mark: str = "%") -> None:
    """Each mark of the format may stand for all of the values."""
    if isinstance(form, str):
        _fit(len(form), MAX_SMALL)
        if _WIDTHS.search(form):
            raise TemplateFails("pads something too far")
        _fit(form.count(mark) * (MAX_SMALL + _weight(values, MAX_WRITTEN)), MAX_WRITTEN)


def _strip(text: str, chars: str | None = None, **_: Any) -> None:
    _fit(len(text) * len(chars or "") // 32)  # compares each with each, a nanosecond a pair


def _split(text: str, sep: str | None = None, maxsplit: int = -1, **_: Any) -> None:
    num_cuts = text.count(sep) if sep else len(text) // 2
    _fit(_ITEM * (num_cuts if maxsplit < 0 else min(num_cuts, maxsplit)))
    _strip(text, sep)


_BEFORE: dict[str, Callable[..., None]] = {
    "+": _plus,
    "*": _times,
    "**": _power,
    "%": _fill,
    "indent": lambda text, width=4, *_, **__: _fit(len(text) * max(_ITEM // 2, width + 1)),
    "join": lambda text, parts, **_: _fit(sum(map(len, parts)) + len(text) * len(parts)),
    "replace": lambda text, old, new, *_, **__: _fit(len(text) + text.count(_text(old)) * len(_text(new))),
    **dict.fromkeys(("capitalize", "lower", "upper"), lambda text, **_: _fit(len(text) * (1 if text.isascii() else 3))),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), lambda _, width=80, *__, **___: _fit(width, MAX_SMALL)),
    **dict.fromkeys(("e", "escape"), lambda text: _fit(len(text) * _ESCAPED)),
    **dict.fromkeys(("lstrip", "rstrip", "strip", "trim"), _strip),
    **dict.fromkeys(("rsplit", "split"), _split),
    **dict.fromkeys(("safe", "string", "truncate"), lambda text, *_, **__: _fit(len(text))),
    **dict.fromkeys(("splitlines", "title"), lambda text, *_, **__: _split(text)),
}
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(_BEFORE)
    | {"count", "endswith", "find", "format", "index", "partition", "removeprefix", "removesuffix", "startswith"}
    | {"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "isupper"},
    **dict.fromkeys((list, tuple), frozenset(("copy", "count", "index"))),
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    **dict.fromkeys((Markup, bool, int, float), frozenset()),
}
_VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()))
_TEXT_FILTERS = (
    *("capitalize", "center", "e", "escape", "indent", "lower", "replace"),
    *("safe", "string", "title", "trim", "truncate", "upper"),
)
_LIST_FILTERS = ("dictsort", "list", "max", "min", "sort", "unique")
_SMALL_FILTERS = (
    *("abs", "attr", "count", "d", "default", "first", "float", "items", "last", "length", "map"),
    *("reject", "rejectattr", "reverse", "select", "selectattr"),
)


def _guarded(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context  # also keeps the compiler from evaluating it
    @wraps(filter_, updated=())
    def call(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        if name in _TEXT_FILTERS:
            value = _text(value)
            _BEFORE[name](value, *args, **kwargs)
        elif isinstance(value, str):
            _fit(_ITEM * len(value))
        lead = (context.environment,) if hasattr(filter_, "jinja_pass_arg") else ()
        made = filter_(*lead, value, *args, **kwargs)
        return _gathered(made) if isinstance(made, list) else made

    return call


@pass_environment
def _join(environment: "Sandbox", value: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
    found = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    texts, separator = [_text(part) for part in found], str(_text(d))
    _BEFORE["join"](separator, texts)
    return separator.join(texts)


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    _fill(_text(value), kwargs or args)
    return _text(value) % (kwargs or args)


def _replace(text: str, old: Any, new: Any, count: int = -1) -> str:
    return str(text).replace(_text(old), _text(new), count)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    # Jinja's own filter escapes HTML characters, which a prompt must not have.
    _weight(value, MAX_WRITTEN)
    if indent is None and separators is None:
        return json.dumps(value, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
    _fit(len(indent) if isinstance(indent, str) else indent or 0, MAX_SMALL)
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return joined(encoder.iterencode(value))


_OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "~": lambda parts: joined(map(_text, parts)),
    "[]": _gathered,
    "format": _format,
    "int": lambda value, default=0: do_int(value, default),
    "join": _join,
    "round": lambda value, precision=0, method="common": do_round(value, min(precision, 100), method),
    "tojson": _to_json,
}


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    pairs = [*(args[0].items() if isinstance(args[0], dict) else args[0])] if args else []
    _fit(len(pairs), MAX_SMALL)
    return cast(dict[Any, Any], _gathered(dict(pairs, **kwargs)))


def _raise(message: Any) -> NoReturn:
    raise jinja2.TemplateError(_text(message)[:MAX_MESSAGE])


def _now(form: str) -> str:
    return datetime.now().strftime(form[:MAX_MESSAGE])


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; here it only groups."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Rewritten(NodeTransformer):
    """Turns operations that Jinja would compile into plain Python into filters."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return nodes.Filter(nodes.List(node.nodes), "~", [], [], None, None, lineno=node.lineno)

    def visit_List(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        is_target = isinstance(node, nodes.Tuple) and node.ctx != "load"
        is_literal = all(isinstance(part, nodes.Literal | nodes.Pair) for part in node.find_all(nodes.Node))
        return node if is_target or is_literal else nodes.Filter(node, "[]", [], [], None, None, lineno=node.lineno)

    visit_Tuple = visit_Dict = visit_List

    def visit_Name(self, node: nodes.Name) -> nodes.Name:
        if node.name in ("varargs", "kwargs"):  # lists without list syntax
            raise TemplateFails(f"uses {node.name}, which is not supported")
        return node

    def visit_ScopedEvalContextModifier(self, node: nodes.Node) -> NoReturn:
        raise TemplateFails("uses autoescape, which is for web pages")


class Sandbox(ImmutableSandboxedEnvironment):
    """Checks operators, methods and filters by `_BEFORE`, and attributes by `_METHODS`."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))
    concat = staticmethod(joined)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols], finalize=_text
        )
        known = self.filters | {"list": list, "replace": _replace}
        guarded = {name: _guarded(name, known[name]) for name in (*_TEXT_FILTERS, *_LIST_FILTERS)}
        self.filters = {name: known[name] for name in _SMALL_FILTERS} | guarded | _OWN_FILTERS
        self.globals = {"dict": _dict, "namespace": lambda *args, **kwargs: Namespace(_dict(*args, **kwargs))}
        self.globals |= {"raise_exception": _raise, "range": safe_range, "strftime_now": _now}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _BEFORE[operator](left, right)
        return self.binop_table[operator](left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str) and obj.__name__ in _BEFORE:
            args = ([*args[0]],) if obj.__name__ == "join" else args  # an iterator has its parts once
            _BEFORE[obj.__name__](owner, *args, **kwargs)
        made = super().call(context, obj, *args, **kwargs)
        return [*made] if isinstance(made, _VIEWS) else made

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        allowed = _METHODS.get(type(obj))
        return super().is_safe_attribute(obj, attr, value) if allowed is None else attr in allowed

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)

        def call(*args: Any, **kwargs: Any) -> str:
            _fill(value.__self__, [args, kwargs], "{")
            return cast(Callable[..., str], wrapped)(*args, **kwargs)

        return call if wrapped else None

    def handle_exception(self, source: str | None = None) -> NoReturn:
        """Unchanged: with Jinja's frames for the template an error is a reference cycle that keeps its callers."""
        raise cast(BaseException, sys.exception())  # in no variable: a frame that holds its error is a cycle too

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        return super()._generate(_Rewritten().visit(source), *args, **kwargs)
