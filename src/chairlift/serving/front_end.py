"""A front end's process: HTTP on one side, the engine's socket on the other."""

import asyncio
import contextlib
import resource
import signal
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from chairlift.build import ResolvedModel
from chairlift.config.settings import Settings
from chairlift.config.version import VERSION
from chairlift.live.processes.child import NO_ENGINE, Report
from chairlift.live.recovery.step_note import StepNote
from chairlift.live.shared_memory.counts import Count, Counts
from chairlift.live.shared_memory.rates import Rates
from chairlift.runner.memory.freed import return_large_blocks
from chairlift.server.reload import in_force, keys_in_force
from chairlift.serving.common import collect_seldom, hear_of_settings, outliving_parent, set_log_level, set_up_logging
from chairlift.serving.run_folder import Place
from chairlift.telemetry.metrics.front_end import FrontEndMetrics
from chairlift.telemetry.spans import Spans

if TYPE_CHECKING:
    from chairlift.live.wire.client import EngineClient
    from chairlift.server.admission.bounds import Load

_ENGINE_S = 1.0  # to find an engine that is there
_GOODBYE_S = 1.5  # to tell clients that the server is gone; then another may have the port


@dataclass(frozen=True, slots=True)
class Doors:
    """The sockets that all front ends share."""

    listener: socket.socket
    admin: socket.socket | None = None


def front_end_main(report: Report, model: ResolvedModel, place: Place, doors: Doors, begun: int, index: int) -> None:
    """`begun`: when the server was, in seconds since 1970."""
    set_up_logging(model.settings)
    _allow_files(model.settings.max_connections)
    return_large_blocks()
    import uvloop

    uvloop.run(_front_end(report, model, place, doors, begun, index))


def _allow_files(num: int) -> None:
    """A connection is an open file, of which a process may have few unless it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


async def _front_end(report: Report, model: ResolvedModel, place: Place, doors: Doors, begun: int, index: int) -> None:
    from chairlift.live.wire.client import EngineClient
    from chairlift.server.admin import create_admin_app
    from chairlift.server.admission.bounds import Load
    from chairlift.server.app import create_app
    from chairlift.server.context import ServerContext
    from chairlift.server.request_log.log import RequestLog
    from chairlift.server.sockets.run import serve as serve_http
    from chairlift.text.find import load_tokenizer

    client = EngineClient(place.address, f"front-end-{index}")
    asyncio.get_running_loop().add_signal_handler(NO_ENGINE, client.give_up)
    counts, note = Counts(place.counts, index), StepNote(place.steps)
    load = Load(model.settings, counts, Rates(place.rates))
    tokenizer = load_tokenizer(model.source, model.settings.tokenizer)
    metrics = FrontEndMetrics(place.metrics, index)
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
        engine_silent_s=lambda: note.silent_s,
        request_log=RequestLog(
            model=model.name,
            metrics=metrics,
            spans=spans,
            logs=model.settings.log_requests,
            text_of=partial(tokenizer.decode, skip_special=False) if model.settings.log_prompts else None,
        ),
    )

    def take_settings() -> None:
        load.settings = in_force(place.reloads, model.settings)
        load.keys = keys_in_force(place.reloads)
        set_log_level(load.settings)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, take_settings)
    hear_of_settings()
    take_settings()
    collect_seldom()
    connection = asyncio.ensure_future(client.run())
    # Requests that come before there is an engine are told so, rather than left waiting. A front end that takes the
    # place of another has one almost at once, and takes no requests before.
    if load.is_complete:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.until_ready(), _ENGINE_S)
    sites = [(create_app(context), doors.listener)]
    if doors.admin is not None:
        sites.append((create_admin_app(load, place.reloads), doors.admin))
    is_orphaned = asyncio.Event()
    serving = asyncio.ensure_future(serve_http(sites, load, stop=is_orphaned))
    announcing = asyncio.ensure_future(_announce(report, client, counts))
    warming_up = asyncio.ensure_future(context.encoder.warm_up())
    with outliving_parent(place, partial(_say_goodbye, asyncio.get_running_loop(), client, load, is_orphaned)):
        try:
            done, _ = await asyncio.wait((connection, serving), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a wire that broke for any reason but the engine's death ends the front end
        finally:
            for task in (connection, serving, announcing, warming_up):
                task.cancel()
            if spans is not None:
                spans.close()
            context.request_log.flush()


def _say_goodbye(loop: asyncio.AbstractEventLoop, client: "EngineClient", load: "Load", end: asyncio.Event) -> None:
    """The parent is gone, and the engine with it: clients are told. Called in a thread of its own."""

    def tell() -> None:
        client.give_up()
        load.end_all()  # those too that wait for a slow client
        end.set()

    loop.call_soon_threadsafe(tell)
    time.sleep(_GOODBYE_S)


def _spans(settings: Settings, index: int, metrics: FrontEndMetrics) -> Spans | None:
    if settings.otlp_endpoint is None:
        return None
    service = {"service.name": "chairlift", "service.version": VERSION, "service.instance.id": f"front-end-{index}"}
    return Spans(settings.otlp_endpoint, service, metrics.spans)


async def _announce(report: Report, client: "EngineClient", counts: Counts) -> None:
    await client.until_ready()
    counts.put(Count.HAS_BEGUN, 1)
    report(None)
