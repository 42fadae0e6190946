"""Chat templates: Jinja programs that come with the weights, run in a sandbox with limits on time and memory.

Always: rendering ends with a text or with `TemplateFails`. No single operation makes anything large
(`template_limits`), and a timer stops a template that takes too much time or memory; only in the main thread, where a
server renders. A template cannot reach Python's own objects or files, nor change its input.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jinja2

from chairlift.core.errors import InvalidConfig
from chairlift.text.template_limits import MAX_MESSAGE, Sandbox, TemplateFails, TemplateTooCostly, grant, joined

MAX_SECONDS = 1.0  # of the thread's processor time; 8 MiB in messages of a KiB take up to 0.4
MAX_GROWTH = 128 * 2**20  # bytes that the process may grow by after the first tick
MAX_SOURCE = 2**18  # characters; known templates have up to 30,000
_TICK_S = 0.01  # of the process's processor time: most renderings end before the first


def run(template: str, variables: dict[str, Any]) -> str:
    if len(template) > MAX_SOURCE:
        raise TemplateFails(f"is longer than {MAX_SOURCE} characters")
    grant()
    try:
        with _limited():
            return joined(_compiled(template).generate(variables))
    except TemplateFails:
        raise
    except jinja2.TemplateError as error:
        raise TemplateFails(f"refuses them: {str(error.message)[:MAX_MESSAGE]}") from error
    except RecursionError as error:
        raise TemplateFails("does not end") from error
    except Exception as error:  # a template is a program of its own and can fail in any way
        raise TemplateFails(f"fails on them: {str(error)[:MAX_MESSAGE]}") from error


def check(template: str) -> None:
    """Raises `InvalidConfig` for a template of the user's that cannot be read."""
    try:
        _compiled(template)
    except jinja2.TemplateSyntaxError as error:
        raise InvalidConfig(f"--chat-template: line {error.lineno}: {error.message}") from error


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    return Sandbox().from_string(template)


@contextmanager
def _limited() -> Iterator[None]:
    """Raises `TemplateTooCostly` inside at the first tick past a limit; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    until_s: float | None = time.thread_time() + MAX_SECONDS
    held_first = 0

    def tick(_number: int, _frame: object) -> None:
        nonlocal held_first
        if until_s is None:
            return
        if time.thread_time() > until_s:
            raise TemplateTooCostly(f"takes more than {MAX_SECONDS:g} s over them")
        held = _held_bytes()
        held_first = held_first or held
        if held - held_first > MAX_GROWTH:
            raise TemplateTooCostly("takes too much memory for them")

    before = signal.signal(signal.SIGPROF, tick)
    timer = signal.setitimer(signal.ITIMER_PROF, _TICK_S, _TICK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)  # first: no tick may come after the rendering
        until_s = None
        # By default the signal ends the process, and another thread may be about to receive the last one.
        signal.signal(signal.SIGPROF, before if callable(before) else signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_PROF, *timer)  # of a profiler, say


def _held_bytes() -> int:
    """Resident memory of the process without mapped files; 0 where unknown."""
    try:
        with open("/proc/self/statm") as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
