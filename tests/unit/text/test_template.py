import gc
import signal
import threading
import time
import tracemalloc
import weakref
from pathlib import Path

import pytest

from chairlift.text import template, template_limits
from chairlift.text.template import run
from chairlift.text.template_limits import TemplateFails, TemplateTooCostly

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = b %}{% endfor %}{% endfor %}"
BREEDING = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"
DOUBLING = "{% set ns = namespace(x='ab') %}{% for i in range(999) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"


@pytest.mark.parametrize("program", [ENDLESS, BREEDING])
def test_a_template_that_takes_too_long_is_stopped(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MAX_SECONDS", 0.05)
    with pytest.raises(TemplateTooCostly, match="takes more than"):
        run(program, {})
    until = time.process_time() + 0.1
    while time.process_time() < until:  # the limit is not on whatever comes next
        pass


@pytest.mark.parametrize(
    "program",
    [
        DOUBLING,
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * ['a'] }}",
        "{{ 9 ** 99999999 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ ['a'] | batch(1000000000, 'b') | list }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
    ],
)
def test_a_template_that_would_make_too_much_is_refused(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MAX_SECONDS", 600.0)  # for what it makes, and not because it takes long
    with pytest.raises(TemplateFails):
        run(program, {})


LOOP = "{%% set ns = namespace(x=%s) %%}{%% for i in range(60) %%}{%% set ns.x = %s %%}{%% endfor %%}%s"
GROWING = {
    "plus": LOOP % ("'a'", "ns.x + ns.x", ""),
    "tilde": LOOP % ("'a'", "ns.x ~ ns.x", ""),
    "join": LOOP % ("'a'", "[ns.x, ns.x] | join", ""),
    "join with itself": LOOP % ("'ab'", "ns.x.join(ns.x)", ""),
    "percent": LOOP % ("'a'", "'%s%s' % (ns.x, ns.x)", ""),
    "percent by name": LOOP % ("'a'", "'%(a)s%(a)s' % {'a': ns.x}", ""),
    "format filter": LOOP % ("'a'", "'%s%s' | format(ns.x, ns.x)", ""),
    "braces": LOOP % ("'a'", "'{0}{0}'.format(ns.x)", ""),
    "replace": LOOP % ("'aa'", "ns.x.replace('a', 'aaa')", ""),
    "replace filter": LOOP % ("'aa'", "ns.x | replace('a', 'aaa')", ""),
    "json": LOOP % ("'a'", "ns.x | tojson", ""),
    "escape": "{{ ('<' * 200000) | e }}",
    "escape by plus": "{{ ('a' | safe) + '<' * 200000 }}",
    "list": LOOP % ("[1]", "ns.x + ns.x", ""),
    "list times": LOOP % ("[1]", "ns.x * 3", ""),
    "nested list": LOOP % ("[1]", "[ns.x, ns.x]", "{{ ns.x }}"),
    "nested tuple": LOOP % ("(1,)", "(ns.x, ns.x)", "{{ {ns.x: 1} }}"),
    "nested dict": LOOP % ("{}", "{'a': ns.x, 'b': ns.x}", "{{ ns.x == 1 }}"),
    "nested call": LOOP % ("{}", "dict(a=ns.x, b=ns.x)", ""),
    "nested views": LOOP % ("{'a': 1}", "{'a': ns.x.values(), 'b': ns.x.values()}", ""),
    "nested namespaces": LOOP % ("1", "namespace(a=ns.x, b=ns.x)", "{{ ns.x }}"),
    "arguments": "{% macro m() %}{{ varargs }}{% endmacro %}",
    "macro": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + LOOP % ("'a'", "m(ns.x)", ""),
    "set block": "{% set x %}{% for i in range(99) %}{{ 'a' * 9999 }}{% endfor %}{% endset %}",
    "filter block": "{% filter upper %}{% for i in range(99) %}{{ 'a' * 9999 }}{% endfor %}{% endfilter %}",
    "block": "{% block a %}{% for i in range(99) %}{{ 'a' * 9999 }}{% endfor %}{% endblock %}",
    "same text often": "{{ ['a' * 99999] * 99 }}",
    "same text as JSON": "{{ ['a' * 99999, 'a' * 99999] | tojson }}",
    "deep JSON": "{{ ([[[[[1]]]]] * 999) | tojson(indent=99) }}",
    "separators": "{{ (range(999) | list) | tojson(separators=('a' * 9999, 'b')) }}",
    "split": "{{ ('a ' * 200000).split() }}",
    "split lines": "{{ ('ab\n' * 100000).splitlines() }}",
    "characters": "{{ ('\u0436' * 400000) | list }}",
    "upper case": "{{ ('\xdf' * 400000).upper() }}",
    "title": "{{ ('ab ' * 100000) | title }}",
    "indent": "{{ ('a\n' * 9999) | indent(999) }}",
    "widths": "{{ '%*d' % (99, 1) }}{{ '{0:{1}}'.format(1, 999999) }}",
    "collisions": "{{ dict(range(99999)) }}",
    "web page": "{% autoescape true %}{{ 1 }}{% endautoescape %}",
    "other methods": "{{ 'a'.translate({97: 'b' * 999}) }}",
    "source": "{{ x }}" * 99999,
    "number": LOOP % ("9", "ns.x * ns.x", ""),
    "search": "{{ ('a' * 400000).rsplit('b' * 100000) }}",
    "strip": "{{ ('a' * 400000) | trim(chars='b' * 100000) }}",
}


@pytest.mark.parametrize("name", GROWING)
def test_what_makes_much_of_little_is_refused_before_it_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_CHARACTERS", 2**19)
    monkeypatch.setattr(template_limits, "MAX_WRITTEN", 2**17)
    monkeypatch.setattr(template_limits, "MAX_GATHERED", 2**18)
    monkeypatch.setattr(template, "MAX_SECONDS", 60.0)  # what stops it is not the clock
    tracemalloc.start()
    try:
        with pytest.raises(TemplateFails) as refusal:
            run(GROWING[name], {})
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()
    assert len(str(refusal.value)) < 600


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux, which tells a process's memory")
def test_what_takes_much_memory_in_many_steps_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MAX_GROWTH", 2**24)
    monkeypatch.setattr(template, "MAX_SECONDS", 60.0)
    with pytest.raises(TemplateTooCostly, match="too much memory"):
        run("{% set x %}{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}{% endset %}", {})


def test_a_profiler_gets_its_signal_back() -> None:
    def profile(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGPROF, profile)
    try:
        run("{{ 1 }}", {})
        assert signal.getsignal(signal.SIGPROF) is profile
    finally:
        signal.signal(signal.SIGPROF, before)


def test_a_long_conversation_can_be_gathered_in_a_loop() -> None:
    gathering = "{% set ns = namespace(t='', l=[]) %}{% for m in messages %}{% set ns.t = ns.t ~ m.content %}"
    gathering += "{% set ns.l = ns.l + [m] %}{% endfor %}{{ ns.t }}{{ ns.l | length }}"
    messages = [{"role": "user", "content": f"{i} words. " * 20} for i in range(500)]
    assert run(gathering, {"messages": messages}) == "".join(m["content"] for m in messages) + "500"


@pytest.mark.parametrize("content", ["words " * 1_300_000 + "\U0001f600", " words" * 1_300_000 + "\U0001f600\n"])
def test_the_longest_message_of_a_body_is_rendered(content: str) -> None:
    program = "{{ '<' + m.role + '>' + m.content.split('</t>')[-1] | trim + '</' ~ m.role ~ '>' }}"
    assert run(program, {"m": {"role": "a", "content": content}}) == f"<a>{content.strip()}</a>"


@pytest.mark.parametrize("program", ["{{ raise_exception('a' * 99999) }}", "{{ messages['a' * 99999].b }}"])
def test_messages_of_errors_are_short(program: str) -> None:
    with pytest.raises(TemplateFails, match="aaa") as refusal:
        run(program, {"messages": []})
    assert len(str(refusal.value)) < 600


def test_the_operations_of_templates_work_as_in_python() -> None:
    program = """{{ 'a' ~ 1 ~ [2] }}|{{ [1, 'b'] | join('-') }}|{{ [{'a': 1}, {'a': 2}] | join(',', attribute='a') }}|
{{- 'abc'[1:] }}|{{ messages[::-1] }}|{{ ('<' | safe) + '<' }}|{{ '**%s** %r' % ('a', 'b') }}|
{{- '{:>3}{a}'.format(1, a=2) }}|{{ ['b', 'A'] | sort | list }}|{{ 'a b'.split() }}|
{{- dict(a=1) }}|{{ {'a': x} }}|{{ (x, 1) }}|{{ 'aXb' | replace('X', 1) }}|{{ 'abcdefghijkl' | truncate(6) }}|
{{- ' a ' | trim | upper }}|{{ 'ab' | list }}|{{ range(3) | map('string') | list }}|{{ 7 - 2 }}|
{{- 'a\nb' | indent(1) }}|{{ '-'.join(messages | map('string')) }}|{{ {'a': 1}.items() | list }}|{{ '7' | int }}"""
    expected = (
        "a1[2]|1-b|1,2|bc|[2, 1]|<&lt;|**a** 'b'|  12|['A', 'b']|['a', 'b']|{'a': 1}|{'a': 5}|(5, 1)|a1b|abc...|A"
        "|['a', 'b']|['0', '1', '2']|5|a\n b|1-2|[('a', 1)]|7"
    )
    assert run(program, {"messages": [1, 2], "x": 5}) == expected


@pytest.mark.parametrize("program", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{% include 'x' %}"])
def test_a_template_reaches_nothing_outside(program: str) -> None:
    with pytest.raises(TemplateFails):
        run(program, {"messages": []})


def test_ordinary_sums_and_padding_still_work() -> None:
    program = "{{ 'ab' * 3 }}{{ 2 ** 10 }}{{ '%05d' % 7 }}{{ 'a' | center(3) }}{{ [1] | tojson(indent=2) }}{{ 1 + 1 }}"
    assert run(program, {}) == "ababab102400007 a [\n  1\n]2"


def test_templates_run_in_other_threads_too() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(run("{{ x }}", {"x": 1})))
    thread.start()
    thread.join()
    assert found == ["1"]


@pytest.mark.parametrize("program", ["{{ x }", "{{ raise_exception('no') }}", "{{ 1 // 0 }}"])
def test_a_template_that_fails_keeps_nothing_of_its_callers(program: str) -> None:
    class Held:
        pass

    def call() -> weakref.ref[Held]:
        held = Held()
        with pytest.raises(TemplateFails):
            run(program, {"x": 1})
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()


def test_a_mistake_in_a_template_is_told_in_one_line() -> None:
    with pytest.raises(TemplateFails, match=r"^refuses them: unexpected '}'$"):
        run("{{ x }", {})
