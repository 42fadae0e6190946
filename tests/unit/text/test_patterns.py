"""No regular expression takes more than one pass over a text: each is tried on runs of every sign, and on 128 Ki of the
dearest.

The patterns are found in the source, with the methods by which they are used. One that is made while the server runs
has an example here.
"""

import ast
import importlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import chairlift

_SOURCE = Path(chairlift.__file__).parent
_NO_CLIENT = ("lab", "cli", "runner")  # rooms whose patterns see the operator's own texts alone
_SIGNS = [*map(chr, range(33, 48)), *":;<=>?@[]\\^_`{|}~", *" \n\ta0éZ\0\u2028\ue000\uff5c"]
_PAIRS = [
    "a\n",
    "\n ",
    "a ",
    "a.",
    "a=",
    "a:",
    "0.",
    "1e",
    "<|",
    "|>",
    "</",
    "<a",
    "%(",
    "//",
    '\\"',
    "\\'",
    "\\/",
    "\\[",
]
_LONG, _SHORT = 128 * 2**10, 2 * 2**10
# A pass that looks at each sign a few times; what needs one for each sign takes thousands.
_MOST = 300
_METHODS = ("match", "fullmatch", "search", "sub", "split", "findall", "finditer")
_ONCE = ("match", "fullmatch", "search")
# Made of values: by what is written in the source.
_MADE = {
    r"""f'\ue000{self._secret}(\\d*)\ue001'""": "\ue000secret(\\d*)\ue001",
    r"""f'k{self._mask_secret}-(\\d+)\\.'""": r"ksecret-(\d+)\.",
    "b'[0-9A-Za-z\\\\x80-\\\\xff][' + re.escape(b''.join((sign.encode()[:1] for sign in _SIGNS))) + b']'": "[0-9][ ]",
    "_tree(sorted(self._names))": r"<\|(?:end(?:_of)?\|>|start\|>)",
    "f'(?<=[^\\\\W_])[{kind}]{behind}'": r"(?<=[^\W_])[ \n](?=[^\W_])",
    "'|'.join(map(re.escape, ordered)) or '(?!)'": r"<tool_call>|</tool_call>|<\|end\|>",
    "f\"({'|'.join(map(re.escape, ordered))})\"": r"(<\|start\|>|<\|end\|>)",
    "f'[{quote}\\\\\\\\]'": r"['\\]",
    "pattern": r"self_attn\.(q|k)_proj",  # of an adapter's file: on the names of modules
    "f'(.*\\\\.)?({key})$'": r"(.*\.)?(self_attn\.(q|k)_proj)$",
}


def _found() -> Iterator[tuple[str, re.Pattern[str], str]]:
    """(place, pattern, method): each pattern of the source, by each method that it is used with in its file. One that
    is handed on is tried at each place of a text."""
    for path in sorted(_SOURCE.rglob("*.py")):
        text = path.read_text()
        if path.relative_to(_SOURCE).parts[0] in _NO_CLIENT or "re." not in text:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        names = {
            id(n.value): n.targets[0].id
            for n in nodes
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
        }
        used = [(n.value.id, n.attr) for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
        loaded = Counter(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        for node in nodes:
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called not in {f"re.{method}" for method in (*_METHODS, "compile")}:
                continue
            name = names.get(id(node), "")
            methods = [method for of, method in used if of == name and method in _METHODS]
            is_handed_on = called == "re.compile" and (not methods or loaded[name] > len(methods))
            pattern = _pattern(path, node, name)
            for method in {*methods, *["finditer"] * is_handed_on} if called == "re.compile" else [called[3:]]:
                yield f"{path.relative_to(_SOURCE)}:{node.lineno}", pattern, method


def _pattern(path: Path, node: ast.Call, name: str) -> re.Pattern[str]:
    module = importlib.import_module("chairlift." + ".".join(path.relative_to(_SOURCE).with_suffix("").parts))
    if isinstance(found := getattr(module, name, None), re.Pattern):
        return found if isinstance(found.pattern, str) else re.compile(found.pattern.decode("latin-1"))
    written = ast.unparse(node.args[0])
    if isinstance(node.args[0], ast.Constant):
        flags = [
            flag.attr
            for arg in node.args
            for flag in ast.walk(arg)
            if isinstance(flag, ast.Attribute) and hasattr(re, flag.attr)
        ]
        pattern = node.args[0].value
        text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
        return re.compile(text, sum(re.RegexFlag[flag] for flag in flags if flag in re.RegexFlag.__members__))
    if isinstance(node.args[0], ast.Name) and isinstance(found := getattr(module, node.args[0].id, None), str):
        return re.compile(found)
    assert written in _MADE, f"{path.name}:{node.lineno}: an example of {written} is missing"
    return re.compile(_MADE[written])


def _use(pattern: re.Pattern[str], method: str) -> Callable[[str], object]:
    if method in _ONCE:
        return getattr(pattern, method)
    return partial(pattern.sub, "")


def _seconds(use: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    use(text)
    return time.thread_time() - began


def _repeated(sign: str, length: int) -> str:
    return sign * (length // len(sign))


def test_every_pattern_takes_one_pass_over_any_run_of_signs() -> None:
    plain = re.compile("[ab]c").search
    short, long = (min(_seconds(plain, "x" * length) for _ in range(9)) for length in (_SHORT, _LONG))
    slow = []
    for place, pattern, method in _found():
        use = _use(pattern, method)
        seconds = {sign: _seconds(use, _repeated(sign, _SHORT)) for sign in (*_SIGNS, *_PAIRS)}
        worst = max(seconds, key=lambda sign: seconds[sign])
        for text, base in ((_repeated(worst, _SHORT), short), (_repeated(worst, _LONG), long)):
            if not any(_seconds(use, text) <= _MOST * base for _ in range(3)):  # the machine may be busy
                slow.append(f"{place}: {pattern.pattern!r} by {method} on {worst!r}")
                break
    assert slow == []
