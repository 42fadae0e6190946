import gc
import threading
import time
import weakref

import pytest

from chairlift.text import template
from chairlift.text.template import TemplateFails, run

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = b %}{% endfor %}{% endfor %}"
BREEDING = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"
DOUBLING = "{% set ns = namespace(x='ab') %}{% for i in range(999) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"


@pytest.mark.parametrize("program", [ENDLESS, BREEDING])
def test_a_template_that_takes_too_long_is_stopped(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MAX_SECONDS", 0.05)
    with pytest.raises(TemplateFails, match="takes more than"):
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
def test_a_template_that_would_make_too_much_is_refused(program: str) -> None:
    began = time.process_time()
    with pytest.raises(TemplateFails):
        run(program, {})
    assert time.process_time() - began < 5 * template.MAX_SECONDS


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
