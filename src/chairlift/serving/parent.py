"""The parent process: checks the settings, starts and supervises the others, and reloads the settings."""

import contextlib
import ctypes
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from chairlift.build import adapter_registry, check_save_logits, find_model
from chairlift.config.cluster_key import new_key, read_key
from chairlift.config.processors import num_processors
from chairlift.config.settings import MINDSPORE_DEVICES, UNTRIED_DEVICES, Settings
from chairlift.core.errors import InvalidConfig
from chairlift.live.processes.child import Child
from chairlift.live.processes.supervisor import StopNow, Supervisor, Watched, on_signals
from chairlift.live.shared_memory.counts import make_counts
from chairlift.live.shared_memory.rate_limits import make_rate_limits
from chairlift.server.admission.access import check_access
from chairlift.server.reload import Reloader
from chairlift.server.sockets.listen import listen, listening_at
from chairlift.serving.addresses import after, bracketed, claim, split, tcp
from chairlift.serving.banner import example, rules, stopped, url_of
from chairlift.serving.engines import Engines
from chairlift.serving.front_end import front_end_main
from chairlift.serving.members import members_main
from chairlift.serving.placing.process import find_ray, placement_main
from chairlift.serving.process_setup import RunFolder
from chairlift.telemetry.log_lines import flush_log, say, set_up_logging
from chairlift.telemetry.metrics.parent import ParentMetrics
from chairlift.telemetry.spans import check_endpoint

_log = logging.getLogger(__name__)
_SHARED_MEMORY = "/dev/shm"
_MAX_FRONT_ENDS = 4  # unless the settings say more


def serve(settings: Settings, look: Callable[[], Settings] | None = None) -> int:
    """Runs the server until it is told to stop; the exit code. `look` reads the settings anew."""
    return ended_by_signals(lambda: _serve(settings, look or (lambda: settings)))


def ended_by_signals(run: Callable[[], int]) -> int:
    """The exit code of `run`, or 0 if a signal to stop comes before it handles them itself."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # for good, here and in all children
    on_signals(_stop_now)
    try:
        return run()
    except StopNow:
        return 0
    finally:
        on_signals(signal.SIG_IGN)
        flush_log()  # what is printed next comes after


def _stop_now(_number: int, _frame: object) -> None:
    on_signals(lambda *_: None)  # once is enough
    raise StopNow


def _serve(settings: Settings, look: Callable[[], Settings]) -> int:
    started, started_with = time.monotonic(), settings
    set_up_logging(settings.log_level, settings.log_format)
    for warning in settings.warnings:
        say(warning, "WARNING")
    if settings.otlp_endpoint is not None:
        check_endpoint(settings.otlp_endpoint)
    for warning in check_access(settings):
        say(warning, "WARNING")
    given, ray = settings, None
    if settings.ray is not None:  # its engines are nodes', and this server has none of its own
        ray = find_ray(settings)
        given = replace(settings, cluster_key=read_key(settings.cluster_key or new_key()))
        settings = replace(given, cluster=f"{bracketed(ray.host)}:0", autoscale=None, replicas=0)
    if settings.has_others and settings.save_logits is not None:
        raise InvalidConfig("save_logits: a folder has the logits of one engine; leave --save-logits or the others out")
    check_save_logits(settings)
    if settings.replicas:
        check_device(settings)
    members_at = None
    if settings.cluster is not None:
        members_at = tcp(*claim(*split(settings.cluster), "--cluster HOST:PORT"))
    model = find_model(_with_key(settings))
    for warning in model.config.warnings:
        say(warning, "WARNING")
    unix = contextlib.ExitStack()
    listener = unix.enter_context(listening_at(settings.uds)) if settings.uds else listen(settings.host, settings.port)
    admin = None if settings.admin_port is None else listen(settings.admin_host, settings.admin_port, "admin-")
    say(f"starting {model.name} on {url_of(settings, settings.host, listener)}")
    if admin is not None:
        say(f"admin routes on {url_of(settings, settings.admin_host, admin)}")
    told: list[int] = []
    on_signals(lambda number, _: told.append(number))  # what starts from here on has to be cleaned up
    with unix, new_run_folder(settings) as folder, listener, admin or contextlib.nullcontext():
        pieces_at = [] if members_at is None else [after(members_at, 1 + i) for i in range(settings.replicas)]
        engines = Engines(model, folder, lambda replica: counted.engine_starts_again(replica), [], pieces_at)
        num_front_ends = num_frontends(settings)
        counts = make_counts(folder.counts, num_front_ends)
        counted = ParentMetrics(folder.metrics, model.name)

        def on_ready(reports: Sequence[Any]) -> None:
            """Of the engines, helpers and front ends."""
            summary = reports[0] if settings.replicas else ["with engines on other machines"]
            say(f"ready in {time.monotonic() - started:.1f} s: {summary[0]}")
            count = "replicas of other machines too" if settings.cluster else f"{settings.replicas} replicas"
            more = [f"{count}, routed by {model.settings.router}"] if settings.has_others else []
            for line in (*summary[1:], *rules(settings), *more, example(settings, listener, reports[-1])):
                say(line)
            ready.append(time.monotonic())

        ready: list[float] = []
        registry = adapter_registry(model, folder.adapters)
        if registry is not None:
            registry.start(settings.lora)
        begun = int(time.time())
        make_rate_limits(folder.rates)
        reloader = Reloader(folder.reloads, started_with, partial(_look, look))
        helpers: list[Watched] = []
        if members_at is not None:
            say(f"nodes join at {members_at.removeprefix('tcp://')}")
            helpers.append(Watched(lambda: Child("members list", members_main, model, folder, members_at)))
        if ray is not None and members_at is not None:
            join = members_at.removeprefix("tcp://")
            helpers.append(Watched(lambda: Child("placement", placement_main, given, folder, ray, join)))

        def clear_up(front_end: int) -> int:
            lost = counts.clear(front_end)
            counted.front_end_starts_again(front_end, lost)
            return lost

        def start_front_end(index: int) -> Child:
            listeners = [listener] if admin is None else [listener, admin]
            return Child(f"front end {index}", front_end_main, model, folder, listeners, begun, index)

        front_ends = [
            Watched(partial(start_front_end, index), partial(counts.beat_of, index), settings.frontend_timeout)
            for index in range(num_front_ends)
        ]

        server = Supervisor(
            [*engines.kept(settings.engine_timeout), *helpers, *front_ends],
            progress=engines.progress,
            clear_up=clear_up,
            drain_timeout=lambda: reloader.settings.drain_timeout,
            on_engine_death=engines.tell_end,
            num_engines=settings.replicas,
            num_helpers=len(helpers),
        )
        _start_reloading(reloader, server)
        code = server.run(say, on_ready, told)
        if ready:
            say(stopped(time.monotonic() - ready[0], counts.total))
        return code


@contextlib.contextmanager
def new_run_folder(settings: Settings) -> Iterator[RunFolder]:
    # The path of a socket has room for about a hundred bytes.
    where = tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp"
    with tempfile.TemporaryDirectory(prefix="chairlift-", dir=where) as path, contextlib.ExitStack() as stack:
        folder = RunFolder(Path(path), _shared_folder(stack) if settings.can_move_kv else None)
        folder.pieces.mkdir(exist_ok=True)
        folder.metrics.mkdir()
        yield folder


def _shared_folder(stack: contextlib.ExitStack) -> Path | None:
    """For as long as the server runs; None where the system has no shared memory for files."""
    if not os.access(_SHARED_MEMORY, os.W_OK):
        return None
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chairlift-", dir=_SHARED_MEMORY)))


def _with_key(settings: Settings) -> Settings:
    """With the cluster key itself: its file may be gone when a process is started again."""
    if settings.cluster is None:
        return settings
    return replace(settings, cluster_key=read_key(settings.cluster_key))


def _look(look: Callable[[], Settings]) -> Settings:
    """Checks also the files that settings name, so that a bad one changes nothing."""
    settings = look()
    check_access(settings)
    return settings


def _start_reloading(reloader: Reloader, server: Supervisor) -> None:
    """Reloads the settings on SIGHUP. It is blocked in all threads, and in children until they handle it; a thread
    waits for it, so that it interrupts nothing."""

    def run() -> None:
        while True:
            signal.sigwait({signal.SIGHUP})
            result = reloader()
            say(result.in_words(), "WARNING" if result.error else "INFO")
            for pid in server.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGHUP)

    threading.Thread(target=run, daemon=True).start()


def check_device(settings: Settings) -> None:
    """Refuses a missing device before anything starts; imports torch only if there seems to be none."""
    if settings.is_mindspore:
        from chairlift.runner.mindspore.installed import check_installed

        check_installed(settings.device)
    if settings.device in UNTRIED_DEVICES or (settings.device == "cuda" and not _has_cuda_driver()):
        from chairlift.runner.machine.hardware import pick_device

        pick_device(settings.device)


def _has_cuda_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def num_frontends(settings: Settings) -> int:
    """A GPU makes tokens faster than one process can send them, and leaves cores free; a CPU does neither."""
    if settings.frontends:
        return settings.frontends
    if settings.device in ("cpu", *MINDSPORE_DEVICES) or not _has_cuda_driver():
        return 1
    return max(1, min(_MAX_FRONT_ENDS, num_processors() // 4))
