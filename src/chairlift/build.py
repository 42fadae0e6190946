"""Settings in, an engine out: the only module that puts its concrete parts together."""

import gc
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.config.cluster_key import read_key
from chairlift.config.options.rules import make_router
from chairlift.config.options.values import check_new
from chairlift.config.scheduler import Rules, make_scheduler
from chairlift.config.settings import LlmServing, Settings
from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.ports import Observer, Runner
from chairlift.core.routing.news import PrefixNews
from chairlift.core.routing.prefixes import span_of
from chairlift.core.routing.queued import QueuedWork
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.adapters.reading import AdapterReading
from chairlift.live.adapters.registry import AdapterRegistry
from chairlift.live.clock import WallClock
from chairlift.live.moving.fetch import Fetcher
from chairlift.live.moving.moves import Moves
from chairlift.live.moving.shelf import Shelf
from chairlift.live.moving.sockets import PieceClient, PieceServer
from chairlift.live.processes.ranks import OnDeath, RankProcesses
from chairlift.live.recovery.step_note import NotedRunner, StepNote
from chairlift.live.wire.messages import EngineInfo
from chairlift.live.wire.recipients import Recipients
from chairlift.live.wire.switchboard import Switchboard
from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.embedding.find import for_embedding, load_for_task
from chairlift.models.files import hub
from chairlift.models.source import Source, find_source, suggested_sampling, tokenizer_path
from chairlift.models.spec import ModelConfig, SamplingDefaults
from chairlift.runner.cuda.start.preload import preload
from chairlift.runner.machine.nvml import find_reader
from chairlift.telemetry.device import DeviceSampler
from chairlift.telemetry.metrics.engine import EngineMetrics
from chairlift.telemetry.metrics.parent import engine_role
from chairlift.telemetry.metrics.store import Store
from chairlift.telemetry.observers import Observers
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.stopwatch import Stopwatch
from chairlift.telemetry.throughput import ThroughputLog
from chairlift.telemetry.watch.view import View

if TYPE_CHECKING:
    from chairlift.live.wire.engine_process import EngineProcess
    from chairlift.runner.start.load import Loaded


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """The model to serve, before it is loaded."""

    settings: Settings
    source: Source
    config: ModelConfig

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """That clients may use."""
        return self.settings.served_model_name or (self.source.name,)

    def under(self, settings: Settings) -> "ResolvedModel":
        """The same model, to be loaded or scheduled otherwise."""
        return replace(self, settings=settings)


def find_model(settings: Settings) -> ResolvedModel:
    if settings.tool_format is not None:
        from chairlift.text.responses.templates.find import named_template

        named_template(settings.tool_format)  # refused before anything is loaded
    if settings.chat_template is not None:
        from chairlift.text.template import check

        check(settings.chat_template)
    source = find_source(settings, has_weights=settings.load_format != "dummy")
    config = load_for_task(source, settings)
    if config.embedding is not None:
        settings = for_embedding(settings)
    if source.is_embedded:  # so small a model wanders when sampled, and repeats items of a list when greedy
        config = replace(config, sampling=SamplingDefaults(temperature=0.0, repetition_penalty=1.05))
    config = replace(config, sampling=suggested_sampling(config.sampling, settings))
    if settings.default_chat_template_kwargs is not None:
        _check_template_kwargs(settings.default_chat_template_kwargs)
    if settings.tokenizer is not None:
        settings = replace(settings, tokenizer=tokenizer_path(settings))
    if settings.tokenizer is not None or settings.compat != LlmServing():
        from chairlift.text.agreed import agreed

        settings, config = agreed(settings, source, config)
    return ResolvedModel(settings, source, config)


def _check_template_kwargs(given: Mapping[str, Any]) -> None:
    from chairlift.text.chat import check_names
    from chairlift.text.responses.turn import Asked

    try:
        check_names(Asked(messages=(), template_kwargs=given).template_kwargs)
    except InvalidRequest as error:
        raise InvalidConfig(f"--default-chat-template-kwargs: {error.message}") from error


def let_threads_sleep() -> None:
    """Threads that wait for each other sleep instead of spinning, which costs far more beside any other process. To be
    called before torch is imported."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def load(model: ResolvedModel, on_rank_death: OnDeath = lambda _: None) -> "Loaded":
    """Loads the weights and warms the runner up. `on_rank_death` is called in a thread; without it the next step fails
    as on a lost device."""
    let_threads_sleep()
    if model.settings.device in ("auto", "cuda"):
        preload()
    from chairlift.runner.start.load import load_runner

    if model.config.embedding is not None:
        from chairlift.runner.embedding.load import load_embedder

        return load_embedder(model.settings, model.source, model.config)
    gc.freeze()  # imports are permanent: spares the many collections of memory measurement
    if model.settings.tensor_parallel == 1:
        return load_runner(model.settings, model.source, model.config)
    return _load_ranks(model, on_rank_death)


def _load_ranks(model: ResolvedModel, on_rank_death: OnDeath) -> "Loaded":
    """This process is the first rank, and starts the others."""
    from chairlift.runner.ranks.first import Crew, check_ranks
    from chairlift.runner.ranks.rank import rank_main
    from chairlift.runner.start.load import load_runner

    check_ranks(model.settings, model.config)
    parts = (model.settings, model.source, model.config)
    processes = RankProcesses(model.settings.tensor_parallel, rank_main, *parts)
    try:
        return load_runner(*parts, Crew(processes.store, partial(processes.ready, on_rank_death)))
    except BaseException:
        processes.end()
        raise


def assemble(model: ResolvedModel, loaded: "Loaded") -> Switchboard:
    """An engine for the calling process."""
    check_save_logits(model.settings)
    rules = rules_of(model.settings, loaded)
    scheduler = make_scheduler(loaded.limits, rules)
    observer = _observer(_recorders(model, loaded, rules, scheduler))
    engine = Engine(scheduler, loaded.runner, WallClock(), observer)
    return _switchboard(engine, model, loaded, Recipients(scheduler.live))


def _switchboard(
    engine: Engine, model: ResolvedModel, loaded: "Loaded", recipients: Recipients, moves: Moves | None = None
) -> Switchboard:
    seed, reading = model.settings.seed, None
    rng = random.SystemRandom() if seed is None else random.Random(seed)
    if loaded.adapters is not None:
        reading = AdapterReading(loaded.adapters, engine.scheduler.adapters.__contains__)
    draw_seed = partial(rng.getrandbits, 64)
    return Switchboard(engine, loaded.limits, model.config.eos_ids, recipients, draw_seed, reading, moves)


def adapter_registry(model: ResolvedModel, file: Path | None = None) -> AdapterRegistry | None:
    """The adapters that requests may name, shared through this file; None where they may name none."""
    settings = model.settings
    if not settings.has_adapters:
        return None
    check = partial(read_adapter, config=model.config, max_rank=settings.max_lora_rank)
    fetch = partial(hub.fetch, place=hub.Place(cache=settings.download_dir))
    return AdapterRegistry(file, settings.lora_dir, model.name, check, fetch)


def check_save_logits(settings: Settings) -> None:
    """For a new engine; one that takes another's place goes on in its folder."""
    if settings.save_logits is not None:
        check_new(settings.save_logits, "--save-logits")


def assemble_watched(
    model: ResolvedModel,
    loaded: "Loaded",
    metrics: Path,
    note: StepNote,
    start: int,
    replica: int = 0,
    pieces: Path | None = None,
    pieces_at: str | None = None,
) -> tuple[Switchboard, View, EngineMetrics]:
    """An engine that times and notes its steps: for the page, for the metrics in that folder, and to tell what a dead
    engine was computing. `start` counts the engines of a server, from 1. `pieces`: a folder for keys and values that
    move, `pieces_at`: an address for engines on other machines that fetch them."""
    from chairlift.live.wire.curve import Gate
    from chairlift.runner.hooks import ShowsLife

    settings, rules, clock = model.settings, rules_of(model.settings, loaded), WallClock()
    scheduler = make_scheduler(loaded.limits, rules, news=_news(settings, loaded.limits))
    recipients = Recipients(scheduler.live)
    stopwatch = Stopwatch(loaded.runner, clock)
    store = Store(metrics, engine_role(replica))
    device = DeviceSampler(store, find_reader)
    if loaded.device == "cuda" and replica == 0:  # samples of one device would add up
        device.start()
    queued = QueuedWork() if settings.has_others else None  # type: ignore[abstract]  # empty methods are inherited
    counting = EngineMetrics(store, scheduler, stopwatch, replica, queued, Gate.num_turned_away_by_all)
    view = View(scheduler, clock, stopwatch, start, lambda: device.latest)
    observers: list[Observer] = [counting, *_recorders(model, loaded, rules, scheduler), view]
    if not settings.quiet:
        label = f"replica {replica}: " if settings.has_others else ""
        observers.append(ThroughputLog(scheduler, label))  # type: ignore[abstract]
    if queued is not None:
        observers.append(queued)
    if isinstance(loaded.runner, ShowsLife):  # a hook, as it was loaded before there was a note
        loaded.runner.on_beat = note.beat
    engine = Engine(scheduler, NotedRunner(stopwatch, note, recipients.keys_of), clock, _observer(observers))
    moves = _moves(engine, model, loaded, pieces, pieces_at)
    return _switchboard(engine, model, loaded, recipients, moves), view, counting


def _news(settings: Settings, limits: Limits) -> PrefixNews | None:
    """For routers to know the prefixes, where their rule looks at them."""
    tells = settings.has_others and make_router(settings.router).needs_hashes
    return PrefixNews(span_of(limits.block_size)) if tells else None


def assemble_served(
    model: ResolvedModel,
    loaded: "Loaded",
    address: str,
    metrics: Path,
    note: StepNote,
    start: int,
    replica: int = 0,
    public: str | None = None,
    pieces: Path | None = None,
    pieces_at: str | None = None,
) -> "EngineProcess":
    """A watched engine, connected and ready to run. `public`: an address for front ends on other machines. `pieces`: a
    folder for keys and values that move, `pieces_at`: an address for engines on other machines that fetch them."""
    from chairlift.live.wire.curve import Curve
    from chairlift.live.wire.engine_process import EngineProcess
    from chairlift.runner.memory.malloc import return_freed_memory
    from chairlift.runner.start.warm_up import prepare

    switchboard, view, counting = assemble_watched(model, loaded, metrics, note, start, replica, pieces, pieces_at)
    return EngineProcess(
        address,
        switchboard,
        view,
        EngineInfo(
            loaded.limits,
            loaded.dtype,
            loaded.device,
            loaded.fingerprint,
            moves_kv=switchboard.moves is not None,
            counts_users=switchboard.engine.scheduler.counts_users,
            chosen=loaded.chosen,
        ),
        partial(prepare, loaded.runner),
        note,
        return_freed_memory,
        model.settings.engine_timeout / 4 or None,
        counting.queued,
        None if public is None else (public, Curve(read_key(model.settings.cluster_key))),
        counting,
    )


def _moves(
    engine: Engine, model: ResolvedModel, loaded: "Loaded", pieces: Path | None, pieces_at: str | None
) -> Moves | None:
    """For requests that move to other engines and come from them; None where keys and values cannot."""
    from chairlift.live.wire.curve import Curve

    host, settings = loaded.host_memory, model.settings
    if pieces is None or host is None or not settings.can_move_kv:
        return None
    is_tcp = settings.move_kv == "tcp"
    curve = None if pieces_at is None else Curve(read_key(settings.cluster_key))
    where = pieces_at or ("tcp://127.0.0.1:*" if is_tcp else None)
    address = None if where is None else PieceServer(pieces, where, curve).address
    server = (settings.join or "127.0.0.1:0").rpartition(":")[0]
    fetcher = Fetcher(None if is_tcp else pieces, PieceClient(curve, server))
    depends_on = f"{model.source.name} {loaded.dtype} {loaded.quantize} {loaded.fingerprint}"
    shelf = Shelf(pieces, loaded.num_host_blocks * host.block_bytes)
    return Moves(engine, host, shelf, depends_on, fetcher, address)


def _recorders(model: ResolvedModel, loaded: "Loaded", rules: Rules, scheduler: Scheduler) -> list[Observer]:
    trace, logits, runner = model.settings.trace, model.settings.save_logits, loaded.runner
    recorders: list[Observer] = []
    if trace is not None:
        recorders.append(Recorder(trace, scheduler, rules, model.name, "wall", runner.depth))
    if logits is not None:
        from chairlift.runner.hooks import ShowsLogits
        from chairlift.runner.logits_saver import LogitsSaver

        assert isinstance(runner, ShowsLogits)
        recorders.append(LogitsSaver(logits, runner))  # type: ignore[abstract]  # what it does not override does nothing
    return recorders


def _observer(observers: list[Observer]) -> Observer:
    return observers[0] if len(observers) == 1 else Observers(*observers)


def make_engine(runner: Runner, limits: Limits, rules: Rules) -> Engine:
    """An engine of this runner and a new scheduler, with limits that may be narrower than the runner's."""
    return Engine(make_scheduler(limits, rules), runner, WallClock())


def rules_of(settings: Settings, loaded: "Loaded") -> Rules:
    return Rules(
        policy=settings.policy,
        prefill=settings.prefill,
        admission=settings.admission,
        preemption=Preemption(
            mode=settings.preemption,
            num_host_blocks=loaded.num_host_blocks,
            block_copy_s=loaded.block_copy_s,
            step_times=loaded.step_times,
            requeue=settings.requeue,
        ),
        prefix_cache=settings.prefix_cache,
    )
