"""Grammars in Lark without a finite text are told from those that have one."""

import json
import time

import pytest

from chairlift.text.structured.endless import is_endless

A = '\na: "x" a'
ITSELF = json.dumps({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})


@pytest.mark.parametrize(
    "lark",
    [
        f"start: a{A}",
        "start: a\na: a a",
        f'start: (a | b) "x"{A}\nb: ("y" b)+',
        f'start: a "x"? a{A} | start // b: "y"',
        f'start: b* a{{1,3}}{A}\nb: "y"',
        f'start[lazy]: a{A} -> named\nnamed: "x"',
        'start: %lark {\nstart: a\na: "}" a\n} "y"',
        f'start: "a" %json {ITSELF}',
    ],
)
def test_what_comes_back_to_itself_on_every_way_is_endless(lark: str) -> None:
    assert is_endless(lark)


@pytest.mark.parametrize(
    "lark",
    [
        f'start: a{A} | "y"',
        f"start: a{A} |",
        f"start: a?{A}",
        f"start: a*{A}",
        f"start: [a]{A}",
        f"start: a{{0,2}}{A}",
        f'start: ("y" | a){A}',
        'start: "a" // start: start',
        'start: /a: start/ "start: start"',
        "%import common.INT\nstart: INT",
        'start: %lark {\nstart: "a" | start\n}',
        'start: %json {"type": "null"} | start',
        "start: @other",
        "start: x::[0] start",
        "start: ~start",
    ],
)
def test_what_ends_or_is_not_understood_is_not(lark: str) -> None:
    assert not is_endless(lark)


def test_rules_are_looked_at_once() -> None:
    chain = "\n".join(f"a{i}: a{i + 1}" for i in range(10_000))
    assert not is_endless(f'start: a0\n{chain}\na10000: "x"')  # by the square of the rules it would take minutes
    assert is_endless(f"start: a0\n{chain}\na10000: a5000")


def test_open_brackets_take_the_time_of_one_pass() -> None:
    times = []
    for text in ("a " * 16_384, "a[" * 16_384):
        began = time.thread_time()
        is_endless(f"start: {text}")
        times.append(time.thread_time() - began)
    assert times[1] < 20 * times[0]  # three times as long; fifty times where each looks for its own end
