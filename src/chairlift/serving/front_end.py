"""The front end process: HTTP on one side, the engine's socket on the other."""

import asyncio
import contextlib
import random
import resource
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from chairlift.build import ResolvedModel, adapter_registry
from chairlift.config.cluster_key import read_key
from chairlift.config.options.rules import make_router
from chairlift.config.settings import Settings
from chairlift.config.version import VERSION
from chairlift.live.processes.child import NO_ENGINE, ReportReady
from chairlift.live.recovery.step_note import StepNote
from chairlift.live.shared_memory.counts import Count, Counts
from chairlift.live.shared_memory.rate_limits import RateLimits
from chairlift.runner.memory.malloc import return_large_blocks
from chairlift.server.reload import adapters_in_force, in_force, keys_in_force
from chairlift.serving import process_setup
from chairlift.serving.process_setup import RunFolder
from chairlift.telemetry.log_lines import set_up_logging
from chairlift.telemetry.metrics.front_end import FrontEndMetrics
from chairlift.telemetry.spans import Spans

if TYPE_CHECKING:
    from chairlift.live.wire.client import EngineClient
    from chairlift.server.admission.bounds import Load

Sockets = Sequence[socket.socket]
_ENGINE_S = 1.0  # to find an engine that is there
_BEAT_S = 0.5  # between signs of life
_GOODBYE_S = 1.5  # to tell clients that the server is gone, before another takes the port


def front_end_main(
    report: ReportReady,
    model: ResolvedModel,
    folder: RunFolder,
    listeners: Sockets,
    begun: int,
    index: int,
) -> None:
    """`listeners`: for clients and, if there is one, for admin routes. `begun`: the server's start, Unix time."""
    set_up_logging(model.settings.log_level, model.settings.log_format)
    _allow_files(model.settings.max_connections)
    return_large_blocks()
    import uvloop

    uvloop.run(_front_end(report, model, folder, listeners, begun, index))


def _allow_files(num: int) -> None:
    """Raises the limit of open files, as each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


async def _front_end(
    report: ReportReady,
    model: ResolvedModel,
    folder: RunFolder,
    listeners: Sockets,
    begun: int,
    index: int,
) -> None:
    from chairlift.live.wire.client import EngineClient
    from chairlift.server.admin import create_admin_app
    from chairlift.server.admission.bounds import Load
    from chairlift.server.app import create_app
    from chairlift.server.context import ServerContext
    from chairlift.server.request_log.log import RequestLog
    from chairlift.server.sockets.run import serve as serve_http
    from chairlift.text.find import load_tokenizer

    replicas = range(model.settings.replicas)
    notes = [StepNote(folder.steps(replica)) for replica in replicas]
    is_cluster = model.settings.cluster is not None
    metrics = FrontEndMetrics(folder.metrics, index)
    client = EngineClient(
        [folder.address(replica) for replica in replicas],
        # Engines of other machines may know several servers.
        f"front-end-{index}" + (f"@{socket.gethostname()}:{folder.path.name}" if is_cluster else ""),
        make_router(model.settings.router),
        look=lambda replica: notes[replica].look(),
        is_cluster=is_cluster,
        roles=model.settings.replica_roles,
        draw_seed=_seeds(model.settings, index),
        on_moved=metrics.moved,
    )
    asyncio.get_running_loop().add_signal_handler(NO_ENGINE, client.give_up)
    counts = Counts(folder.counts, index)
    load = Load(model.settings, counts, RateLimits(folder.rates))
    tokenizer = load_tokenizer(model.source, model.settings.tokenizer, model.settings.chat_template)
    load.on_refused = metrics.refused
    spans = _spans(model.settings, index, metrics)
    context = ServerContext(
        load=load,
        model_names=model.names,
        model_config=model.config,
        tokenizer=tokenizer,
        client=client,
        created=begun,
        version=VERSION,
        adapters=adapter_registry(model, folder.adapters),
        engine_silent_s=lambda: min((note.silent_s for note in notes), default=0.0),
        request_log=RequestLog(
            model=model.name,
            metrics=metrics,
            spans=spans,
            logs=model.settings.logs_requests,
            text_of=partial(tokenizer.decode, skip_special=False) if model.settings.log_prompts else None,
        ),
    )

    def take_settings() -> None:
        load.settings = in_force(folder.reloads, model.settings)
        load.keys = keys_in_force(folder.reloads)
        load.adapters = adapters_in_force(folder.reloads)
        process_setup.set_log_level(load.settings)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, take_settings)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    take_settings()
    process_setup.collect_seldom()
    connection = asyncio.ensure_future(_connect(client, model.settings, folder))
    # Requests before the first engine are refused, rather than left waiting. A restarted front end has an engine almost
    # at once, and takes no requests before.
    if load.is_complete:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.replicas.until_ready(), _ENGINE_S)
    apps = [create_app(context)]
    if len(listeners) > 1:
        apps.append(create_admin_app(load, folder.reloads, client, context.adapters))
    sites = list(zip(apps, listeners, strict=True))
    is_orphaned = asyncio.Event()
    serving = asyncio.ensure_future(serve_http(sites, load, stop=is_orphaned))
    beating = asyncio.ensure_future(_beat(counts))
    announcing = asyncio.ensure_future(_announce(partial(report, context.example), client, counts))
    warming_up = asyncio.ensure_future(context.encoder.warm_up())
    with process_setup.outliving_parent(
        folder, partial(_say_goodbye, asyncio.get_running_loop(), client, load, is_orphaned)
    ):
        try:
            done, _ = await asyncio.wait((connection, serving), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a wire broken by anything but the engine's death ends the front end
        finally:
            for task in (connection, serving, beating, announcing, warming_up):
                task.cancel()
            if spans is not None:
                spans.close()
            context.request_log.flush()


def _seeds(settings: Settings, index: int) -> Callable[[], int]:
    """Of requests that bring none: front ends draw different ones."""
    source = random.SystemRandom() if settings.seed is None else random.Random(f"{settings.seed} {index}")
    return partial(source.getrandbits, 64)


async def _connect(client: "EngineClient", settings: Settings, folder: RunFolder) -> None:
    """To the engines here and, in a cluster, to those that the members' list names."""
    if settings.cluster is None:
        await client.replicas.run()
        return
    from chairlift.live.nodes.feed import MembersFeed
    from chairlift.live.wire.curve import Curve

    feed = MembersFeed(client.replicas, Curve(read_key(settings.cluster_key)))
    await asyncio.gather(client.replicas.run(), feed.run(folder.members))


def _say_goodbye(loop: asyncio.AbstractEventLoop, client: "EngineClient", load: "Load", end: asyncio.Event) -> None:
    """Tells clients that the parent and the engine are gone. Called in a thread of its own."""

    def tell() -> None:
        client.give_up()
        load.end_all()  # also those that wait for a slow client
        end.set()

    loop.call_soon_threadsafe(tell)
    time.sleep(_GOODBYE_S)


def _spans(settings: Settings, index: int, metrics: FrontEndMetrics) -> Spans | None:
    if settings.otlp_endpoint is None:
        return None
    service = {"service.name": "chairlift", "service.version": VERSION, "service.instance.id": f"front-end-{index}"}
    return Spans(settings.otlp_endpoint, service, metrics.spans)


async def _beat(counts: Counts) -> None:
    """For the parent, as long as the event loop turns."""
    while True:
        counts.put(Count.BEAT_NS, time.monotonic_ns())
        await asyncio.sleep(_BEAT_S)


async def _announce(report: Callable[[], None], client: "EngineClient", counts: Counts) -> None:
    await client.replicas.until_ready()
    counts.put(Count.HAS_BEGUN, 1)
    report()
