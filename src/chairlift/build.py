"""The one place that puts concrete parts together: settings in, an engine or a whole server out."""

import asyncio
import contextlib
import ctypes
import gc
import itertools
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chairlift.config.model import ModelConfig, SamplingDefaults
from chairlift.config.rules import make_admission, make_pacing, make_policy
from chairlift.config.settings import Settings
from chairlift.config.source import Source, load_model_config, locate
from chairlift.config.version import VERSION
from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.ports import DeviceLost, Observer, Runner
from chairlift.core.preemption import Preemption
from chairlift.core.scheduler import Scheduler
from chairlift.live.child import NO_ENGINE, Child, Report
from chairlift.live.clock import WallClock
from chairlift.live.counts import Counts, make_counts
from chairlift.live.messages import EngineInfo
from chairlift.live.processes import Server
from chairlift.live.rates import Rates, make_rates
from chairlift.live.step_note import NotedRunner, StepNote
from chairlift.live.switchboard import Switchboard
from chairlift.runner.cuda.wake import wake
from chairlift.server.access import check_access, warning_of
from chairlift.server.listen import listen
from chairlift.server.reload import Reloader, in_force, keys_in_force
from chairlift.telemetry.lines import Rules
from chairlift.telemetry.log_lines import said, set_up_logging
from chairlift.telemetry.metrics.engine import EngineMetrics
from chairlift.telemetry.metrics.front_end import FrontEndMetrics
from chairlift.telemetry.metrics.parent import ENGINE, ParentMetrics
from chairlift.telemetry.metrics.store import Store
from chairlift.telemetry.observers import Observers
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.spans import Spans, check_endpoint
from chairlift.telemetry.stopwatch import Stopwatch

if TYPE_CHECKING:
    from chairlift.live.client import EngineClient
    from chairlift.runner.load import Loaded

_MAX_FRONT_ENDS = 4  # that start by themselves


@dataclass(frozen=True, slots=True)
class Model:
    """Which model is served, before anything of it is loaded."""

    settings: Settings
    source: Source
    config: ModelConfig

    @property
    def name(self) -> str:
        return self.settings.served_model_name or self.source.name


def find_model(settings: Settings) -> Model:
    source = locate(settings.model, has_weights=settings.load_format != "dummy")
    config = load_model_config(source)
    if source.is_embedded:  # so small a model wanders when sampled: greedy unless a request asks otherwise
        config = replace(config, sampling=SamplingDefaults(temperature=0.0))
    end = settings.compat.end_token
    if end is not None and end not in config.eos_ids:
        config = replace(config, eos_ids=(*config.eos_ids, end))
    return Model(settings, source, config)


def let_threads_sleep() -> None:
    """Threads that wait for each other must sleep, not spin: beside any other process, spinning costs far more than
    waking up. It has to be said before torch is imported."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def load(model: Model) -> "Loaded":
    """Loads the weights and warms the runner up."""
    let_threads_sleep()
    if model.settings.device != "cpu":
        wake()
    from chairlift.runner.load import load_runner

    gc.freeze()  # what is imported stays: nobody need look there for cycles, as is done often while memory is measured
    return load_runner(model.settings, model.source, model.config)


def make_engine(model: Model, metrics: Path | None = None) -> tuple[Switchboard, "Loaded"]:
    """`metrics` is the folder where the engine counts what it does."""
    loaded = load(model)
    rules = rules_of(model.settings, loaded)
    engine = join(loaded.runner, loaded.limits, rules)
    observers: list[Observer] = []
    if metrics is not None:
        engine.runner = stopwatch = Stopwatch(loaded.runner, engine.clock)
        observers.append(EngineMetrics(Store(metrics, ENGINE), engine.scheduler, stopwatch))
    if model.settings.trace is not None:
        depth = loaded.runner.depth
        observers.append(Recorder(model.settings.trace, engine.scheduler, rules, model.name, "wall", depth))
    if observers:
        engine.observer = observers[0] if len(observers) == 1 else Observers(*observers)
    return Switchboard(engine, loaded.limits, model.config.eos_ids), loaded


def join(runner: Runner, limits: Limits, rules: Rules) -> Engine:
    """An engine of this runner and a new scheduler, whose limits may be narrower than the runner's."""
    scheduler = Scheduler(
        limits,
        make_policy(rules.policy),
        make_pacing(rules.prefill),
        make_admission(rules.admission),
        rules.preemption,
        has_prefix_index=rules.prefix_cache,
    )
    return Engine(scheduler, runner, WallClock())


def rules_of(settings: Settings, loaded: "Loaded") -> Rules:
    return Rules(
        policy=settings.policy,
        prefill=settings.prefill,
        admission=settings.admission,
        preemption=Preemption(
            mode=settings.preemption,
            num_host_blocks=loaded.num_host_blocks,
            block_copy_s=loaded.block_copy_s,
            token_s=loaded.token_s,
        ),
        prefix_cache=settings.prefix_cache,
    )


def serve(settings: Settings, look: Callable[[], Settings] | None = None) -> int:
    """Runs the server until it is told to stop; the exit code. `look` finds the settings again as they are then."""
    started = time.monotonic()
    _set_up_logging(settings)
    for warning in (*settings.warnings, warning_of(settings)):
        if warning is not None:
            _say(f"warning: {warning}")
    if settings.otlp_endpoint is not None:
        check_endpoint(settings.otlp_endpoint)
    check_access(settings)
    _check_device(settings)
    model = find_model(settings)
    listener = listen(settings.host, settings.port)
    admin = None if settings.admin_port is None else listen(settings.admin_host, settings.admin_port, "admin-")
    _say(f"starting {model.name} on {_url(settings, settings.host, listener)}")
    if admin is not None:
        _say(f"admin routes on {_url(settings, settings.admin_host, admin)}")
    # The path of a socket has room for about a hundred bytes.
    where = tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp"
    with (
        tempfile.TemporaryDirectory(prefix="chairlift-", dir=where) as folder,
        listener,
        admin or contextlib.nullcontext(),
    ):
        address = f"ipc://{folder}/engine"
        note = StepNote(Path(folder) / "steps")
        num_front_ends = settings.frontends or _num_front_ends(settings.device)
        counts = make_counts(_counts(address), num_front_ends)
        _metrics(address).mkdir()
        counted = ParentMetrics(_metrics(address), model.name)

        def on_ready(summary: list[str]) -> None:
            _say(f"ready in {time.monotonic() - started:.1f} s: {summary[0]}")
            for line in summary[1:]:
                _say(line)
            _say(_example(settings, listener))

        begun = int(time.time())
        make_rates(_rates(address))
        reloader = Reloader(_reloads(address), settings, partial(_look, look or (lambda: settings)))
        starts = itertools.count(1)

        def start_engine() -> Child:
            start = next(starts)
            if start > 1:
                counted.engine_starts_again()
            return Child("engine", _engine_main, model, address, note.path, start)

        def clear_up(front_end: int) -> int:
            lost = counts.clear(front_end)
            counted.front_end_starts_again(front_end, lost)
            return lost

        server = Server(
            start_engine,
            [
                partial(Child, f"front end {i}", _front_end_main, model, address, listener, admin, begun, i)
                for i in range(num_front_ends)
            ],
            progress=lambda: note.progress,
            clear_up=clear_up,
            drain_timeout=lambda: reloader.settings.drain_timeout,
        )
        with _reloading(reloader, server):
            return server.run(_say, on_ready)


def _look(look: Callable[[], Settings]) -> Settings:
    """With the files that settings name looked at as well, so that a bad one changes nothing."""
    settings = look()
    check_access(settings)
    return settings


@contextlib.contextmanager
def _reloading(reloader: Reloader, server: Server) -> Iterator[None]:
    """Meanwhile SIGHUP has the settings read again. It is blocked here and in whoever is started from here, until they
    can hear it: a thread waits for it, so that it comes at no bad time."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

    def run() -> None:
        while True:
            signal.sigwait({signal.SIGHUP})
            try:
                _say(reloader().in_words())
            except OSError as error:  # a full disk, say; the next signal may fare better
                _say(f"the settings stay as they are: {error}")
            for pid in server.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGHUP)

    threading.Thread(target=run, daemon=True).start()
    yield


def _folder(address: str) -> Path:
    return Path(address.removeprefix("ipc://")).parent


def _counts(address: str) -> Path:
    return _folder(address) / "counts"


def _metrics(address: str) -> Path:
    return _folder(address) / "metrics"


def _rates(address: str) -> Path:
    return _folder(address) / "rates"


def _reloads(address: str) -> Path:
    return _folder(address) / "settings.json"


def _hear_of_settings() -> None:
    """Once somebody listens."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def _check_device(settings: Settings) -> None:
    """Refuses a device that is not there, before anything is begun; torch is asked only if there seems to be none."""
    if settings.device == "cuda" and not _has_cuda_driver():
        from chairlift.runner.hardware import pick_device

        pick_device(settings.device)


def _has_cuda_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _num_front_ends(device: str) -> int:
    """A GPU makes tokens faster than one process can send them, and leaves the cores to others; a CPU does neither."""
    if device == "cpu" or not _has_cuda_driver():
        return 1
    return max(1, min(_MAX_FRONT_ENDS, len(os.sched_getaffinity(0)) // 4))


def _with_trace(model: Model, start: int) -> Model:
    """An engine that is started again writes another file: the last steps of the one that died are worth keeping."""
    trace = model.settings.trace
    if trace is None or start == 1:
        return model
    return replace(model, settings=replace(model.settings, trace=trace.with_name(f"{trace.name}.{start}")))


def _engine_main(report: Report, model: Model, address: str, where: Path, start: int) -> None:
    _set_up_logging(model.settings)
    signal.signal(signal.SIGHUP, lambda *_: _set_log_level(in_force(_reloads(address), model.settings)))
    _hear_of_settings()
    switchboard, loaded = make_engine(_with_trace(model, start), _metrics(address))
    from chairlift.live.engine_process import EngineProcess
    from chairlift.runner.warm_up import prepare

    note = StepNote(where)
    engine = switchboard.engine
    engine.runner = NotedRunner(engine.runner, note, switchboard.who)
    with _sweeping(address), _ending_with_the_device():
        info = EngineInfo(loaded.limits, loaded.dtype, loaded.device)
        process = EngineProcess(address, switchboard, info, partial(prepare, loaded.runner), note, start)
        _collect_seldom()
        report(_summary(loaded))
        process.run()


@contextlib.contextmanager
def _ending_with_the_device() -> Iterator[None]:
    """At once: what is left to tidy up may need the device, and wait for it for ever."""
    try:
        yield
    except DeviceLost as error:
        _say(f"the engine ends, because nothing can be computed any more: {error}")
        os._exit(1)


@contextlib.contextmanager
def _sweeping(address: str) -> Iterator[None]:
    """At the end removes the socket's folder if the parent is gone, which would have done so."""
    try:
        yield
    finally:
        parent = multiprocessing.parent_process()
        if parent is not None and os.getppid() != parent.pid:
            shutil.rmtree(_folder(address), ignore_errors=True)


def _front_end_main(
    report: Report,
    model: Model,
    address: str,
    listener: socket.socket,
    admin: socket.socket | None,
    begun: int,
    index: int,
) -> None:
    _set_up_logging(model.settings)
    _allow_files(model.settings.max_connections)
    import uvloop

    uvloop.run(_front_end(report, model, address, listener, admin, begun, index))


def _allow_files(num: int) -> None:
    """A connection is an open file, of which a process may have few unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


async def _front_end(
    report: Report,
    model: Model,
    address: str,
    listener: socket.socket,
    admin: socket.socket | None,
    begun: int,
    index: int,
) -> None:
    from chairlift.live.client import EngineClient
    from chairlift.server.admin import create_admin_app
    from chairlift.server.app import create_app
    from chairlift.server.book import Book
    from chairlift.server.context import ServerContext
    from chairlift.server.load import Load
    from chairlift.server.run import serve as serve_http
    from chairlift.text.load import load_tokenizer

    client = EngineClient(address, f"front-end-{index}")
    asyncio.get_running_loop().add_signal_handler(NO_ENGINE, client.give_up)
    load = Load(model.settings, Counts(_counts(address), index), Rates(_rates(address)))
    tokenizer = load_tokenizer(model.source, model.settings.tokenizer)
    metrics = FrontEndMetrics(_metrics(address), index)
    load.on_refused = metrics.refused
    spans = _spans(model.settings, index, metrics)
    context = ServerContext(
        load=load,
        model_names=(model.name,),
        model_config=model.config,
        tokenizer=tokenizer,
        client=client,
        created=begun,
        version=VERSION,
        book=Book(
            model=model.name,
            metrics=metrics,
            spans=spans,
            logs=model.settings.log_requests,
            text_of=partial(tokenizer.decode, skip_special=False) if model.settings.log_prompts else None,
        ),
    )

    def take_settings() -> None:
        load.settings = in_force(_reloads(address), model.settings)
        load.keys = keys_in_force(_reloads(address))
        _set_log_level(load.settings)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, take_settings)
    _hear_of_settings()
    take_settings()
    _collect_seldom()
    connection = asyncio.ensure_future(client.run())
    # Requests that come before the engine is ready are told so, rather than left waiting.
    sites = [(create_app(context), listener)]
    if admin is not None:
        sites.append((create_admin_app(load, _reloads(address)), admin))
    serving = asyncio.ensure_future(serve_http(sites, load))
    announcing = asyncio.ensure_future(_announce(report, client))
    try:
        done, _ = await asyncio.wait((connection, serving), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a wire that broke for any reason but the engine's death ends the front end
    finally:
        for task in (connection, serving, announcing):
            task.cancel()
        if spans is not None:
            spans.close()
        context.book.flush()


def _spans(settings: Settings, index: int, metrics: FrontEndMetrics) -> Spans | None:
    if settings.otlp_endpoint is None:
        return None
    service = {"service.name": "chairlift", "service.version": VERSION, "service.instance.id": f"front-end-{index}"}
    return Spans(settings.otlp_endpoint, service, metrics.spans)


def _collect_seldom() -> None:
    """What is loaded stays for good, and what requests leave behind is mostly freed when they end: looking for cycles
    as often as usual would take a third of the time that requests do, and stop every stream meanwhile."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def _announce(report: Report, client: "EngineClient") -> None:
    await client.until_ready()
    report(None)


def _summary(loaded: "Loaded") -> list[str]:
    """What is served with; and on a GPU where its memory goes."""
    limits = loaded.limits
    blocks = "1 block" if limits.num_blocks == 1 else f"{limits.num_blocks} blocks"
    weights = "" if loaded.quantize == "none" else f"{loaded.quantize} weights, "
    kept = "" if loaded.kv_dtype == loaded.dtype else f" in {loaded.kv_dtype}"
    exact = "exact, " if loaded.exact else ""
    first = (
        f"{loaded.device}, {loaded.dtype}, {weights}{exact}{loaded.kernels} kernels, {loaded.threads} threads; "
        f"context {limits.max_model_len}, up to {limits.max_running} requests at once, "
        f"KV cache of {blocks} for {limits.max_pool_tokens} tokens{kept}"
    )
    return [first] if loaded.budget is None else [first, loaded.budget.in_words(limits)]


def _example(settings: Settings, listener: socket.socket) -> str:
    host = settings.host
    url = _url(settings, {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), listener)
    body = '{"messages": [{"role": "user", "content": "What is the capital of France?"}]}'
    key = "" if settings.api_key is None and settings.api_key_file is None else " -H 'Authorization: Bearer KEY'"
    command = f"curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"
    return f"see it at work in a browser, {url}/, or try it:\n  {command}"


def _url(settings: Settings, host: str, listener: socket.socket) -> str:
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _set_up_logging(settings: Settings) -> None:
    set_up_logging(settings.log_level, settings.log_format)


def _set_log_level(settings: Settings) -> None:
    logging.getLogger().setLevel(settings.log_level.upper())


def _say(text: str) -> None:
    print(said(text), file=sys.stderr, flush=True)
